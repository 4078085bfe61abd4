/* Who there is: processes and threads by their numbers, which the system gives again. One that has ended stays until
 * what it left in the areas is read, so each is found by its number and a time. */
#define _GNU_SOURCE
#include "threads.h"

#include "output.h"
#include "recording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS 4096u
#define THREADS_MOST 200000u
#define PROCESSES_MOST 50000u

static sm_thread *threads[BUCKETS];
static sm_process *processes[BUCKETS];
static sm_process *first;
static uint32_t thread_count, process_count; /* numbers given */

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
void sm_thread_tell(sm_thread *t) {
    lt_thread *row = sm_row(LT_THREADS, sizeof *row);
    if (!row)
        return;
    *row = (lt_thread){t->number, t->process->number, t->tid, 0, t->start_ns, t->end_ns, {0}};
    memcpy(row->name, t->name, sizeof row->name);
    t->is_told = 1;
}

void sm_process_tell(sm_process *p) {
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
                   "the program has begun more threads or processes than are kept (%u and %u)", thread_count,
                   process_count);
    return 1;
}

sm_process *sm_process_begin(int32_t pid, int32_t ppid, uint64_t at_ns) {
    sm_process *p = is_too_many(process_count, PROCESSES_MOST) ? NULL : calloc(1, sizeof *p);
    if (!p)
        return NULL;
    sm_process **bucket = &processes[(uint32_t)pid % BUCKETS];
    *p = (sm_process){.by_pid = *bucket, .next = first, .number = process_count++, .pid = pid, .ppid = ppid,
                      .start_ns = at_ns, .asked_from_ns = sm.now_ns, .is_stale = 1,
                      .is_foreign = is_in_other_namespace(pid), .whole.end_fd = -1};
    *bucket = p;
    if (first)
        first->previous = p;
    first = p;
    sm_process_tell(p);
    return p;
}

sm_thread *sm_thread_begin(sm_process *p, int32_t tid, uint64_t at_ns, const char *name) {
    sm_thread *t = is_too_many(thread_count, THREADS_MOST) ? NULL : calloc(1, sizeof *t);
    if (!t)
        return NULL;
    sm_thread **bucket = &threads[(uint32_t)tid % BUCKETS];
    *t = (sm_thread){.by_tid = *bucket, .next = p->threads, .process = p, .number = thread_count++, .tid = tid,
                     .start_ns = at_ns, .events = {-1, -1, -1}, .wait_fd = -1};
    if (name)
        memcpy(t->name, name, sizeof t->name);
    *bucket = t;
    if (p->threads)
        p->threads->previous = t;
    p->threads = t;
    p->living++;
    sm_thread_tell(t);
    return t;
}

/* The program calls a thread so. */
void sm_take_name(sm_process *p, const lf_sample_name *record, size_t bytes) {
    const sm_thread *t = sm_thread_at(record->tid, record->at_ns);
    if (!t || t->process != p || record->name_bytes > bytes - sizeof *record || !sm_may_define())
        return;
    lt_name *row = sm_text_row(LT_NAMES, sizeof *row, record->name_bytes);
    if (!row)
        return;
    *row = (lt_name){t->number, record->name_bytes};
    memcpy(row + 1, record + 1, record->name_bytes);
}

/* --- Those that run already --- */

/* What is not known of a process is asked for less and less often: after an eighth of the time since it is so. */
int sm_may_ask(sm_process *p) {
    if (sm.now_ns < p->next_ask_ns)
        return 0;
    p->next_ask_ns = sm.now_ns + (sm.now_ns - p->asked_from_ns) / 8;
    return 1;
}

/* --- The end of them --- */

void sm_thread_free(sm_thread *t) {
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

void sm_process_free(sm_process *p) {
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
    free(p);
}

void sm_tell_who(void) {
    for (sm_process *p = first; p; p = p->next) {
        if (!p->is_told)
            sm_process_tell(p);
        for (sm_thread *t = p->threads; t; t = t->next)
            if (!t->is_told)
                sm_thread_tell(t);
    }
}
