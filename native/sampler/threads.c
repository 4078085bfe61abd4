/* Who there is: processes and threads by their numbers, which the system gives again. One that has ended stays until
 * what it left in the areas is read, so each is found by its number and a time. */
#define _GNU_SOURCE
#include "sampler.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS 4096u

static sm_thread *threads[BUCKETS];
static sm_process *processes[BUCKETS];
static sm_process *first;

sm_process *sm_processes(void) {
    return first;
}

sm_process *sm_process_at(int32_t pid) {
    for (sm_process *p = processes[(uint32_t)pid % BUCKETS]; p; p = p->by_pid)
        if (p->pid == pid && !p->end_ns)
            return p;
    return NULL;
}

/* The thread that had this number at that time; of a time between two, the one before. */
sm_thread *sm_thread_at(int32_t tid, uint64_t at_ns) {
    sm_thread *best = NULL;
    for (sm_thread *t = threads[(uint32_t)tid % BUCKETS]; t; t = t->by_tid) {
        if (t->tid != tid)
            continue;
        best = t;
        if (t->start_ns <= at_ns)
            break;
    }
    return best;
}

static int is_in_other_namespace(int32_t pid) {
    char ours[64], theirs[64], path[48];
    snprintf(path, sizeof path, "/proc/%d/ns/pid", pid);
    ssize_t mine = readlink("/proc/self/ns/pid", ours, sizeof ours), its = readlink(path, theirs, sizeof theirs);
    return mine > 0 && its > 0 && (mine != its || memcmp(ours, theirs, (size_t)mine));
}

/* Each has a row as soon as it has a number, so rows come in the order of numbers first. */
static void tell_thread(sm_thread *t) {
    lt_thread *row = sm_row(LT_THREADS, sizeof *row);
    if (!row)
        return;
    *row = (lt_thread){t->number, t->process->number, t->tid, 0, t->start_ns, t->end_ns, {0}};
    memcpy(row->name, t->name, sizeof row->name);
    t->is_told = 1;
}

static void tell_process(sm_process *p) {
    lt_process *row = sm_row(LT_PROCESSES, sizeof *row);
    if (row) {
        *row = (lt_process){p->number, p->pid, p->ppid, p->python, p->start_ns, p->end_ns};
        p->is_told = 1;
    }
}

static int is_too_many(uint32_t count, uint32_t most) {
    static int is_said;
    if (count < most && sm_may_define())
        return 0;
    if (!is_said++)
        sm_problem("too_many_threads", 0, "all of the threads that begin from then on",
                   "record a part of the run (run --after, --for)",
                   "the program has begun more threads or processes than are kept (%u and %u)", sm.threads,
                   sm.processes);
    return 1;
}

sm_process *sm_process_begin(int32_t pid, int32_t ppid, uint64_t at_ns) {
    sm_process *p = is_too_many(sm.processes, SM_PROCESSES_MOST) ? NULL : calloc(1, sizeof *p);
    if (!p)
        return NULL;
    sm_process **bucket = &processes[(uint32_t)pid % BUCKETS];
    *p = (sm_process){.by_pid = *bucket, .next = first, .number = sm.processes++, .pid = pid, .ppid = ppid,
                      .start_ns = at_ns, .asked_from_ns = sm.now_ns, .is_stale = 1,
                      .is_foreign = is_in_other_namespace(pid)};
    *bucket = p;
    if (first)
        first->previous = p;
    first = p;
    tell_process(p);
    return p;
}

void sm_process_end(sm_process *p, uint64_t at_ns) {
    if (p->end_ns)
        return;
    for (sm_thread *t = p->threads; t; t = t->next)
        sm_thread_end(t, at_ns);
    p->end_ns = at_ns;
    p->is_told = 0;
    sm_copies_stop(p);
}

sm_thread *sm_thread_begin(sm_process *p, int32_t tid, uint64_t at_ns, const char *name) {
    sm_thread *t = is_too_many(sm.threads, SM_THREADS_MOST) ? NULL : calloc(1, sizeof *t);
    if (!t)
        return NULL;
    sm_thread **bucket = &threads[(uint32_t)tid % BUCKETS];
    *t = (sm_thread){.by_tid = *bucket, .next = p->threads, .process = p, .number = sm.threads++, .tid = tid,
                     .start_ns = at_ns, .events = {-1, -1, -1}, .wait_fd = -1};
    if (name)
        memcpy(t->name, name, sizeof t->name);
    *bucket = t;
    if (p->threads)
        p->threads->previous = t;
    p->threads = t;
    p->living++;
    tell_thread(t);
    return t;
}

/* One that runs already: what it has used until now has no stack. */
sm_thread *sm_thread_found(sm_process *p, int32_t tid, uint64_t at_ns, const char *name) {
    sm_thread *t = sm_thread_begin(p, tid, at_ns, name);
    uint64_t none;
    if (t && p->has_events)
        sm_signalled_begin(t);
    if (t && p->is_sampled)
        sm_rest(t, sm.now_ns, sm_ran_ns(p->pid, tid, &none, &none));
    return t;
}

void sm_thread_end(sm_thread *t, uint64_t at_ns) {
    if (t->end_ns)
        return;
    t->end_ns = at_ns;
    t->is_told = 0;
    sm_signalled_end(t);
    if (t->in_ns && t->in_ns < at_ns && !t->out_ns)
        t->ran_ns += at_ns - t->in_ns;
    t->in_ns = 0;
    if (!--t->process->living)
        sm_process_end(t->process, at_ns);
}

/* A new program in the process: for the reader it is another process. */
void sm_exec(sm_process *old, uint64_t at_ns) {
    int32_t pid = old->pid, ppid = old->ppid;
    int is_followed = old->is_followed;
    const sm_thread *before = sm_thread_at(pid, at_ns);
    int is_known = before && before->process == old && before->is_counted && !before->end_ns;
    sm_process_end(old, at_ns);
    sm_process *p = sm_process_begin(pid, ppid, at_ns);
    sm_thread *t = p ? sm_thread_begin(p, pid, at_ns, NULL) : NULL;
    uint64_t none;
    if (p)
        p->is_followed = is_followed;
    if (t) {
        t->in_ns = at_ns;
        /* What is read now has what it ran since, where we are late. */
        t->before_ns = is_known ? before->copied_ns + before->ran_ns : sm_ran_ns(pid, pid, &none, &none);
        t->cpu_ns = t->copied_ns = t->before_ns;
        t->is_counted = is_known;
    }
}

/* --- Those that run already --- */

/* What is not known of a process is asked for less and less often: after an eighth of the time since it is so. */
int sm_may_ask(sm_process *p) {
    if (sm.now_ns < p->next_ask_ns)
        return 0;
    p->next_ask_ns = sm.now_ns + (sm.now_ns - p->asked_from_ns) / 8;
    return 1;
}

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
    if (t && !t->end_ns && t->process == p)
        return;
    int bytes = sm_proc(name, sizeof name, "/proc/%d/task/%d/comm", pid, tid);
    uint64_t at_ns = tid == pid ? p->start_ns : sm.generation ? sm_started_ns(pid, tid) : sm.now_ns;
    name[strcspn(name, "\n")] = 0;
    if (bytes >= 0 && at_ns && !is_leaving(pid, tid))
        sm_thread_found(p, tid, at_ns, name);
}

static void scan_children(int32_t pid, int32_t tid, void *of) {
    char text[4096];
    (void)of;
    if (sm_proc(text, sizeof text, "/proc/%d/task/%d/children", pid, tid) <= 0)
        return;
    for (char *at = text, *end; *at; at = end) {
        long child = strtol(at, &end, 10);
        if (end == at)
            break;
        if (child > 0 && !sm_process_at((int32_t)child))
            sm_scan((int32_t)child, pid, sm.now_ns);
    }
}

void sm_scan_threads(sm_process *p) {
    sm_each_task(p->pid, scan_thread, p);
}

static void follow_thread(int32_t pid, int32_t tid, void *has_failed) {
    (void)pid;
    *(int *)has_failed |= sm_follow(tid);
}

/* The threads that are there are followed first, so that none begins unseen between the two. */
void sm_scan(int32_t pid, int32_t ppid, uint64_t at_ns) {
    int has_failed = 0;
    if (!sm_each_task(pid, follow_thread, &has_failed))
        return;
    sm_process *p = sm_process_at(pid);
    if (!p)
        p = sm_process_begin(pid, ppid, sm.generation && pid != sm.main_pid ? sm_started_ns(pid, pid) : at_ns);
    if (!p)
        return;
    p->is_followed = !has_failed;
    sm_scan_threads(p);
    sm_each_task(pid, scan_children, NULL);
}

static int has_ended(const sm_thread *t) {
    char text[256];
    const char *at = sm_stat(text, sizeof text, t->process->pid, t->tid);
    return at ? !!strchr("ZX", at[1]) : errno == ENOENT || errno == ESRCH;
}

/* Where nobody tells of threads they are looked for; where records were lost, those that they told of. */
void sm_sweep(int is_lost) {
    for (sm_process *p = first; p; p = p->next) {
        if (p->end_ns)
            continue;
        if (p->is_sampled && (!sm.has_switches || is_lost))
            sm_scan_threads(p);
        if (is_lost)
            sm_each_task(p->pid, scan_children, NULL);
        for (sm_thread *t = p->threads; t; t = t->next)
            if (!t->end_ns && has_ended(t))
                sm_thread_end(t, sm.now_ns);
    }
}

/* --- The end of them --- */

static void free_thread(sm_thread *t) {
    for (sm_thread **at = &threads[(uint32_t)t->tid % BUCKETS]; *at; at = &(*at)->by_tid)
        if (*at == t) {
            *at = t->by_tid;
            break;
        }
    if (t->previous)
        t->previous->next = t->next;
    else
        t->process->threads = t->next;
    if (t->next)
        t->next->previous = t->previous;
    free(t);
}

static void free_process(sm_process *p) {
    for (sm_process **at = &processes[(uint32_t)p->pid % BUCKETS]; *at; at = &(*at)->by_pid)
        if (*at == p) {
            *at = p->by_pid;
            break;
        }
    if (p->previous)
        p->previous->next = p->next;
    else
        first = p->next;
    if (p->next)
        p->next->previous = p->previous;
    if (p->area)
        sm_area_free(p->area);
    if (p->space)
        lu_space_free(p->space);
    free(p->codes);
    free(p->made);
    sm_python_forget(p);
    free(p);
}

void sm_tell_who(void) {
    for (sm_process *p = first; p; p = p->next) {
        if (!p->is_told)
            tell_process(p);
        for (sm_thread *t = p->threads; t; t = t->next)
            if (!t->is_told)
                tell_thread(t);
    }
}

/* What is left of a thread is told when nothing more can come of it. */
static void finish_thread(sm_thread *t) {
    if (t->process->is_sampled) {
        sm_account(t, 1);
        sm_waits_end(t);
        sm_rest(t, t->end_ns, t->account.run_ns);
        sm_tell_held(t);
    }
    sm_events_close(t);
    sm_copies_end(t);
    if (t->wait_fd >= 0)
        close(t->wait_fd);
    tell_thread(t);
    free_thread(t);
}

void sm_reap(void) {
    for (sm_process *p = first, *next_process; p; p = next_process) {
        next_process = p->next;
        for (sm_thread *t = p->threads, *next; t; t = next) {
            next = t->next;
            if (t->end_ns && t->end_ns + SM_TICK_NS < sm.now_ns)
                finish_thread(t);
        }
        if (p->end_ns && !p->threads && (!p->area || !sm_area_is_behind(p->area))) {
            tell_process(p);
            free_process(p);
        }
    }
}
