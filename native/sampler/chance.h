/* Numbers by chance: what keeps no step with the program. */
#ifndef LAYERSCOPE_SAMPLER_CHANCE_H
#define LAYERSCOPE_SAMPLER_CHANCE_H

#include <stdint.h>

/* From 0 up to, not including, `below`; each caller has a `state` of its own. A congruential generator with the
 * constants of Knuth's MMIX. */
static inline uint64_t sm_chance(uint64_t *state, uint64_t below) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (*state >> 16) % below;
}

#endif
