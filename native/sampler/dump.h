/* What every thread of a process does now, as lines of JSON. */
#ifndef LAYERSCOPE_SAMPLER_DUMP_H
#define LAYERSCOPE_SAMPLER_DUMP_H

#include <stdint.h>

void sm_dump(int32_t pid);

#endif
