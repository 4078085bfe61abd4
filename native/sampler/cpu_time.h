/* CPU time of threads. */
#ifndef LAYERSCOPE_SAMPLER_CPU_TIME_H
#define LAYERSCOPE_SAMPLER_CPU_TIME_H

#include "threads.h"

uint64_t sm_switched_ns(const sm_thread *thread, uint64_t at_ns);
void sm_count_from(sm_thread *thread, uint64_t all_ns);
uint64_t sm_cpu_ns_at(const sm_thread *thread, uint64_t at_ns);
uint64_t sm_cpu_ns(const sm_thread *thread);
void sm_rest(sm_thread *thread, uint64_t at_ns, uint64_t cpu_ns);

#endif
