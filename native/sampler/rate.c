/* The rate of samples while the program runs: as the session asks for it to keep its budget, and a little more or less, so
 * that samples do not keep step with the program. For the budget the session must know the CPU time of the program, and
 * of the handlers in it.
 *
 * All clocks are changed at one moment and begin a new period at it; what they have counted stays, so sums of CPU time
 * are as exact as without a change. Timers, which the program sets itself, keep their period. */
#define _GNU_SOURCE
#include "rate.h"

#include "copied_stacks.h"
#include "cpu_time.h"
#include "events.h"
#include "kernel_records.h"
#include "kernel_time.h"
#include "recording.h"
#include "session.h"
#include "threads.h"

#define PERIODS 20u /* of each length */
#define FEW_THREADS 32u

static int is_asked_for; /* the session wants to know */

/* Its clock begins anew. A tick may come a little late: then it is not missing yet. */
static void note_due(sm_thread *t) {
    uint64_t from_ns = t->sampled.changed_ns > t->time.told_ns ? t->sampled.changed_ns : t->time.told_ns;
    uint64_t now_ns = t->time.is_counted ? sm_cpu_ns_at(t, sm_clock(CLOCK_MONOTONIC)) : 0;
    uint64_t late_ns = sm.period_before_ns / 4;
    t->sampled.changed_ns = now_ns;
    if (now_ns > from_ns + late_ns)
        t->sampled.due_before += (uint32_t)((now_ns - from_ns - late_ns) / sm.period_before_ns);
}

/* All clocks tick in this period from now on. */
static void begin_period(uint64_t period_ns) {
    sm_records_take();
    sm.period_before_ns = sm.period_ns;
    sm.period_ns = period_ns;
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (sm_thread *t = p->threads; t; t = t->next) {
            note_due(t);
            sm_events_new_rate(t);
        }
    sm_copies_new_rate();
    sm_kernel_new_rate();
    sm.rate_since_ns = sm_clock(CLOCK_MONOTONIC);
}

void sm_rate_set(uint32_t hz) {
    is_asked_for = 1;
    if (hz == sm.hz)
        return;
    sm.hz = hz;
    begin_period(SM_SECOND_NS / hz);
}

/* A program whose steps last a period, or half of one, would be seen at the same places of them again and again. So the
 * rate is another one now and then, by chance, up to a quarter more or less; the next one makes up for it. */
static uint64_t another_period(void) {
    static uint64_t state = 1, thousandths = 1000;
    static int is_second;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    thousandths = is_second ? 2000 - thousandths : 750 + (state >> 33) % 500;
    is_second = !is_second;
    return SM_SECOND_NS * 1000 / (sm.hz * thousandths);
}

/* Copies are made by clocks that would have to be opened anew. */
static int has_copies(void) {
    for (sm_process *p = sm_processes(); p; p = p->next)
        if (p->copied.is_on && !p->end_ns)
            return 1;
    return 0;
}

/* Each change interrupts the threads that run: less often where there are many, and after some periods of a low rate. */
void sm_rate_tick(void) {
    static uint64_t next_ns;
    uint64_t threads = 0;
    if (sm.now_ns < next_ns || has_copies())
        return;
    for (sm_process *p = sm_processes(); p; p = p->next)
        threads += p->living;
    next_ns = sm.now_ns + PERIODS * SM_SECOND_NS / sm.hz * (1 + threads / FEW_THREADS);
    begin_period(another_period());
}

void sm_rate_each_second(void) {
    if (is_asked_for)
        sm_session_tell_used(sm.program_ns, sm.handler_ns);
}
