/* What the kernel tells of the threads: begun, ended, another program, something mapped, on and off a CPU. */
#define _GNU_SOURCE
#include "sampler.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>

/* A thread that began while its maker was being followed is followed twice, and each record of it is there twice. */
#define TWICE_NS 1000000ull
/* How long one that is refused is tried again, and when that is said. */
#define PATIENCE_NS 10000000000ull
#define SAID_NS 200000000ull

typedef struct {
    struct perf_event_header header;
    uint32_t pid, ppid, tid, ptid;
    uint64_t time;
} task_record;
typedef struct {
    struct perf_event_header header;
    uint32_t pid, tid;
    char comm[];
} comm_record;
typedef struct {
    struct perf_event_header header;
    uint64_t id, lost;
} lost_record;
typedef struct {
    uint32_t pid, tid;
    uint64_t time;
    uint32_t cpu, reserved;
} sample_id;

/* A child is its parent once more until it becomes another program: so is its handler. */
static void inherit(sm_process *p, const sm_process *parent) {
    p->is_sampled = 1;
    p->has_events = parent->has_events;
    p->uses_timers = parent->uses_timers;
    p->has_handler = parent->has_handler;
    p->is_signalled = parent->is_signalled;
    p->python = parent->python;
    p->python_eval = parent->python_eval;
    p->python_runtime = parent->python_runtime;
}

static sm_process *forked(const task_record *r) {
    sm_process *p = sm_process_begin((int32_t)r->pid, (int32_t)r->ppid, r->time);
    const sm_process *parent = sm_process_at((int32_t)r->ppid);
    if (!p)
        return NULL;
    p->is_followed = p->is_a_fork = 1;
    p->forked_by = (int32_t)r->ptid;
    if (parent && parent->is_sampled && !p->is_foreign)
        inherit(p, parent);
    return p;
}

/* A process has handed its area over: what it had forked before that was told. */
void sm_follow_forks(const sm_process *parent) {
    for (sm_process *p = parent->has_events || parent->uses_timers ? sm_processes() : NULL; p; p = p->next) {
        if (!p->is_a_fork || p->ppid != parent->pid || p->start_ns < parent->start_ns || p->end_ns || p->is_foreign
            || p->area || p->has_events || p->uses_timers)
            continue;
        sm_copies_stop(p);
        inherit(p, parent);
        sm_signalled_inherit(p);
        sm_events_begin(p);
        sm_follow_forks(p);
    }
}

static void begun(const task_record *r) {
    sm_process *p = sm_process_at((int32_t)r->pid);
    if (!p)
        p = forked(r);
    if (!p)
        return;
    const sm_thread *known = sm_thread_at((int32_t)r->tid, r->time), *maker = sm_thread_at((int32_t)r->ptid, r->time);
    if (known && !known->end_ns && known->process == p)
        return; /* found by a look into /proc before */
    sm_thread *t = sm_thread_begin(p, (int32_t)r->tid, r->time, maker ? maker->name : NULL);
    if (t)
        t->since_birth = t->is_counted = 1;
    if (t && p->is_a_fork && t->tid == p->pid)
        sm_signalled_inherit(p);
    if (t && p->has_events)
        sm_signalled_begin(t);
}

static void ended(const task_record *r) {
    sm_thread *t = sm_thread_at((int32_t)r->tid, r->time);
    if (t && t->process->pid == (int32_t)r->pid)
        sm_thread_end(t, r->time);
}

static void named(const comm_record *r, const sample_id *id) {
    sm_process *p = r->header.misc & PERF_RECORD_MISC_COMM_EXEC ? sm_process_at((int32_t)r->pid) : NULL;
    if (p)
        p->is_a_fork = 0;
    if (p && (p->is_sampled || p->start_ns + TWICE_NS < id->time))
        sm_exec(p, id->time);
    sm_thread *t = sm_thread_at((int32_t)r->tid, id->time);
    if (!t)
        return;
    strncpy(t->name, r->comm, sizeof t->name - 1);
    t->is_told = 0;
}

static void mapped(const sample_id *id) {
    sm_process *p = sm_process_at((int32_t)id->pid);
    if (p)
        p->is_stale = 1;
}

static void switched(const struct perf_event_header *header, const sample_id *id) {
    sm_thread *t = sm_thread_at((int32_t)id->tid, id->time);
    sm.switches++;
    if (!(header->misc & PERF_RECORD_MISC_SWITCH_OUT))
        sm_kernel_switched();
    if (t && t->end_ns && t->end_ns < id->time)
        t = NULL; /* somebody else, whose beginning was lost */
    sm_process *p = t ? NULL : sm_process_at((int32_t)id->pid);
    if (p)
        t = sm_thread_found(p, (int32_t)id->tid, id->time, NULL);
    if (t)
        sm_switched(t, id->time, id->cpu, !!(header->misc & PERF_RECORD_MISC_SWITCH_OUT),
                    !!(header->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT));
    if (t && p && p->is_sampled)
        sm_count_from(t, t->cpu_ns);
}

static void apply(const void *record) {
    const struct perf_event_header *header = record;
    sample_id id;
    memcpy(&id, (const uint8_t *)record + header->size - sizeof id, sizeof id);
    if (header->type != PERF_RECORD_SAMPLE) /* which has its time elsewhere */
        sm_copies_take(id.time);
    switch (header->type) {
    case PERF_RECORD_FORK:
        begun(record);
        break;
    case PERF_RECORD_EXIT:
        ended(record);
        break;
    case PERF_RECORD_COMM:
        named(record, &id);
        break;
    case PERF_RECORD_MMAP:
    case PERF_RECORD_MMAP2:
        mapped(&id);
        break;
    case PERF_RECORD_SWITCH:
        switched(header, &id);
        break;
    case PERF_RECORD_SAMPLE:
        sm_wakings_take(record);
        break;
    case PERF_RECORD_LOST:
        sm.lost_records += ((const lost_record *)record)->lost;
        sm_waits_lost();
        break;
    default:
        break;
    }
}

void sm_follow_take(void) {
    uint64_t until_ns = sm_copies_look();
    sm_rings_take(apply, until_ns);
    sm_copies_take(until_ns);
}

/* From now on this thread is followed, with all that it begins. 0, or minus an errno. */
int sm_follow(int32_t tid) {
    int failed = sm_ring_add(tid);
    sm.has_switches |= !failed;
    return failed;
}

static void follow_task(int32_t pid, int32_t tid, void *failed) {
    (void)pid;
    int now = sm_follow(tid);
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
        sm_problem("no_switches", p->pid, "exact durations of waits, threads that live shorter than a second, and stacks of native threads",
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
            sm_scan_threads(p);
        found |= p->is_followed;
    }
    return found;
}
