/* The rate of samples while the program runs, as the session asks for it to keep its budget, and what the session must
 * know for that: the CPU time of the program, and of the handlers in it.
 *
 * All clocks are changed at one moment and begin a new period at it; what they have counted stays, so sums of CPU time
 * are as exact as without a change. Timers, which the program sets itself, keep their period. */
#define _GNU_SOURCE
#include "rate.h"

#include "copied_stacks.h"
#include "events.h"
#include "kernel_records.h"
#include "kernel_time.h"
#include "recording.h"
#include "session.h"
#include "threads.h"

static int is_asked_for; /* the session wants to know */

void sm_rate_set(uint32_t hz) {
    is_asked_for = 1;
    if (hz == sm.hz)
        return;
    sm_records_take();
    sm.period_before_ns = sm.period_ns;
    sm.hz = hz;
    sm.period_ns = SM_SECOND_NS / hz;
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (sm_thread *t = p->threads; t; t = t->next)
            sm_events_new_rate(t);
    sm_copies_new_rate();
    sm_kernel_new_rate();
    sm.rate_since_ns = sm_clock(CLOCK_MONOTONIC);
}

void sm_rate_each_second(void) {
    if (is_asked_for)
        sm_session_tell_used(sm.program_ns, sm.handler_ns);
}
