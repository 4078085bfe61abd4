/* The kernel's rings: three for each CPU, which all threads share that ran on it. One tells of new threads and of ends,
 * another what the kernel does for threads; both are waited for. The third has the switches, who ends waits and what is
 * mapped, and is only emptied each round.
 *
 * The events are dummies that count nothing: a thread that is added has its records written, and by inheritance so have
 * all threads and processes that it begins. Nothing of the kernel is asked for, so no right is needed. Two others, that
 * do (wakeups.c, kernel_time.c), are opened where they may. */
#define _GNU_SOURCE
#include "rings.h"

#include "kernel_time.h"
#include "perf_event.h"
#include "recording.h"
#include "wakeups.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Together they stay below what every user may lock for each CPU (perf_event_mlock_kb, 516 KiB). */
#define SWITCH_PAGES 64u
#define ROOT_SWITCH_PAGES 256u /* whom nothing limits */
#define TASK_PAGES 32u
#define KERNEL_PAGES 16u
#define ROOT_KERNEL_PAGES 128u
/* Of the stack of a thread that is in the kernel. */
#define KERNEL_STACK_BYTES 8192u
#define ROOT_KERNEL_STACK_BYTES 24576u
#define RECORD_MOST 65536u
/* A switch or the beginning of a thread; names of files that are mapped are longer. */
#define RECORD_LARGE 256u

typedef struct {
    int fd;
    struct perf_event_mmap_page *page;
    const uint8_t *data;
    uint64_t size, tail, head;
    uint64_t time; /* of the record at `tail`, ~0: there is none */
    int is_full;   /* when it was taken from last: the kernel says only later what it has lost */
} ring;

enum { TASKS = 0, SWITCHES = 1, KERNEL = 2, EACH = 3 };
static ring *rings; /* of CPU i: EACH i + TASKS and so on */
static uint32_t count;
static uint8_t whole[RECORD_MOST];

int sm_rings_open(void) {
    int failed = sm_cpus_find();
    if (failed)
        return failed;
    count = sm_cpus();
    rings = calloc(EACH * (size_t)count, sizeof *rings);
    if (!rings)
        return -ENOMEM;
    sm_wakeups_prepare();
    for (uint32_t i = 0; i < EACH * count; i++)
        rings[i].fd = -1;
    return 0;
}

/* With fewer pages where the user may not lock so many. */
static int map(ring *r, int fd, uint32_t pages) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (; pages; pages /= 2) {
        void *at = mmap(NULL, (1 + pages) * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            continue;
        *r = (ring){fd, at, (const uint8_t *)at + page, (uint64_t)pages * page, 0, 0, ~0ull, 0};
        return 0;
    }
    return -errno;
}

/* The event `fd`, or minus an errno, writes into the ring: the first one has it made. */
static int share(ring *r, int fd, uint32_t pages) {
    if (fd < 0)
        return fd;
    if (r->fd < 0) {
        int failed = map(r, fd, pages);
        if (failed)
            close(fd);
        return failed;
    }
    if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, r->fd)) {
        int failed = -errno;
        close(fd);
        return failed;
    }
    return 0; /* it stays open as long as we are: closing it would end what its thread has begun */
}

static int add(ring *r, int32_t tid, int cpu, int is_task) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_DUMMY};
    a.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU;
    a.inherit = a.sample_id_all = a.exclude_kernel = a.exclude_hv = a.use_clockid = 1;
    a.clockid = CLOCK_MONOTONIC;
    a.watermark = 1;
    a.wakeup_watermark = is_task ? 1 : 0xffffffffu;
    if (is_task)
        a.task = a.comm = a.comm_exec = 1;
    else
        a.context_switch = a.mmap = a.mmap2 = 1;
    uint32_t pages = is_task ? TASK_PAGES : geteuid() ? SWITCH_PAGES : ROOT_SWITCH_PAGES;
    return share(r, sm_perf_event_open(&a, tid, cpu), pages);
}

static uint32_t kernel_stack_bytes(void) {
    return geteuid() ? KERNEL_STACK_BYTES : ROOT_KERNEL_STACK_BYTES;
}

static int add_kernel(ring *r, int32_t tid, int cpu) {
    int fd = sm_kernel_open(tid, cpu, kernel_stack_bytes());
    int failed = share(r, fd, geteuid() ? KERNEL_PAGES : ROOT_KERNEL_PAGES);
    return failed ? failed : sm_kernel_keep(fd);
}

int sm_rings_add_clock(int32_t tid, uint32_t place, uint64_t period_ns) {
    ring *r = &rings[EACH * place + KERNEL];
    if (r->fd < 0)
        return -ENODEV;
    int fd = sm_kernel_open_first(tid, sm_cpu(place), kernel_stack_bytes(), period_ns);
    int failed = share(r, fd, 0);
    return failed ? failed : fd;
}

int sm_rings_add(int32_t tid) {
    int added = 0, failed = 0;
    for (uint32_t i = 0; i < count; i++) {
        ring *of = &rings[EACH * i];
        int task = add(&of[TASKS], tid, sm_cpu(i), 1);
        int switches = task ? task : add(&of[SWITCHES], tid, sm_cpu(i), 0);
        if (!task && !switches) {
            added++;
            sm_wakeups_add(tid, sm_cpu(i), of[SWITCHES].fd);
            sm.has_kernel |= !add_kernel(&of[KERNEL], tid, sm_cpu(i));
        } else if (task != -ENODEV) /* a CPU that has been taken away */
            failed = task ? task : switches;
    }
    failed = failed ? failed : added ? 0 : -ENODEV;
    sm.has_switches |= !failed;
    return failed;
}

/* --- Reading --- */

static void copy_at(const ring *r, uint64_t at, void *into, size_t bytes) {
    sm_ring_copy(r->data, r->size, at, into, bytes);
}

/* The time stands 16 bytes before the end of each record, but of samples behind the thread. */
static void look(ring *r) {
    struct perf_event_header h;
    r->time = ~0ull;
    if (r->tail == r->head)
        return;
    copy_at(r, r->tail, &h, sizeof h);
    if (h.size < sizeof h + 24 || r->tail + h.size > r->head)
        r->tail = r->head; /* not as the kernel writes them: nothing in it can be told apart */
    else
        copy_at(r, r->tail + (h.type == PERF_RECORD_SAMPLE ? sizeof h + 8u : h.size - 16u), &r->time, sizeof r->time);
}

static void take_from(ring *r, uint64_t until, void (*apply)(const void *record)) {
    do {
        struct perf_event_header h;
        copy_at(r, r->tail, &h, sizeof h);
        copy_at(r, r->tail, whole, h.size);
        r->tail += h.size;
        if ((r - rings) % EACH != KERNEL)
            apply(whole);
        else if (h.type == PERF_RECORD_SAMPLE) /* of others that were lost it is enough that the clock went on */
            sm_kernel_take(whole);
        look(r);
    } while (r->time <= until && r->time != ~0ull);
}

/* Calls `apply` with every record that was made before that time, of all rings in its order. The ends of the rings are
 * looked at one after another: what was made meanwhile is there of some CPUs only, and left for later. */
void sm_rings_take(void (*apply)(const void *record), uint64_t until_ns) {
    for (uint32_t i = 0; i < EACH * count; i++)
        if (rings[i].fd >= 0) {
            rings[i].head = __atomic_load_n(&rings[i].page->data_head, __ATOMIC_ACQUIRE);
            if (rings[i].head != rings[i].tail)
                rings[i].is_full = rings[i].head - rings[i].tail + RECORD_LARGE > rings[i].size;
            look(&rings[i]);
        }
    for (;;) {
        ring *earliest = NULL;
        uint64_t next = until_ns - 1;
        for (uint32_t i = 0; i < EACH * count; i++) {
            ring *r = &rings[i];
            if (r->fd < 0 || r->time == ~0ull)
                continue;
            if (!earliest || r->time < earliest->time) {
                next = earliest && earliest->time < next ? earliest->time : next;
                earliest = r;
            } else if (r->time < next)
                next = r->time;
        }
        if (!earliest || earliest->time >= until_ns)
            break;
        take_from(earliest, next, apply);
        __atomic_store_n(&earliest->page->data_tail, earliest->tail, __ATOMIC_RELEASE);
    }
}

/* How many rings had no room when they were taken from last: something that nobody told of was lost. */
uint32_t sm_rings_full(void) {
    uint32_t full = 0;
    for (uint32_t i = 0; i < EACH * count; i++)
        full += i % EACH != KERNEL && rings[i].is_full;
    return full;
}

/* --- Waiting --- */

void sm_rings_poll(int epoll_fd) {
    for (uint32_t i = 0; i < EACH * count; i++)
        if (i % EACH != SWITCHES && rings[i].fd >= 0)
            epoll_ctl(epoll_fd, EPOLL_CTL_ADD, rings[i].fd,
                      &(struct epoll_event){.events = EPOLLIN, .data.fd = rings[i].fd});
}

int sm_rings_wait(int epoll_fd, int timeout_ms, int socket_fd) {
    struct epoll_event events[32];
    int has_message = 0, found = epoll_wait(epoll_fd, events, 32, timeout_ms);
    for (int i = 0; i < found; i++) {
        has_message |= events[i].data.fd == socket_fd;
        /* Its thread and all that it began are gone, and it would say so for ever. */
        if (events[i].data.fd != socket_fd && events[i].events & (EPOLLHUP | EPOLLERR))
            epoll_ctl(epoll_fd, EPOLL_CTL_DEL, events[i].data.fd, NULL);
    }
    return has_message;
}
