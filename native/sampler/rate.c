/* The rate of samples while the program runs. The session asks for another one to keep its budget, for which it must know
 * the CPU time of the program, and of the handlers in it. Timers, which the program sets itself, keep their period. */
#define _GNU_SOURCE
#include "rate.h"

#include "copied_stacks.h"
#include "kernel_records.h"
#include "kernel_time.h"
#include "periods.h"
#include "recording.h"
#include "session.h"

static int is_asked_for; /* the session wants to know */

void sm_rate_set(uint32_t hz) {
    is_asked_for = 1;
    if (hz == sm.hz)
        return;
    sm_records_take();
    sm.hz = hz;
    sm.period_ns = SM_SECOND_NS / hz;
    uint64_t now_ns = sm_clock(CLOCK_MONOTONIC);
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (sm_thread *t = p->threads; t; t = t->next)
            sm_period_begin(t, now_ns, t->sampled.period_ns, sm.period_ns);
    sm_copies_new_rate();
    sm_kernel_new_rate();
}

void sm_rate_each_second(void) {
    if (is_asked_for)
        sm_session_tell_used(sm.program_ns, sm.handler_ns);
}
