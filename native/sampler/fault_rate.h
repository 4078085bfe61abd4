/* How often page faults make a sample. */
#ifndef LAYERSCOPE_SAMPLER_FAULT_RATE_H
#define LAYERSCOPE_SAMPLER_FAULT_RATE_H

#include "threads.h"

/* How many page faults a sample that is taken now stands for, 0: it is left out. `event` is SM_MINOR or SM_MAJOR. */
uint32_t sm_fault_weight(sm_thread *thread, int event, uint64_t at_ns, int is_copied);
void sm_fault_rate_each_second(void);

#endif
