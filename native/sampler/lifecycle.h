/* Threads and processes that are found, become other programs, and end. */
#ifndef LAYERSCOPE_SAMPLER_LIFECYCLE_H
#define LAYERSCOPE_SAMPLER_LIFECYCLE_H

#include "threads.h"

sm_thread *sm_thread_found(sm_process *process, int32_t tid, uint64_t at_ns, const char *name);
void sm_thread_end(sm_thread *thread, uint64_t at_ns);
void sm_exec(sm_process *process, uint64_t at_ns);
void sm_reap(void); /* those that have ended and are told */

#endif
