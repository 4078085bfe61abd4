/* Samples that the kernel copies. */
#ifndef LAYERSCOPE_SAMPLER_COPIED_STACKS_H
#define LAYERSCOPE_SAMPLER_COPIED_STACKS_H

#include "threads.h"

void sm_copies_tick(void);
uint64_t sm_copies_look(void);
void sm_copies_take(uint64_t until_ns);
void sm_copies_new_rate(void);
void sm_copies_stop(sm_process *process);
void sm_copies_end(sm_thread *thread);

#endif
