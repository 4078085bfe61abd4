/* Samples of page faults cost as others do, and a program that touches much new memory makes hundreds of thousands of
 * faults a second. So each thread has about MOST_A_SECOND samples a second of each kind: when there are more, one
 * stands for twice as many faults as before, and when there are few, for half as many.
 *
 * An event of the thread itself gets another period. Those that threads inherit have one period for all, so samples are
 * left out instead. */
#define _GNU_SOURCE
#include "fault_rate.h"

#include "events.h"
#include "recording.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>

#define MOST_A_SECOND 25u
#define FEW_A_SECOND (MOST_A_SECOND / 4)
#define DOUBLED_MOST 16u

/* A sample that was made before the change has the period that was before it. */
static void change(sm_thread *t, int event, uint32_t doubled) {
    sm_fault_rate *r = &t->faults[event];
    uint64_t period = sm_events_period(event) << doubled;
    r->before = r->doubled;
    r->doubled = doubled;
    r->changed_ns = sm_clock(CLOCK_MONOTONIC);
    r->in_second = 0;
    r->is_first = t->events[event] >= 0 && !ioctl(t->events[event], PERF_EVENT_IOC_PERIOD, &period);
}

uint32_t sm_fault_weight(sm_thread *t, int event, uint64_t at_ns, int is_copied) {
    sm_fault_rate *r = &t->faults[event];
    int is_before = at_ns < r->changed_ns;
    uint32_t doubled = is_before ? r->before : r->doubled;
    if (is_copied && ++r->passed < 1u << doubled)
        return 0;
    r->passed = 0;
    /* The next fault after a change makes a sample at once, whatever had been counted: of a period half, on average. */
    if (!is_before && r->is_first) {
        r->is_first = 0;
        return (uint32_t)sm_events_period(event) << r->before >> 1;
    }
    /* What was made before the last change must not lead to another one: it would be weighed by that one. */
    if (!is_before && ++r->in_second > MOST_A_SECOND && r->doubled < DOUBLED_MOST)
        change(t, event, r->doubled + 1);
    return (uint32_t)sm_events_period(event) << doubled;
}

void sm_fault_rate_each_second(void) {
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (sm_thread *t = p->threads; t; t = t->next)
            for (int event = SM_MINOR; event < SM_EVENTS; event++) {
                sm_fault_rate *r = &t->faults[event];
                int is_settled = r->changed_ns + SM_SECOND_NS < sm.now_ns;
                if (r->doubled && is_settled && r->in_second < FEW_A_SECOND)
                    change(t, event, r->doubled - 1);
                r->in_second = 0;
            }
}
