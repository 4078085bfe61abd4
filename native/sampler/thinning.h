/* How many samples are written. */
#ifndef LAYERSCOPE_SAMPLER_THINNING_H
#define LAYERSCOPE_SAMPLER_THINNING_H

#include "threads.h"

lt_sample sm_sample(const sm_thread *thread, uint64_t at_ns, uint32_t kind, uint64_t weight_ns); /* for sm_tell */
void sm_tell(sm_thread *thread, const lt_sample *row);
void sm_tell_held(sm_thread *thread);
uint64_t sm_held_oldest(void);
uint32_t sm_thinning_level(void);
void sm_thinning_each_second(void);

#endif
