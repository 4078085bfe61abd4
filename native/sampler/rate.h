/* The rate of samples while the program runs. */
#ifndef LAYERSCOPE_SAMPLER_RATE_H
#define LAYERSCOPE_SAMPLER_RATE_H

#include <stdint.h>

void sm_rate_set(uint32_t hz);
void sm_rate_each_second(void);

#endif
