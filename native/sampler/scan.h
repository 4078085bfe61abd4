/* Processes and threads that run already. */
#ifndef LAYERSCOPE_SAMPLER_SCAN_H
#define LAYERSCOPE_SAMPLER_SCAN_H

#include "threads.h"

void sm_scan(int32_t pid, int32_t ppid, uint64_t at_ns); /* a process that runs, its threads and its children */
void sm_sweep(int is_lost);                              /* those whose end was not told */
void sm_follow_again(sm_process *process);
int sm_follow_tick(void);

#endif
