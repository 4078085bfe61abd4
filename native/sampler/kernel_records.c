/* What the kernel tells of the threads: begun, ended, another program, something mapped, on and off a CPU. */
#define _GNU_SOURCE
#include "kernel_records.h"

#include "copied_stacks.h"
#include "cpu_time.h"
#include "handover.h"
#include "kernel_time.h"
#include "lifecycle.h"
#include "process_accounts.h"
#include "recording.h"
#include "rings.h"
#include "signalled.h"
#include "waits.h"
#include "wakeups.h"

#include <linux/perf_event.h>
#include <string.h>

/* A thread that began while its maker was being followed is followed twice, and each record of it is there twice. */
#define TWICE_NS 1000000ull

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

static sm_process *forked(const task_record *r) {
    sm_process *p = sm_process_begin((int32_t)r->pid, (int32_t)r->ppid, r->time);
    const sm_process *parent = sm_process_at((int32_t)r->ppid);
    if (!p)
        return NULL;
    sm_process_account_begin(p);
    p->is_followed = p->is_a_fork = 1;
    p->forked_by = (int32_t)r->ptid;
    if (parent && parent->is_sampled && !p->is_foreign)
        sm_inherit(p, parent);
    return p;
}

static void begun(const task_record *r) {
    sm_process *p = sm_process_at((int32_t)r->pid);
    if (!p && !sm.is_alone)
        p = forked(r);
    if (!p)
        return;
    const sm_thread *known = sm_thread_at((int32_t)r->tid, r->time), *maker = sm_thread_at((int32_t)r->ptid, r->time);
    if (known && !known->end_ns && known->process == p)
        return; /* found by a look into /proc before */
    sm_thread *t = sm_thread_begin(p, (int32_t)r->tid, r->time, maker ? maker->name : NULL);
    if (t)
        t->since_birth = t->time.is_counted = 1;
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
        p->is_a_fork = p->whole.is_found_fork = 0;
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
        sm_count_from(t, t->time.told_ns);
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
        sm_wakeups_take(record);
        break;
    case PERF_RECORD_LOST:
        sm.lost_records += ((const lost_record *)record)->lost;
        sm_waits_lost();
        break;
    default:
        break;
    }
}

void sm_records_take(void) {
    uint64_t until_ns = sm_copies_look();
    sm_rings_take(apply, until_ns);
    sm_copies_take(until_ns);
}
