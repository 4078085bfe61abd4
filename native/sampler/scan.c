/* Processes and threads that run already: found in /proc, and followed from then on. */
#define _GNU_SOURCE
#include "scan.h"

#include "lifecycle.h"
#include "output.h"
#include "process_accounts.h"
#include "procfs.h"
#include "recording.h"
#include "rings.h"
#include "waits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long one that is refused is tried again, and when that is said. */
#define PATIENCE_NS 10000000000ull
#define SAID_NS 200000000ull

/* Its end has been told, or is about to be: flag PF_EXITING of field 9 of /proc/PID/task/TID/stat. */
static int is_leaving(int32_t pid, int32_t tid) {
    char text[256];
    unsigned flags = 0;
    const char *at = sm_stat(text, sizeof text, pid, tid);
    return !at || sscanf(at, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || flags & 4;
}

static void scan_thread(int32_t pid, int32_t tid, void *of) {
    sm_process *p = of;
    sm_thread *t = sm_thread_at(tid, sm.now_ns);
    char name[32] = "";
    if (t && !t->end_ns && t->process == p) {
        sm_waits_found(t);
        return;
    }
    int bytes = sm_proc(name, sizeof name, "/proc/%d/task/%d/comm", pid, tid);
    uint64_t at_ns = tid == pid ? p->start_ns : sm.generation ? sm_started_ns(pid, tid) : sm.now_ns;
    name[strcspn(name, "\n")] = 0;
    if (bytes < 0 || !at_ns || is_leaving(pid, tid))
        return;
    t = sm_thread_found(p, tid, at_ns, name);
    if (t)
        sm_waits_found(t);
}

static void scan_children(int32_t pid, int32_t tid, void *of) {
    char text[4096];
    (void)of;
    if (sm.is_alone || sm_proc(text, sizeof text, "/proc/%d/task/%d/children", pid, tid) <= 0)
        return;
    for (char *at = text, *end; *at; at = end) {
        long child = strtol(at, &end, 10);
        if (end == at)
            break;
        if (child > 0 && child != getppid() && !sm_process_at((int32_t)child)) /* not who started us */
            sm_scan((int32_t)child, pid, sm.now_ns);
    }
}

static void scan_threads(sm_process *p) {
    sm_each_task(p->pid, scan_thread, p);
}

static void follow_thread(int32_t pid, int32_t tid, void *has_failed) {
    (void)pid;
    *(int *)has_failed |= sm_rings_add(tid);
}

/* The threads that are there are followed first, so that none begins unseen between the two. */
void sm_scan(int32_t pid, int32_t ppid, uint64_t at_ns) {
    int has_failed = 0;
    if (!sm_each_task(pid, follow_thread, &has_failed))
        return;
    sm_process *p = sm_process_at(pid);
    int is_new = !p;
    if (is_new)
        p = sm_process_begin(pid, ppid, sm.generation && pid != sm.main_pid ? sm_started_ns(pid, pid) : at_ns);
    if (!p)
        return;
    if (is_new) {
        sm_process_account_begin(p);
        sm_process_account_found(p);
    }
    p->is_followed = !has_failed;
    scan_threads(p);
    sm_each_task(pid, scan_children, NULL);
}

static int has_ended(const sm_thread *t) {
    char text[256];
    const char *at = sm_stat(text, sizeof text, t->process->pid, t->tid);
    return at ? !!strchr("ZX", at[1]) : errno == ENOENT || errno == ESRCH;
}

/* Where nobody tells of threads they are looked for; where records were lost, those that they told of. */
void sm_sweep(int is_lost) {
    for (sm_process *p = sm_processes(); p; p = p->next) {
        if (p->end_ns)
            continue;
        if (p->is_sampled && (!sm.has_switches || is_lost))
            scan_threads(p);
        if (is_lost)
            sm_each_task(p->pid, scan_children, NULL);
        for (sm_thread *t = p->threads; t; t = t->next)
            if (!t->end_ns && has_ended(t))
                sm_thread_end(t, sm.now_ns);
    }
}

/* --- Following them --- */

static void follow_task(int32_t pid, int32_t tid, void *failed) {
    (void)pid;
    int now = sm_rings_add(tid);
    *(int *)failed = now && now != -ESRCH ? now : *(int *)failed;
}

/* 0, or minus an errno: it is not followed yet. */
static int follow_again(sm_process *p) {
    int failed = 0;
    if (p->is_followed || p->end_ns)
        return 0;
    p->is_followed = sm_each_task(p->pid, follow_task, &failed) > 0 && !failed;
    return failed;
}

static void say_not_followed(sm_process *p, int failed) {
    if (failed && !p->is_refusal_said++)
        sm_problem("no_switches", p->pid,
                   "exact durations of waits, threads that live shorter than a second, and stacks of native threads",
                   "allow perf_event_open: sysctl kernel.perf_event_paranoid=2, docker run --cap-add PERFMON",
                   "the kernel does not tell when threads of process %d leave a CPU: %s", p->pid, strerror(-failed));
}

/* A process that was another user's when it began, or that nobody told of, may be followed now. */
void sm_follow_again(sm_process *p) {
    say_not_followed(p, follow_again(p));
}

/* One that was another user's when it was found may give its rights up: it is tried again for a while, less and less
 * often. Whether one is followed now. */
int sm_follow_tick(void) {
    int found = 0;
    for (sm_process *p = sm_processes(); p; p = p->next) {
        uint64_t since_ns = sm.now_ns - p->asked_from_ns;
        if (p->is_followed || p->end_ns || since_ns > PATIENCE_NS || !sm_may_ask(p))
            continue;
        int failed = follow_again(p);
        if (since_ns > SAID_NS)
            say_not_followed(p, failed);
        if (p->is_followed)
            scan_threads(p);
        found |= p->is_followed;
    }
    return found;
}
