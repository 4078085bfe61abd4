/* What all files of the sampler know of the recording. The sampler is the process beside the program that knows its
 * threads, has them sampled, and writes `raw/stacks` (format.h). It has one thread; times are CLOCK_MONOTONIC ns. */
#ifndef LAYERSCOPE_SAMPLER_RECORDING_H
#define LAYERSCOPE_SAMPLER_RECORDING_H

#include "format.h"

#include <time.h>

/* How often areas and rings are emptied and waits looked at. */
#define SM_TICK_NS 10000000ull
/* Accounts, pools of waits, quality and how far everything is written. A wait that is longer is told in parts. */
#define SM_SECOND_NS 1000000000ull

typedef struct {
    uint32_t hz;
    uint64_t period_ns;
    uint64_t now_ns;      /* when this round began */
    uint64_t start_ns;
    uint64_t began_ns;    /* when we began */
    int32_t main_pid;
    int is_outside; /* it ran before the recording began: what it had used by then is not told */
    int is_alone;   /* its children are left out */
    uint32_t generation;  /* how many samplers of this recording were there before us */
    int has_switches;     /* waits are exact */
    int has_wakers;       /* of some, who ended them is known */
    int has_kernel;       /* what the kernel does is known */
    int is_over;
    lt_quality quality;
    uint64_t program_ns;  /* CPU time of all threads that are sampled, as far as it was read */
    uint64_t handler_ns;  /* of it, that of the handlers of samples */
    uint64_t switches;
    uint64_t lost_records; /* of the kernel's rings */
    uint64_t torn;         /* samples of which not all frames of Python are there: outside_frames.c */
    uint64_t lost_copies;  /* samples that did not fit into the rings of copied_stacks.c */
} sm_recording;
extern sm_recording sm;

static inline uint64_t sm_clock(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

#endif
