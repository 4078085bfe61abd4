/* What every thread of a process does now, as lines of JSON. */
#ifndef LAYERSCOPE_SAMPLER_DUMP_H
#define LAYERSCOPE_SAMPLER_DUMP_H

#include <stdint.h>

/* `is_native`: native functions of threads that run Python too, for which the kernel copies their stack. */
void sm_dump(int32_t pid, int is_native);

#endif
