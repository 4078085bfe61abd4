/* A process has handed its area of samples over: from then on its threads are sampled, and those of the children that
 * it had forked. */
#define _GNU_SOURCE
#include "handover.h"

#include "areas.h"
#include "copied_stacks.h"
#include "joined_stacks.h"
#include "lifecycle.h"
#include "output.h"
#include "process_accounts.h"
#include "recording.h"
#include "scan.h"
#include "signalled.h"

/* A child is its parent once more until it becomes another program: so is its handler. */
void sm_inherit(sm_process *p, const sm_process *parent) {
    p->is_sampled = 1;
    p->has_events = parent->has_events;
    p->uses_timers = parent->uses_timers;
    p->has_handler = parent->has_handler;
    p->is_signalled = parent->is_signalled;
    p->python = parent->python;
    p->python_eval = parent->python_eval;
    p->python_runtime = parent->python_runtime;
    p->outside = parent->outside;
    p->outside.told = NULL;
    p->copied.is_read_later = parent->outside.is_read;
}

/* A process has handed its area over: what it had forked before that was told. */
static void follow_forks(const sm_process *parent) {
    for (sm_process *p = parent->has_events || parent->uses_timers ? sm_processes() : NULL; p; p = p->next) {
        if (!sm_is_fork(p) || p->ppid != parent->pid || p->start_ns < parent->start_ns || p->end_ns || p->is_foreign
            || p->area || p->has_events || p->uses_timers)
            continue;
        sm_copies_stop(p);
        sm_inherit(p, parent);
        sm_signalled_begin_process(p);
        follow_forks(p);
    }
}

static sm_process *owner_of(const lf_message *m) {
    sm_process *p = sm_process_at(m->pid);
    if (p && p->area)
        sm_exec(p, sm.now_ns); /* another program by now, and nobody has told */
    if (!p) {
        sm_thread *t = sm_thread_at(m->pid, sm.now_ns);
        if (t && t->process->pid == m->pid && !t->process->area)
            return t->process; /* it has ended meanwhile */
        sm_scan(m->pid, 0, sm.now_ns);
    }
    return sm_process_at(m->pid);
}

/* From now on it is sampled, by what its area says. */
static void begin(sm_process *p, const sm_area_facts *facts) {
    int was_sampled = p->is_sampled && !p->copied.is_on;
    sm_copies_stop(p);
    p->copied.has_tried = 0;
    p->is_sampled = 1;
    p->outside.is_read = 0;
    p->python = facts->python;
    p->python_eval = facts->python_eval;
    p->python_runtime = facts->python_runtime;
    p->uses_timers = facts->uses_timers;
    p->has_handler = facts->has_handler;
    p->is_signalled = facts->is_signalled;
    p->is_told = 0;
    if (!p->end_ns && !was_sampled)
        sm_signalled_begin_process(p);
    sm_follow_again(p);
    follow_forks(p);
    sm_space(p, 0); /* as long as it is there */
}

void sm_hand_over(const lf_message *m, int fd) {
    sm_area_facts facts;
    sm_area *area = sm_area_open(m, fd, &facts);
    if (!area)
        return;
    sm_process *p = owner_of(m);
    int is_elsewhere = p && (p->is_foreign || facts.pid != m->pid);
    if (is_elsewhere)
        sm_problem("other_pid_namespace", m->pid, "stacks of that process", "record inside of that namespace",
                   "process %d is in a pid namespace of its own", m->pid);
    if (!p || is_elsewhere) {
        sm_area_free(area);
        return;
    }
    sm_area_belongs_to(area, p);
    begin(p, &facts);
}
