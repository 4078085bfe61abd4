/* What recorder.c writes and compare.c reads: this, `frames` frames, `bytes` bytes of the stack from RSP on. */
#ifndef SAMPLES_OF_TESTS_H
#define SAMPLES_OF_TESTS_H

#include "samples.h"

#define FRAMES_MOST 512
#define STACK_MOST (192u << 10)

typedef struct {
    uint64_t address; /* of the leaf and of what a signal interrupted as it is, else less one */
    uint64_t sp;      /* when it is gone on in */
} oracle_frame;

typedef struct {
    uint64_t registers[LF_REGISTERS];
    uint64_t frames, bytes;
} oracle_sample;

#endif
