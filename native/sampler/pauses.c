/* Clocks that threads inherit from each other, those of copied_stacks.c and kernel_time.c, keep the period that they
 * were opened with: the kernel changes that of the first thread alone. So that they do not keep step with what the
 * program repeats, they are paused now and then, each time for another while. What is left of their periods is kept, so
 * every tick still stands for a period of the time in which they were not paused. */
#define _GNU_SOURCE
#include "pauses.h"

#include "chance.h"
#include "copied_stacks.h"
#include "kernel_time.h"
#include "recording.h"

#define LONGEST_MS 8u
/* Those that look into the kernel are in every process, and their first threads get another period: less often. */
#define OF_KERNEL 4u
/* Each event of each thread is paused by itself, and all that may take 1/100 of a CPU, and 1/1000 for
 * those that look into the kernel. */
#define COST_SHARE 100u
#define KERNEL_COST_SHARE 1000u

static uint64_t until_ns; /* they are paused until then; 0: they are not */
static uint64_t next_ns, next_kernel_ns;
static int is_kernel_paused;

static uint64_t by_chance(uint64_t below) {
    static uint64_t state = 1;
    return sm_chance(&state, below);
}

/* CPU time that it takes to begin a pause. */
static uint64_t cost_of(void (*pause)(int is_on)) {
    uint64_t before_ns = sm_clock(CLOCK_THREAD_CPUTIME_ID);
    pause(1);
    return sm_clock(CLOCK_THREAD_CPUTIME_ID) - before_ns;
}

/* Every round, when switches have been taken. */
void sm_pauses_begin(void) {
    if (until_ns || sm.now_ns < next_ns || by_chance(2))
        return;
    uint64_t used_ns = cost_of(sm_copies_pause);
    is_kernel_paused = sm.now_ns >= next_kernel_ns && !by_chance(OF_KERNEL);
    if (is_kernel_paused)
        next_kernel_ns = sm.now_ns + 2 * KERNEL_COST_SHARE * cost_of(sm_kernel_pause);
    until_ns = sm_clock(CLOCK_MONOTONIC) + (1 + by_chance(LONGEST_MS)) * 1000000ull;
    next_ns = until_ns + 2 * COST_SHARE * used_ns;
}

/* When it is time, and switches have been taken. */
void sm_pauses_end(void) {
    if (!until_ns || sm.now_ns < until_ns)
        return;
    sm_copies_pause(0);
    if (is_kernel_paused)
        sm_kernel_pause(0);
    until_ns = 0;
}

uint64_t sm_pauses_end_ns(void) { return until_ns ? until_ns : ~0ull; }
