/* Threads and processes that are found, become other programs, and end, with all that is kept of them. */
#define _GNU_SOURCE
#include "lifecycle.h"

#include "accounts.h"
#include "areas.h"
#include "copied_stacks.h"
#include "cpu_time.h"
#include "events.h"
#include "first_ticks.h"
#include "jit_code.h"
#include "joined_stacks.h"
#include "outside_frames.h"
#include "process_accounts.h"
#include "procfs.h"
#include "python_function.h"
#include "recent_stacks.h"
#include "recording.h"
#include "samples.h"
#include "signalled.h"
#include "thinning.h"
#include "wait_stacks.h"
#include "waits.h"

/* One that runs already: what it has used until now has no stack. */
sm_thread *sm_thread_found(sm_process *p, int32_t tid, uint64_t at_ns, const char *name) {
    sm_thread *t = sm_thread_begin(p, tid, at_ns, name);
    uint64_t none;
    if (t && sm.is_outside)
        sm_account_base(t);
    if (t && p->has_events)
        sm_signalled_begin(t);
    if (t && p->is_sampled)
        sm_rest(t, sm.now_ns, sm_ran_ns(p->pid, tid, &none, &none));
    return t;
}

static void end_process(sm_process *p, uint64_t at_ns) {
    if (p->end_ns)
        return;
    for (sm_thread *t = p->threads; t; t = t->next)
        sm_thread_end(t, at_ns);
    p->end_ns = at_ns;
    p->is_told = 0;
    sm_copies_stop(p);
}

void sm_thread_end(sm_thread *t, uint64_t at_ns) {
    if (t->end_ns)
        return;
    t->end_ns = at_ns;
    t->is_told = 0;
    sm_signalled_end(t);
    sm_switched_last(t, at_ns);
    if (!--t->process->living) {
        sm_process_account_end(t->process);
        end_process(t->process, at_ns);
    }
}

/* A new program in the process: for the reader it is another process. */
void sm_exec(sm_process *old, uint64_t at_ns) {
    int32_t pid = old->pid, ppid = old->ppid;
    int is_followed = old->is_followed;
    const sm_thread *before = sm_thread_at(pid, at_ns);
    int is_known = before && before->process == old && before->time.is_counted && !before->end_ns;
    end_process(old, at_ns);
    sm_process_account_finish(old, 1);
    old->is_followed_by_exec = 1;
    sm_process *p = sm_process_begin(pid, ppid, at_ns);
    sm_thread *t = p ? sm_thread_begin(p, pid, at_ns, NULL) : NULL;
    uint64_t none;
    if (p) {
        p->is_followed = is_followed;
        sm_process_account_begin(p);
    }
    if (t) {
        t->wait.in_ns = at_ns;
        /* What is read now has what it ran since, where we are late. */
        t->time.before_ns = is_known ? before->time.copied_ns + before->time.ran_ns : sm_ran_ns(pid, pid, &none, &none);
        t->time.told_ns = t->time.copied_ns = t->time.before_ns;
        t->time.is_counted = is_known;
    }
}

/* --- The end of them --- */

static void free_process(sm_process *p) {
    if (p->area)
        sm_area_free(p->area);
    sm_space_forget(p);
    sm_codes_forget(p);
    sm_made_forget(p);
    sm_python_forget(p);
    sm_outside_forget(p);
    sm_process_free(p);
}

/* What is left of a thread is told when nothing more can come of it. */
static void finish_thread(sm_thread *t) {
    if (t->process->is_sampled) {
        sm_account(t, 1);
        sm_waits_end(t);
        sm_rest(t, t->end_ns, t->account.row.run_ns);
        sm_tell_held(t);
    }
    sm_events_close(t);
    sm_first_ticks_close(t);
    sm_copies_end(t);
    sm_look_end(t);
    sm_recent_free(t);
    sm_thread_tell(t);
    sm_thread_free(t);
}

void sm_reap(void) {
    for (sm_process *p = sm_processes(), *next_process; p; p = next_process) {
        next_process = p->next;
        for (sm_thread *t = p->threads, *next; t; t = next) {
            next = t->next;
            if (t->end_ns && t->end_ns + SM_TICK_NS < sm.now_ns)
                finish_thread(t);
        }
        if (p->end_ns && !p->threads && (!p->area || !sm_area_is_behind(p->area))) {
            sm_process_tell(p);
            sm_process_account_finish(p, p->is_followed_by_exec);
            free_process(p);
        }
    }
}
