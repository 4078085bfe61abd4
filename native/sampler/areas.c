/* The areas of samples: memory of the program, which may hold anything. Each record is copied before it is looked at,
 * lengths are checked, and memory that goes away under us ends the area and nothing else. */
#define _GNU_SOURCE
#include "areas.h"

#include "output.h"
#include "recording.h"
#include "session.h"

#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES (256u << 10)

struct sm_area {
    sm_process *process;
    lf_message message; /* that handed it over */
    lt_quality before;  /* what its handlers had counted when a sampler before us was gone */
    lf_samples_header *header;
    const uint8_t *ring;
    size_t bytes; /* mapped */
    uint64_t capacity;
    int is_broken;
    uint64_t stuck_at, stuck_ns, stuck_end; /* the record that is not published, since when, what was reserved then */
};

static uint8_t copy[COPY_BYTES] __attribute__((aligned(16)));
static sigjmp_buf gone;
static volatile sig_atomic_t is_reading;

static void on_bus_error(int number) {
    if (is_reading)
        siglongjmp(gone, 1);
    signal(number, SIG_DFL); /* a fault of ours: it ends us when it comes again */
}

static void count(const lf_samples_header *h, lt_quality *sum) {
    sum->lost += h->lost_full + h->lost_busy;
    sum->handler_ns += h->handler_ns;
    sum->signals += h->samples + h->lost_full + h->lost_busy + h->foreign;
}

/* 0: it is an area, and what it says. */
static int read_facts(sm_area *area, sm_area_facts *facts) {
    const lf_samples_header *h = area->header;
    uint32_t capacity = __atomic_load_n(&h->capacity, __ATOMIC_RELAXED); /* it may be another one a moment later */
    if (h->magic != LF_SAMPLES_MAGIC || h->version != LF_LAYOUT_VERSION || capacity % 16 || !capacity
        || capacity > area->bytes - LF_SAMPLES_HEADER)
        return -1;
    area->capacity = capacity;
    *facts = (sm_area_facts){.pid = h->pid, .python = h->python, .python_eval = h->python_eval,
                             .python_runtime = h->python_runtime, .uses_timers = !!h->uses_timers,
                             .has_handler = !!h->has_handler, .is_signalled = !!h->is_signalled};
    return 0;
}

static int ask_facts(sm_area *area, sm_area_facts *facts) {
    int failed = -1;
    is_reading = 1;
    if (!sigsetjmp(gone, 1))
        failed = read_facts(area, facts);
    is_reading = 0;
    return failed;
}

/* The descriptor, which is closed, as an area that nobody has looked at yet; NULL: it cannot be mapped. */
static sm_area *map(const lf_message *m, int fd) {
    struct stat found;
    sm_area *area = calloc(1, sizeof *area);
    void *at = MAP_FAILED;
    if (area && !fstat(fd, &found) && found.st_size >= (off_t)(2 * LF_SAMPLES_HEADER)
        && found.st_size <= (off_t)LF_SAMPLES_BYTES)
        at = mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) {
        free(area);
        return NULL;
    }
    *area = (sm_area){.message = *m, .header = at, .ring = (uint8_t *)at + LF_SAMPLES_HEADER,
                      .bytes = (size_t)found.st_size};
    return area;
}

sm_area *sm_area_open(const lf_message *m, int fd, sm_area_facts *facts) {
    sm_area *area = map(m, fd);
    if (!area) {
        sm_session_give_back(m);
        return NULL;
    }
    signal(SIGBUS, on_bus_error);
    if (!ask_facts(area, facts))
        return area;
    sm_area_free(area);
    return NULL;
}

/* Whose it is. What its handlers have counted so far a sampler before us has told. */
void sm_area_belongs_to(sm_area *area, sm_process *process) {
    area->process = process;
    process->area = area;
    is_reading = 1;
    if (sm.generation && !sigsetjmp(gone, 1))
        count(area->header, &area->before);
    is_reading = 0;
}

/* Adds what the handlers of the process have counted. */
void sm_area_count(const sm_area *area, lt_quality *sum) {
    is_reading = 1;
    if (!area->is_broken && !sigsetjmp(gone, 1)) {
        count(area->header, sum);
        sum->lost -= area->before.lost;
        sum->handler_ns -= area->before.handler_ns;
        sum->signals -= area->before.signals;
    }
    is_reading = 0;
}

/* What `of_header` says; 0: the memory is gone. Within another reading, that one ends. */
static uint64_t ask(const sm_area *area, uint64_t (*of_header)(lf_samples_header *, int32_t), int32_t tid) {
    volatile uint64_t answer = 0;
    if (area->is_broken)
        return 0;
    if (is_reading)
        return of_header(area->header, tid);
    is_reading = 1;
    if (!sigsetjmp(gone, 1))
        answer = of_header(area->header, tid);
    is_reading = 0;
    return answer;
}

static uint64_t has_handler(lf_samples_header *h, int32_t tid) {
    (void)tid;
    return __atomic_load_n(&h->has_handler, __ATOMIC_ACQUIRE);
}

static uint64_t puts_of(lf_samples_header *h, int32_t tid) {
    (void)tid;
    return __atomic_load_n(&h->signalled_puts, __ATOMIC_ACQUIRE);
}

static int32_t *place_of(lf_samples_header *h, int32_t tid) {
    for (uint32_t probe = 0; probe < LF_SIGNALLED_PROBES; probe++) {
        int32_t *place = &h->signalled[lf_signalled_place(tid, probe)];
        if (__atomic_load_n(place, __ATOMIC_ACQUIRE) == tid)
            return place;
    }
    return NULL;
}

static uint64_t signalled_ns(lf_samples_header *h, int32_t tid) {
    if (!place_of(h, tid))
        return 0;
    return h->first_tid == tid && h->first_ns && h->first_ns < sm.now_ns ? h->first_ns : sm.now_ns;
}

static uint64_t forget(lf_samples_header *h, int32_t tid) {
    int32_t *place = place_of(h, tid), expected = tid;
    return place && __atomic_compare_exchange_n(place, &expected, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Whether the program handles the signal of samples itself. */
int sm_area_has_handler(const sm_area *area) { return !!ask(area, has_handler, 0); }

/* How often a thread was put into the table of those that may be sent that signal. */
uint32_t sm_area_puts(const sm_area *area) { return (uint32_t)ask(area, puts_of, 0); }

/* Since when that thread is in there; 0: it is not. Of those that came later: now. */
uint64_t sm_area_signalled(const sm_area *area, int32_t tid) { return ask(area, signalled_ns, tid); }

/* The thread has ended: its number may be another one's soon. */
void sm_area_forget(const sm_area *area, int32_t tid) { ask(area, forget, tid); }

uint64_t sm_area_lost(const sm_area *area) {
    return area->header->lost_full + area->header->lost_busy;
}

void sm_area_free(sm_area *area) {
    if (area->process) {
        area->process->area = NULL;
        sm_area_count(area, &sm.quality);
    }
    munmap(area->header, area->bytes);
    sm_session_give_back(&area->message);
    free(area);
}

int sm_area_is_behind(const sm_area *area) {
    return area->stuck_ns && !area->is_broken;
}

/* --- Reading --- */

/* The position of the next record that is published, from `from` on; `until` if there is none. */
static uint64_t next_published(const sm_area *a, uint64_t from, uint64_t until) {
    for (; from < until; from += 16) {
        const lf_sample_head *head = (const lf_sample_head *)(a->ring + from % a->capacity);
        if (__atomic_load_n(&head->commit, __ATOMIC_ACQUIRE) == from + 1)
            return from;
    }
    return until;
}

/* The record at `at` is not published. Where to go on, `at` if it still may be. */
static uint64_t pass_stuck(sm_area *a, uint64_t at, uint64_t reserved) {
    if (!a->stuck_ns || a->stuck_at != at) {
        a->stuck_at = at, a->stuck_ns = sm.now_ns, a->stuck_end = reserved;
        return at;
    }
    if (sm.now_ns < a->stuck_ns + SM_STUCK_NS && !sm.is_over)
        return at;
    a->stuck_ns = 0;
    sm.quality.lost++;
    return next_published(a, at + 16, a->stuck_end);
}

/* The next record into `copy`, and its bytes; 0: it is none. */
static uint32_t copy_record(const sm_area *a, uint64_t at, uint64_t reserved) {
    const lf_sample_head *head = (const lf_sample_head *)(a->ring + at % a->capacity);
    uint32_t bytes = __atomic_load_n(&head->bytes, __ATOMIC_RELAXED);
    if (bytes < sizeof *head || bytes % 16 || bytes > reserved - at || bytes > a->capacity - at % a->capacity)
        return 0;
    memcpy(copy, head, bytes < sizeof copy ? bytes : sizeof copy);
    ((lf_sample_head *)copy)->bytes = bytes;
    return bytes;
}

static void take_all(sm_area *a, sm_take *take) {
    uint64_t reserved = __atomic_load_n(&a->header->reserved, __ATOMIC_ACQUIRE), at = a->header->consumed;
    if (reserved < at || reserved - at > a->capacity || reserved % 16 || at % 16)
        at = reserved &= ~15ull; /* nothing there can be trusted */
    while (at < reserved) {
        const lf_sample_head *head = (const lf_sample_head *)(a->ring + at % a->capacity);
        if (__atomic_load_n(&head->commit, __ATOMIC_ACQUIRE) != at + 1) {
            uint64_t next = pass_stuck(a, at, reserved);
            if (next == at)
                break;
            at = next;
            continue;
        }
        a->stuck_ns = 0;
        uint32_t bytes = copy_record(a, at, reserved);
        if (bytes && bytes <= sizeof copy)
            take(a->process, (const lf_sample_head *)copy, bytes);
        else if (!bytes)
            sm.quality.lost++;
        at = bytes ? at + bytes : next_published(a, at + 16, reserved);
        /* At once, so that threads that run meanwhile have room. */
        __atomic_store_n(&a->header->consumed, at, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&a->header->consumed, at, __ATOMIC_RELEASE);
}

void sm_area_take(sm_area *a, sm_take *take) {
    if (a->is_broken)
        return;
    is_reading = 1;
    if (!sigsetjmp(gone, 1)) {
        take_all(a, take);
    } else {
        a->is_broken = 1;
        sm_problem("area_gone", a->process->pid, "stacks of that process from then on",
                   "leave the memory of layerscope alone", "process %d has cut its area of samples short",
                   a->process->pid);
    }
    is_reading = 0;
}
