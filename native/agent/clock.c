/* The clocks of this machine, read together. */
#define _GNU_SOURCE
#include "agent.h"

/* One moment on three clocks, the best of a few tries: tsc, CLOCK_MONOTONIC, CLOCK_REALTIME, and half
 * the time the reading took, in ns. */
LS_EXPORT void ls_clock_reading(int64_t out[4]) {
    out[3] = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        struct timespec real;
        uint64_t before = ls_monotonic_ns();
        uint64_t tsc = __builtin_ia32_rdtsc();
        clock_gettime(CLOCK_REALTIME, &real);
        uint64_t after = ls_monotonic_ns();
        int64_t error = (int64_t)(after - before + 1) / 2;
        if (error >= out[3])
            continue;
        out[0] = (int64_t)tsc;
        out[1] = (int64_t)(before + (after - before) / 2);
        out[2] = real.tv_sec * 1000000000 + real.tv_nsec;
        out[3] = error;
    }
}
