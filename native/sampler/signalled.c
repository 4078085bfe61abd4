/* Which threads may be sent the signal of samples: those that have a stack for signals. On a thread without one the kernel
 * writes what a signal needs where the stack pointer points to, and generated code may have anything in it: matrix
 * kernels point it into the heap. So a thread gets events only once the agent has put it into the table of its process
 * (native/agent/signal_stack.c), or, in a forked child, where the thread that forked it was in that of its own; a child
 * has the stack for signals of that one. The kernel copies the stacks of all others (copied_stacks.c). */
#define _GNU_SOURCE
#include "signalled.h"

#include "areas.h"
#include "copied_stacks.h"
#include "cpu_time.h"
#include "events.h"
#include "first_ticks.h"
#include "output.h"
#include "process_accounts.h"
#include "procfs.h"
#include "recording.h"
#include "samples.h"

/* As the table of its own process says. */
static uint64_t registered_ns(sm_thread *t) {
    const sm_area *area = t->process->area;
    uint32_t puts = area ? sm_area_puts(area) : 0;
    if (!area || puts == t->signal.seen_puts)
        return 0;
    t->signal.seen_puts = puts;
    return sm_area_signalled(area, t->tid);
}

/* The first thread of a forked child has the stack for signals of the thread that forked it. Whether that one had one
 * by then may be learnt later than that there is a child. */
static uint64_t inherited_ns(const sm_thread *t) {
    const sm_process *child = t->process;
    if (!sm_is_fork(child) || t->tid != child->pid)
        return 0;
    const sm_thread *by = sm_thread_at(child->forked_by, child->start_ns);
    int is_inherited = by && by->signal.since_ns && by->signal.since_ns <= child->start_ns;
    return is_inherited ? child->start_ns : 0;
}

static uint64_t since_ns(sm_thread *t) {
    uint64_t at_ns = registered_ns(t);
    return at_ns ? at_ns : inherited_ns(t);
}

/* A thread of a process that answers to the signal: its events, if it may be sent it. */
void sm_signalled_begin(sm_thread *t) {
    t->signal.since_ns = t->signal.since_ns ? t->signal.since_ns : since_ns(t);
    if (t->signal.since_ns)
        sm_events_open(t);
}

/* A process has handed its area over: what its threads have used until now has no stack.
 *
 * Where there are no frames of Python to be had, which only the handler can read, nobody is sent any:
 * copied_stacks.c. */
void sm_signalled_begin_process(sm_process *p) {
    p->has_events = !p->uses_timers && !p->has_handler && p->is_signalled;
    for (sm_thread *t = p->threads; t; t = t->next) {
        uint64_t none;
        if (t->end_ns)
            continue;
        if (p->has_events)
            sm_signalled_begin(t);
        uint64_t base_ns = t->time.base_ns ? t->time.base_ns : sm_ran_ns(p->pid, t->tid, &none, &none);
        sm_count_from(t, base_ns);
        sm_rest(t, sm.now_ns, base_ns);
    }
}

/* Whoever has the number of this thread next has no stack for signals yet. */
void sm_signalled_end(const sm_thread *t) {
    if (t->process->area)
        sm_area_forget(t->process->area, t->tid);
}

/* What it has used until now has no stack, or one that the kernel has copied. For what a new one has used its first
 * sample stands, too. */
static void begin_late(sm_thread *t) {
    uint64_t none;
    sm_copies_end(t);
    sm_events_open(t);
    sm_first_ticks_open(t);
    t->time.base_ns = sm_ran_ns(t->process->pid, t->tid, &none, &none);
    t->sampled.lost_before = sm_lost_samples(t);
    if (!t->since_birth || t->time.base_ns >= sm.period_ns)
        sm_rest(t, sm.now_ns, t->time.base_ns);
}

/* Its samples do not come any more. */
static void stop(sm_process *p) {
    p->has_events = 0;
    for (sm_thread *t = p->threads; t; t = t->next) {
        sm_events_close(t);
        sm_copies_end(t);
    }
}

void sm_signalled_leave_alone(sm_process *p) {
    p->is_left_alone = 1;
    sm_problem("sigurg_taken", p->pid, "frames of Python on a CPU of that process from then on",
               "let the program leave the signal SIGURG alone",
               "process %d handles the signal SIGURG itself, by which samples are made", p->pid);
    stop(p);
}

/* Those that say that they have the signal for themselves get no more of ours. */
void sm_signalled_look(void) {
    for (sm_process *p = sm_processes(); p; p = p->next)
        if (p->area && !p->is_left_alone && sm_area_has_handler(p->area))
            sm_signalled_leave_alone(p);
}

/* Those that have been put into their tables since. Whether there are threads that have just begun and are in none. */
int sm_signalled_tick(void) {
    int are_new = 0;
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (sm_thread *t = p->has_events ? p->threads : NULL; t; t = t->next) {
            if (t->signal.since_ns || t->end_ns)
                continue;
            t->signal.since_ns = since_ns(t);
            if (t->signal.since_ns)
                begin_late(t);
            are_new |= !t->signal.since_ns && sm.now_ns < t->start_ns + SM_TICK_NS;
        }
    return are_new;
}
