/* The period of the clock of a thread. */
#ifndef LAYERSCOPE_SAMPLER_PERIODS_H
#define LAYERSCOPE_SAMPLER_PERIODS_H

#include "threads.h"

void sm_period_begin(sm_thread *thread, uint64_t now_ns, uint64_t most_ns, uint64_t period_ns);
void sm_period_vary(sm_thread *thread, uint64_t sample_ns);

#endif
