/* Who ends a wait: the tracepoint sched:sched_waking of each thread, where rights allow. The kernel writes its records
 * where the waking thread runs, whether that one or the woken one is ours. A record made in an interrupt has no waker:
 * a timer, a disk or a network ended the wait while some thread happened to be there.
 *
 * Wakings may be many. When those of a second are more than 1 % of it would pay for, the rest of it goes without: waits
 * then have no waker, and still are as long as they were. */
#define _GNU_SOURCE
#include "wakeups.h"

#include "perf_event.h"
#include "procfs.h"
#include "rate_limit.h"
#include "recording.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Writing and reading one costs about 1 us. */
#define MOST_IN_A_SECOND 10000u
/* A thread is woken at the earliest while the kernel still writes down that it leaves its CPU. */
#define EARLY_NS 10000ull
/* Of common_flags: made while an interrupt was served, hard or soft (trace_flag_type of the kernel). */
#define IN_INTERRUPT 0x18u

typedef struct {
    struct perf_event_header header;
    uint32_t pid, tid; /* of the waker */
    uint64_t time;
    uint32_t cpu, reserved;
    uint32_t bytes; /* of what follows */
    uint8_t raw[];
} waking_record;
/* How every tracepoint begins. */
typedef struct {
    uint16_t type;
    uint8_t flags, preempt_count;
    int32_t pid; /* of the waker, as the first namespace counts */
} tracepoint;

static struct perf_event_attr attributes;
static uint32_t pid_at; /* where the tracepoint has whom it wakes */
static sm_rate_limit limit = {.most = MOST_IN_A_SECOND};

static int read_file(char *into, size_t room, const char *file) {
    static const char *const folders[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
    int bytes = -1;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && bytes <= 0; i++)
        bytes = sm_proc(into, room, "%s/events/sched/sched_waking/%s", folders[i], file);
    return bytes;
}

/* Whether the tracepoint is known to us: 0, or minus an errno. */
int sm_wakeups_prepare(void) {
    char id[32], format[2048];
    const char *field;
    if (read_file(id, sizeof id, "id") <= 0 || read_file(format, sizeof format, "format") <= 0)
        return -EACCES;
    if (!(field = strstr(format, "field:pid_t pid;")) || sscanf(field, "%*[^;]; offset:%u;", &pid_at) != 1)
        return -ENOSYS;
    attributes = (struct perf_event_attr){.type = PERF_TYPE_TRACEPOINT, .size = sizeof attributes, .sample_period = 1};
    attributes.config = strtoull(id, NULL, 10);
    attributes.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    attributes.inherit = attributes.sample_id_all = attributes.use_clockid = attributes.watermark = 1;
    attributes.clockid = CLOCK_MONOTONIC;
    attributes.wakeup_watermark = 0xffffffffu;
    return 0;
}

/* The wakings of a thread on one CPU go to the ring of `ring_fd`. 0, or minus an errno. */
int sm_wakeups_add(int32_t tid, int cpu, int ring_fd) {
    if (!attributes.size)
        return -EACCES;
    int fd = sm_perf_event_open(&attributes, tid, cpu), failed = fd;
    if (fd < 0)
        return fd;
    failed = ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring_fd) ? -errno : sm_rate_limit_keep(&limit, fd);
    if (failed)
        close(fd);
    sm.has_wakers |= !failed;
    return failed;
}

void sm_wakeups_tick(void) {
    sm_rate_limit_tick(&limit);
}

void sm_wakeups_take(const void *record) {
    const waking_record *r = record;
    tracepoint begins;
    int32_t woken;
    if (r->header.size < offsetof(waking_record, raw) + r->bytes || r->bytes < pid_at + sizeof woken
        || r->bytes < sizeof begins)
        return;
    sm_rate_limit_count(&limit);
    memcpy(&begins, r->raw, sizeof begins);
    memcpy(&woken, r->raw + pid_at, sizeof woken);
    if (begins.pid != (int32_t)r->tid)
        return; /* we are in a pid namespace, and cannot tell who is meant */
    sm_thread *t = sm_thread_at(woken, r->time);
    if (!t || t->end_ns)
        return;
    const sm_thread *by = begins.flags & IN_INTERRUPT ? NULL : sm_thread_at((int32_t)r->tid, r->time);
    t->wakeup.at_ns = r->time;
    t->wakeup.by = by && by->process->pid == (int32_t)r->pid ? by->number : LT_NONE;
}

/* Who ended the wait of `t` from `from_ns` to `until_ns`; LT_NONE: not known. */
uint32_t sm_waker_of(const sm_thread *t, uint64_t from_ns, uint64_t until_ns) {
    uint64_t at_ns = t->wakeup.at_ns;
    int is_of_this = at_ns + EARLY_NS >= from_ns && at_ns <= until_ns && at_ns > t->wait.in_ns;
    return is_of_this ? t->wakeup.by : LT_NONE;
}
