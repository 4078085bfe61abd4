/* The first ticks of a thread in the kernel. The clock of kernel_time.c that it inherits ticks after a whole period: of a
 * thread that is over by then nothing that it does there would have functions. So it has a second one, which ticks sooner
 * until its first period is over, as its clock outside of the kernel does (events.c).
 *
 * It has an event for each CPU, as they write into the rings of these. */
#define _GNU_SOURCE
#include "first_ticks.h"

#include "events.h"
#include "perf_event.h"
#include "recording.h"
#include "rings.h"

#include <stdlib.h>
#include <unistd.h>

/* In a second: a program may begin thousands of threads in it, on a machine with many CPUs. */
#define OPENED_MOST 1000u

static struct {
    uint64_t second_ns;
    uint32_t opened;
} in_second;
static uint32_t open_now; /* threads that have such a clock */

static int may_open(uint32_t events) {
    if (sm.now_ns >= in_second.second_ns + SM_SECOND_NS) {
        in_second.second_ns = sm.now_ns;
        in_second.opened = 0;
    }
    if (in_second.opened + events > OPENED_MOST)
        return 0;
    in_second.opened += events;
    return 1;
}

void sm_first_ticks_open(sm_thread *t) {
    uint32_t count = sm_cpus();
    uint64_t period_ns = sm_events_first_period();
    if (!sm.has_kernel || !t->since_birth || t->first_ticks || period_ns == sm.period_ns || !may_open(count))
        return;
    t->first_ticks = malloc(count * sizeof *t->first_ticks);
    if (!t->first_ticks)
        return;
    open_now++;
    for (uint32_t i = 0; i < count; i++)
        t->first_ticks[i] = sm_rings_add_clock(t->tid, i, period_ns);
}

void sm_first_ticks_close(sm_thread *t) {
    if (!t->first_ticks)
        return;
    for (uint32_t i = 0; i < sm_cpus(); i++)
        if (t->first_ticks[i] >= 0)
            close(t->first_ticks[i]);
    free(t->first_ticks);
    t->first_ticks = NULL;
    open_now--;
}

/* Those whose first period is over have no such clock any more. */
void sm_first_ticks_tick(void) {
    for (sm_process *p = open_now ? sm_processes() : NULL; p; p = p->next)
        for (sm_thread *t = p->threads; t; t = t->next)
            if (t->first_ticks && (t->sampled.count || t->start_ns + sm.period_ns <= sm.now_ns))
                sm_first_ticks_close(t);
}
