/* What a thread that has just begun does in the kernel. */
#ifndef LAYERSCOPE_SAMPLER_FIRST_TICKS_H
#define LAYERSCOPE_SAMPLER_FIRST_TICKS_H

#include "threads.h"

void sm_first_ticks_open(sm_thread *thread);
void sm_first_ticks_close(sm_thread *thread);
void sm_first_ticks_tick(void);

#endif
