/* Waits of threads. */
#ifndef LAYERSCOPE_SAMPLER_WAITS_H
#define LAYERSCOPE_SAMPLER_WAITS_H

#include "threads.h"

void sm_switched(sm_thread *thread, uint64_t at_ns, uint32_t cpu, int is_out, int is_preempted);
void sm_switched_last(sm_thread *thread, uint64_t at_ns);
void sm_waits_found(sm_thread *thread);
void sm_waits_lost(void);
void sm_waits_tick(void);
void sm_waits_each_second(int is_last);
uint64_t sm_waits_oldest(void);
void sm_waits_end(sm_thread *thread);

#endif
