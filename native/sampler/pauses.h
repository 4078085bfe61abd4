/* Pauses of the clocks that threads inherit. */
#ifndef LAYERSCOPE_SAMPLER_PAUSES_H
#define LAYERSCOPE_SAMPLER_PAUSES_H

#include <stdint.h>

void sm_pauses_begin(void);
void sm_pauses_end(void);
uint64_t sm_pauses_end_ns(void); /* ~0: there is none */

#endif
