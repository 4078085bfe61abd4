/* Samples of processes whose threads are sent no signal: programs in C, shells, whatever has closed the door behind it,
 * those that handle the signal themselves; and of single threads that may not be sent it. No handler answers, so the
 * kernel copies registers and stack itself, at events of each thread on each CPU (its CPU time, its page faults), as far
 * as they happen outside of the kernel. They are records in one ring for each CPU, and are unwound as others are.
 *
 * It begins when a process has used some CPU time and none of its threads has a clock that tells it. Processes of
 * other users are left alone. Threads that begin later inherit the clocks (Linux 5.13 and later; before that only those
 * that are there are sampled); what they fork does not, and gets its own. */
#define _GNU_SOURCE
#include "copied_stacks.h"

#include "cpu_time.h"
#include "events.h"
#include "joined_stacks.h"
#include "output.h"
#include "outside_python.h"
#include "perf_event.h"
#include "procfs.h"
#include "recording.h"
#include "samples.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Whoever has the agent hands its area over in the first 20 ms of its CPU time. */
#define LEAST_CPU_NS 20000000ull
#define LEAST_AGE_NS 50000000ull
/* Of one that hardly uses any CPU time: how it waits is then what there is to know. The program itself does not wait for
 * that, where it is no Python. */
#define WAITING_AGE_NS 100000000ull
/* Of a thread that is in no table yet: one that shall be gets there before it does anything else. */
#define LEAST_OF_THREAD_NS 5000000ull
#define MOST_PAGES 64u
#define LEAST_PAGES 16u
#define MOST_STACK 32768u
#define FAULT_STACK 8192u /* a thousand faults that are told in a second fit into the ring */

typedef struct {
    int fd; /* of an event of ours that counts nothing */
    struct perf_event_mmap_page *page;
    const uint8_t *data;
    uint64_t size, tail;
} ring;

static ring *rings; /* of CPU i */
static uint32_t cpus, stack_bytes;
static uint64_t next_ns = ~0ull; /* of all records */
static uint8_t whole[1 << 16] __attribute__((aligned(16)));

/* One of the events of a process. */
struct sm_copy_event {
    int fd, event;
    uint64_t id; /* the kernel's, in its records */
};
typedef struct sm_copy_event copy_event;

/* --- Rings --- */

static int open_ring(ring *r, int cpu) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_DUMMY};
    a.exclude_kernel = a.exclude_hv = a.use_clockid = a.watermark = 1;
    a.clockid = CLOCK_MONOTONIC;
    a.wakeup_watermark = 0xffffffffu;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    r->fd = sm_perf_event_open(&a, 0, cpu);
    for (uint32_t pages = MOST_PAGES; r->fd >= 0 && pages >= LEAST_PAGES; pages /= 2) {
        void *at = mmap(NULL, (1 + pages) * page, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
        if (at == MAP_FAILED)
            continue;
        r->page = at, r->data = (const uint8_t *)at + page, r->size = pages * page;
        uint32_t most = (uint32_t)r->size / 4;
        stack_bytes = most < stack_bytes ? most : stack_bytes;
        return 0;
    }
    return r->fd < 0 ? r->fd : -ENOMEM;
}

/* 0, or minus an errno: of CPUs that there are, with the others it goes on. */
static int open_rings(void) {
    if (rings)
        return cpus ? 0 : -ENOMEM;
    uint32_t count = sm_cpus();
    rings = calloc(count, sizeof *rings);
    stack_bytes = MOST_STACK;
    for (uint32_t i = 0; rings && i < count; i++) {
        int failed = open_ring(&rings[i], sm_cpu(i));
        if (failed && failed != -ENODEV)
            return failed;
    }
    cpus = rings ? count : 0;
    return cpus ? 0 : -ENOMEM;
}

static void copy_at(const ring *r, uint64_t at, void *into, size_t bytes) {
    sm_ring_copy(r->data, r->size, at, into, bytes);
}

/* When the first record that is not taken was made; ~0: there is none. */
static uint64_t first_ns(ring *r) {
    struct perf_event_header h;
    uint64_t time, head = r->page ? __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE) : r->tail;
    for (; r->tail < head; r->tail += h.size) {
        copy_at(r, r->tail, &h, sizeof h);
        if (h.size < sizeof h)
            r->tail = head; /* not as the kernel writes them */
        else if (h.type == PERF_RECORD_SAMPLE) {
            copy_at(r, r->tail + sizeof h + 8, &time, sizeof time);
            return time;
        } else if (h.type == PERF_RECORD_LOST) {
            copy_at(r, r->tail + sizeof h + 8, &time, sizeof time); /* how many */
            sm.quality.lost += time;
            sm.lost_copies += time;
        }
    }
    if (r->page)
        __atomic_store_n(&r->page->data_tail, r->tail, __ATOMIC_RELEASE);
    return ~0ull;
}

/* --- One sample --- */

typedef struct {
    struct perf_event_header header;
    uint32_t pid, tid;
    uint64_t time, id, abi, registers[LF_REGISTERS];
    uint64_t stack_bytes; /* then so many bytes of it, and how many of these are there */
} copy_record;

/* Which event of its process a record is of: the kernel numbers them as they are opened. */
static int event_of(const sm_process *p, uint64_t id) {
    uint32_t low = 0, high = p->copied.count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (p->copied.events[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < p->copied.count && p->copied.events[low].id == id ? p->copied.events[low].event : SM_CPU;
}

/* As a handler would have written it. */
static void take_copy(const copy_record *c) {
    static uint8_t made[sizeof(lf_sample) + MOST_STACK] __attribute__((aligned(16)));
    lf_sample *sample = (lf_sample *)made;
    const uint8_t *stack = (const uint8_t *)(c + 1);
    const sm_thread *t = sm_thread_at((int32_t)c->tid, c->time);
    uint64_t there = 0;
    if (!t || !(t->process->copied.is_on || t->copied.fds) || t->process->pid != (int32_t)c->pid
        || c->abi != PERF_SAMPLE_REGS_ABI_64 || c->stack_bytes > MOST_STACK) {
        sm.quality.samples++;
        sm.quality.lost++;
        return;
    }
    if (c->stack_bytes)
        memcpy(&there, stack + c->stack_bytes, sizeof there);
    there = there < c->stack_bytes ? there : c->stack_bytes;
    *sample = (lf_sample){.at_ns = c->time, .cpu_ns = sm_cpu_ns_at(t, c->time), .tid = (int32_t)c->tid,
                          .event = SM_COPIED(event_of(t->process, c->id)),
                          .stack_bytes = (uint32_t)there};
    for (int i = 0; i < LF_REGISTERS; i++)
        sample->registers[sm_user_registers[i]] = c->registers[i];
    memcpy(sample + 1, stack, there);
    sm_take_sample(t->process, sample, sizeof *sample + there);
}

/* Takes what was made before that time, in its order: switches before it have been seen, later ones not. */
void sm_copies_take(uint64_t until_ns) {
    while (next_ns < until_ns) {
        ring *first = NULL;
        uint64_t earliest = ~0ull, second = ~0ull;
        for (uint32_t i = 0; i < cpus; i++) {
            uint64_t at = first_ns(&rings[i]);
            second = at < earliest ? earliest : at < second ? at : second;
            if (at < earliest)
                earliest = at, first = &rings[i];
        }
        next_ns = earliest;
        if (!first || earliest >= until_ns)
            return;
        struct perf_event_header h;
        copy_at(first, first->tail, &h, sizeof h);
        copy_at(first, first->tail, whole, h.size);
        first->tail += h.size;
        __atomic_store_n(&first->page->data_tail, first->tail, __ATOMIC_RELEASE);
        take_copy((const copy_record *)whole);
        uint64_t after = first_ns(first);
        next_ns = after < second ? after : second;
    }
}

/* Before switches are taken: whether something is there. What was made after the time that it returns is for later. */
uint64_t sm_copies_look(void) {
    uint64_t now = sm_clock(CLOCK_MONOTONIC);
    next_ns = ~0ull;
    for (uint32_t i = 0; i < cpus; i++) {
        uint64_t at = first_ns(&rings[i]);
        next_ns = at < next_ns ? at : next_ns;
    }
    return now;
}

/* --- Which processes --- */

static int open_event(int32_t tid, uint32_t cpu, int event, int is_inherited, int wakes) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = sm_events_config(event)};
    a.sample_period = event == SM_CPU ? sm_events_copies_period() : sm_events_period(event);
    a.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID;
    a.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    a.sample_regs_user = SM_USER_REGISTERS;
    a.sample_stack_user = event == SM_CPU || stack_bytes < FAULT_STACK ? stack_bytes : FAULT_STACK;
    a.wakeup_events = wakes && event == SM_CPU;
    a.disabled = a.exclude_kernel = a.exclude_hv = a.use_clockid = 1;
    a.clockid = CLOCK_MONOTONIC;
    a.inherit = a.inherit_thread = is_inherited != 0;
    a.remove_on_exec = 1;
    int fd = sm_perf_event_open(&a, tid, sm_cpu(cpu));
    if (fd == -EINVAL) {
        a.inherit = a.inherit_thread = a.remove_on_exec = 0;
        fd = sm_perf_event_open(&a, tid, sm_cpu(cpu));
    }
    if (fd >= 0 && (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, rings[cpu].fd) || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0))) {
        int failed = -errno;
        close(fd);
        return failed;
    }
    return fd;
}

static int keep(sm_process *p, int fd, int event) {
    if (p->copied.count % 64 == 0) {
        copy_event *larger = realloc(p->copied.events, (p->copied.count + 64) * sizeof *larger);
        if (!larger) {
            close(fd);
            return -ENOMEM;
        }
        p->copied.events = larger;
    }
    copy_event *kept = &p->copied.events[p->copied.count++];
    *kept = (copy_event){.fd = fd, .event = event};
    return ioctl(fd, PERF_EVENT_IOC_ID, &kept->id) ? -errno : 0;
}

/* 0, or minus an errno. */
static int open_events(sm_process *p, int event) {
    int failed = 0;
    for (const sm_thread *t = p->threads; t && !failed; t = t->next)
        for (uint32_t i = 0; !t->end_ns && i < cpus && !failed; i++) {
            int fd = rings[i].page ? open_event(t->tid, i, event, 1, p->copied.wakes) : -ENODEV;
            if (fd != -ENODEV && fd != -ESRCH) /* a CPU that was taken away; a thread that has ended */
                failed = fd < 0 ? fd : keep(p, fd, event);
        }
    return failed;
}

/* 0, or minus an errno. Without stacks of faults, where there is no room for them, it goes on: they are counted too. */
static int open_all(sm_process *p) {
    int failed = open_rings();
    failed = failed ? failed : open_events(p, SM_CPU);
    for (int event = SM_MINOR; !failed && event < SM_EVENTS; event++)
        if (open_events(p, event))
            break;
    return failed;
}

static void close_events(sm_process *p) {
    for (uint32_t i = 0; i < p->copied.count; i++)
        close(p->copied.events[i].fd);
    free(p->copied.events);
    p->copied.events = NULL;
    p->copied.count = 0;
}

static void begin(sm_process *p) {
    static int is_said;
    p->copied.has_tried = 1;
    if (!sm_is_of_our_user(p->pid))
        return;
    for (sm_thread *t = p->threads; t; t = t->next)
        sm_copies_end(t);
    int failed = open_all(p);
    if (failed && !is_said++)
        sm_problem("no_copies", p->pid, "stacks of processes without the agent, such as programs in C",
                   failed == -EMFILE ? "raise the hard limit of open files (ulimit -Hn)" : "raise ulimit -l",
                   "the kernel does not copy stacks of process %d: %s", p->pid, strerror(-failed));
    if (failed) {
        close_events(p);
        return;
    }
    p->copied.is_on = p->is_sampled = 1;
    for (sm_thread *t = p->threads; t; t = t->next) {
        uint64_t none;
        if (t->end_ns)
            continue;
        if (!t->time.is_counted)
            sm_count_from(t, sm_ran_ns(p->pid, t->tid, &none, &none));
        if (t->time.is_counted) /* others are asked again */
            sm_rest(t, sm.now_ns, sm_cpu_ns_at(t, sm.now_ns));
    }
    sm_space(p, 0); /* as long as it is there */
    sm_python_find(p);
}

/* Threads have inherited the clocks of others, which go on at the rate that they began with: they get new ones. Where
 * there are no descriptors for these, the old ones go on. */
static void open_again(sm_process *p) {
    copy_event *before = p->copied.events;
    uint32_t before_count = p->copied.count;
    p->copied.events = NULL;
    p->copied.count = 0;
    int failed = open_all(p);
    copy_event *after = p->copied.events;
    uint32_t after_count = p->copied.count;
    if (!failed)
        p->copied.events = before, p->copied.count = before_count;
    close_events(p);
    p->copied.events = failed ? before : after, p->copied.count = failed ? before_count : after_count;
}

/* After what there was so far has been taken. */
void sm_copies_new_rate(void) {
    uint64_t period_ns = sm_events_copies_period();
    for (sm_process *p = sm_processes(); p; p = p->next) {
        for (sm_thread *t = p->threads; t; t = t->next)
            for (uint32_t i = 0; i < t->copied.count; i++)
                ioctl(t->copied.fds[i], PERF_EVENT_IOC_PERIOD, &period_ns);
        if (p->copied.is_on)
            open_again(p);
    }
}

/* What a thread uses while its clocks are paused need not be in the kernel because no sample tells of it. */
static void note_pause(sm_thread *t, int is_on) {
    uint64_t cpu_ns = sm_cpu_ns_at(t, sm_clock(CLOCK_MONOTONIC));
    if (is_on)
        t->copied.paused_from = cpu_ns;
    else if (t->copied.paused_from && cpu_ns > t->copied.paused_from)
        t->copied.paused_ns += cpu_ns - t->copied.paused_from;
}

void sm_copies_pause(int is_on) {
    for (sm_process *p = sm_processes(); p; p = p->next) {
        for (uint32_t i = 0; i < p->copied.count; i++)
            if (p->copied.events[i].event == SM_CPU)
                sm_perf_event_pause(p->copied.events[i].fd, is_on);
        for (sm_thread *t = p->threads; t; t = t->next) {
            for (uint32_t i = 0; i < t->copied.count; i++)
                sm_perf_event_pause(t->copied.fds[i], is_on);
            if (p->copied.is_on || t->copied.fds)
                note_pause(t, is_on);
        }
    }
}

/* What the thread has used. Where it uses CPU time and no switch of it was seen, it was on a CPU before it was followed,
 * and has not left it since. */
static void ask(sm_thread *t) {
    uint64_t none, ran_ns = sm_ran_ns(t->process->pid, t->tid, &none, &none);
    if (!t->wait.in_ns && !t->wait.out_ns && t->copied.asked_ns && ran_ns > t->copied.asked_ns)
        t->wait.in_ns = sm.now_ns;
    t->copied.asked_ns = ran_ns;
    sm_count_from(t, ran_ns);
    if (t->time.is_counted && (t->process->copied.is_on || t->copied.fds))
        sm_rest(t, sm.now_ns, ran_ns);
}

static void ask_of(sm_process *p) {
    if (!p->is_followed || !sm_may_ask(p))
        return;
    for (sm_thread *t = p->threads; t; t = t->next)
        if (!t->time.is_counted && !t->end_ns)
            ask(t);
}

static int is_due(sm_process *p) {
    if (p->has_events || p->uses_timers || p->copied.has_tried || p->end_ns)
        return 0;
    if (p->area)
        return 1;
    /* The program itself, where it is no Python: hardly any such hands an area over, and its first waits count. */
    if (sm.now_ns < p->start_ns + LEAST_AGE_NS && p->pid == sm.main_pid && !sm_is_python(p->pid)) {
        ask_of(p);
        return 1;
    }
    if (sm.now_ns < p->start_ns + LEAST_AGE_NS)
        return 0;
    ask_of(p);
    uint64_t used = 0;
    for (const sm_thread *t = p->threads; t; t = t->next)
        used += sm_cpu_ns_at(t, sm.now_ns) - t->time.before_ns;
    return used >= LEAST_CPU_NS || sm.now_ns >= p->start_ns + WAITING_AGE_NS;
}

/* --- Threads of processes that answer to the signal, which may not be sent it themselves (signalled.c) --- */

static int open_of(sm_thread *t) {
    int failed = open_rings();
    t->copied.fds = failed ? NULL : calloc(cpus, sizeof *t->copied.fds);
    for (uint32_t i = 0; t->copied.fds && i < cpus; i++) {
        int fd = rings[i].page ? open_event(t->tid, i, SM_CPU, 0, t->process->copied.wakes) : -ENODEV;
        if (fd >= 0)
            t->copied.fds[t->copied.count++] = fd;
        else if (fd != -ENODEV)
            return fd;
    }
    return failed ? failed : t->copied.fds ? 0 : -ENOMEM;
}

static void begin_of(sm_thread *t) {
    static int is_said;
    t->copied.has_tried = 1;
    int failed = open_of(t);
    if (failed)
        sm_copies_end(t);
    if (failed && failed != -ESRCH && !is_said++)
        sm_problem("no_copies", t->process->pid, "stacks on a CPU of native threads, such as the workers of a library",
                   failed == -EMFILE ? "raise the hard limit of open files (ulimit -Hn)" : "raise ulimit -l",
                   "the kernel does not copy stacks of thread %d of process %d: %s", t->tid, t->process->pid,
                   strerror(-failed));
    if (failed)
        return;
    t->sampled.lost_before = sm.lost_copies;
    if (t->time.is_counted)
        sm_rest(t, sm.now_ns, sm_cpu_ns_at(t, sm.now_ns));
}

static void tick_of(sm_process *p) {
    int may_ask = -1;
    for (sm_thread *t = p->threads; t; t = t->next) {
        if (t->signal.since_ns || t->end_ns)
            continue;
        if (!t->time.is_counted && (may_ask = may_ask < 0 ? sm_may_ask(p) : may_ask))
            ask(t);
        if (!t->copied.has_tried && sm_cpu_ns_at(t, sm.now_ns) - t->time.before_ns >= LEAST_OF_THREAD_NS)
            begin_of(t);
    }
}

/* A stack that is read after its sample was made may have changed: from now on it is read as soon as there is one. */
static void begin_waking(sm_process *p) {
    p->copied.wakes = 1;
    for (sm_thread *t = p->threads; t; t = t->next)
        if (t->copied.fds) {
            sm_copies_end(t);
            begin_of(t);
        }
    if (p->copied.is_on)
        open_again(p);
}

void sm_copies_poll(int epoll_fd) {
    for (uint32_t i = 0; i < cpus; i++)
        if (rings[i].page)
            epoll_ctl(epoll_fd, EPOLL_CTL_ADD, rings[i].fd,
                      &(struct epoll_event){.events = EPOLLIN, .data.fd = rings[i].fd});
}

int sm_copies_tick(void) {
    int have_begun = 0;
    for (sm_process *p = sm.has_switches ? sm_processes() : NULL; p; p = p->next)
        if (p->has_events && !p->end_ns)
            tick_of(p);
        else if (p->copied.is_on) {
            ask_of(p);
            sm_python_find(p);
        } else if (is_due(p))
            begin(p);
    for (sm_process *p = sm_processes(); p; p = p->next)
        if (p->copied.is_read_later && !p->copied.wakes && !p->end_ns) {
            begin_waking(p);
            have_begun = 1;
        }
    return have_begun;
}

/* The process has handed its area over, or has ended. */
void sm_copies_stop(sm_process *p) {
    p->copied.is_on = 0;
    close_events(p);
}

/* The thread gets the signal from now on, or has ended. */
void sm_copies_end(sm_thread *t) {
    for (uint32_t i = 0; i < t->copied.count; i++)
        close(t->copied.fds[i]);
    free(t->copied.fds);
    t->copied.fds = NULL;
    t->copied.count = 0;
}
