/* One copy of the registers and the stack of a thread that runs, made by the kernel: the thread is not stopped. */
#ifndef LAYERSCOPE_SAMPLER_ONE_COPY_H
#define LAYERSCOPE_SAMPLER_ONE_COPY_H

#include "../samples.h"

#include <stddef.h>

typedef struct {
    uint64_t registers[LF_REGISTERS];
    size_t bytes; /* of `stack`, which begins at registers[LF_RSP] */
    uint8_t stack[32768] __attribute__((aligned(16)));
} sm_one_copy;

/* 0, or minus an errno; -EAGAIN: it did not run outside of the kernel within `most_ms`. */
int sm_copy_once(int32_t tid, int most_ms, sm_one_copy *into);

#endif
