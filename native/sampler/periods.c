/* A program whose steps last a period, or half of one, would be seen at the same places of them again and again. So the
 * clock of a thread gets another period, by chance, after each few samples. Such a change begins a period anew, so it is
 * made soon after a sample, when no tick can be missing; what the thread has used until then is kept for the next sample
 * (samples.c). What a clock has counted stays: sums of CPU time are as exact as without a change.
 *
 * Clocks that threads inherit are paused instead (pauses.c). */
#define _GNU_SOURCE
#include "periods.h"

#include "chance.h"
#include "cpu_time.h"
#include "events.h"
#include "recording.h"

#define SAMPLES 3u /* of each period, at least */

/* CPU time since what is told of the thread, not more than `most_ns`. */
static uint64_t untold_ns(const sm_thread *t, uint64_t at_ns, uint64_t most_ns) {
    if (!t->time.is_counted)
        return most_ns;
    uint64_t cpu_ns = sm_cpu_ns_at(t, at_ns), untold = cpu_ns > t->time.told_ns ? cpu_ns - t->time.told_ns : 0;
    return untold < most_ns ? untold : most_ns;
}

/* Its clock ticks in this period from now on. Of the time since its last sample up to `most_ns` is not of that. */
void sm_period_begin(sm_thread *t, uint64_t now_ns, uint64_t most_ns, uint64_t period_ns) {
    t->sampled.skipped_ns = untold_ns(t, now_ns, most_ns);
    sm_events_set_period(t, period_ns);
}

/* From 7/16 of the period to 23/16: until a change about a fourth of one has passed, which makes that up. Changes are made
 * in our rounds, which are regular: so all of a period can be added to them. */
static uint64_t another_period(void) {
    static uint64_t state = 1;
    return sm.period_ns / 16 * 7 + sm_chance(&state, sm.period_ns);
}

/* After this sample of its own clock has been told. */
void sm_period_vary(sm_thread *t, uint64_t sample_ns) {
    uint64_t now_ns = sm_clock(CLOCK_MONOTONIC), age_ns = now_ns > sample_ns ? now_ns - sample_ns : 0;
    int is_due = ++t->sampled.of_period >= SAMPLES && 2 * age_ns < t->sampled.period_ns;
    if (!is_due && !t->sampled.has_first_period)
        return;
    sm_period_begin(t, now_ns, age_ns, another_period());
}
