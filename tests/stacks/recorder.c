/* A library that interrupts threads at random times, and writes down their registers, their stacks and what libgcc's
 * unwinder makes of them. recorder_finish waits until its standard input ends: the process is read meanwhile. */
#define _GNU_SOURCE
#include "oracle.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#define RANGES_MOST 16

static int file = -1;
static volatile int left;
static struct {
    uint64_t start, end;
    unsigned above;
} ranges[RANGES_MOST];
static int range_count;
static oracle_frame expected[FRAMES_MOST];
static unsigned expected_count;
static _Thread_local timer_t timer;
static _Thread_local unsigned seed;
static _Thread_local struct {
    oracle_sample sample;
    oracle_frame frames[FRAMES_MOST];
    uint8_t stack[STACK_MOST];
} *record;

/* Where libgcc's own code lies. Before it jumps to the handler of an exception it puts the registers of that frame
 * where its own are saved: it cannot come out of its own frame then, and may even crash. */
static uint64_t libgcc_start, libgcc_end;

static int find_libgcc(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    (void)arg;
    if (!strstr(info->dlpi_name, "libgcc_s"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            libgcc_start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            libgcc_end = libgcc_start + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

static void rearm(void) {
    seed = seed * 1103515245 + 12345;
    struct itimerspec at = {.it_value = {0, 20000 + (seed >> 8) % 300000}};
    timer_settime(timer, 0, &at, NULL);
}

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *arg) {
    oracle_sample *s = arg;
    int exact = 0;
    uint64_t ip = _Unwind_GetIPInfo(context, &exact);
    if (!s->frames && !(exact && ip == s->registers[LF_RIP] && _Unwind_GetCFA(context) == s->registers[LF_RSP]))
        return _URC_NO_REASON; /* still in the handler */
    if (!ip || s->frames == FRAMES_MOST)
        return _URC_END_OF_STACK;
    record->frames[s->frames++] = (oracle_frame){ip - !exact, _Unwind_GetCFA(context)};
    return _URC_NO_REASON;
}

static size_t copy_stack(uint64_t from) {
    size_t done = 0;
    while (done < STACK_MOST) {
        size_t bytes = 4096 - ((from + done) & 4095);
        bytes = bytes < STACK_MOST - done ? bytes : STACK_MOST - done;
        struct iovec here = {record->stack + done, bytes}, there = {(void *)(from + done), bytes};
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != (ssize_t)bytes)
            break;
        done += bytes;
    }
    return done;
}

/* Where libgcc cannot go on, the answer is what the program has said before. */
static int answered(oracle_sample *s) {
    for (int i = 0; i < range_count; i++) {
        if (s->registers[LF_RIP] < ranges[i].start || s->registers[LF_RIP] >= ranges[i].end || !expected_count)
            continue;
        memset(record->frames, 0, ranges[i].above * sizeof(oracle_frame));
        record->frames[0] = (oracle_frame){s->registers[LF_RIP], s->registers[LF_RSP]};
        memcpy(record->frames + ranges[i].above, expected, expected_count * sizeof(oracle_frame));
        s->frames = ranges[i].above + expected_count;
        return 1;
    }
    return 0;
}

static _Unwind_Reason_Code expect(struct _Unwind_Context *context, void *skip) {
    int exact = 0;
    uint64_t ip = _Unwind_GetIPInfo(context, &exact);
    if ((*(int *)skip)-- > 0)
        return _URC_NO_REASON;
    if (ip && expected_count < FRAMES_MOST) {
        /* It will be at another place when it is looked at, in the same frame. */
        expected[expected_count] = (oracle_frame){expected_count ? ip - !exact : 0, _Unwind_GetCFA(context)};
        expected_count++;
    }
    return _URC_NO_REASON;
}

/* Samples in the code from `start` to `end` have `above` frames of which nothing is known, then the caller of this. */
void recorder_range(const void *start, const void *end, unsigned above) {
    ranges[range_count].start = (uint64_t)start;
    ranges[range_count].end = (uint64_t)end;
    ranges[range_count++].above = above;
}

/* The caller is the last whose frame is known: samples in ranges come to it. */
__attribute__((noinline)) void recorder_expect(void) {
    int skip = 1;
    expected_count = 0;
    _Unwind_Backtrace(expect, &skip);
}

void recorder_forget(void) { expected_count = 0; }

static void handler(int number, siginfo_t *info, void *context) {
    static const int order[LF_REGISTERS] = {REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                            REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                            REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
    (void)number;
    (void)info;
    int saved = errno;
    oracle_sample *s = &record->sample;
    if (!record || left <= 0)
        return;
    for (int i = 0; i < LF_REGISTERS; i++)
        s->registers[i] = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[order[i]];
    if (s->registers[LF_RIP] >= libgcc_start && s->registers[LF_RIP] < libgcc_end) {
        rearm();
        return;
    }
    s->frames = 0;
    s->bytes = copy_stack(s->registers[LF_RSP]);
    if (!answered(s))
        _Unwind_Backtrace(visit, s);
    struct iovec parts[] = {
        {s, sizeof *s}, {record->frames, s->frames * sizeof(oracle_frame)}, {record->stack, s->bytes}};
    if (left > 0 && writev(file, parts, 3) > 0)
        __atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED);
    rearm();
    errno = saved;
}

/* Starts with this thread; each other thread calls recorder_thread. */
void recorder_thread(void) {
    record = malloc(sizeof *record);
    memset(record, 0, sizeof *record);
    seed = (unsigned)syscall(SYS_gettid) * 2654435761u;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer))
        abort();
    rearm();
}

void recorder_start(const char *path, unsigned samples) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    left = (int)samples;
    dl_iterate_phdr(find_libgcc, NULL);
    sigaction(SIGURG, &action, NULL);
    recorder_thread();
}

int recorder_wants_more(void) { return left > 0; }

void recorder_finish(void) {
    char byte;
    left = 0;
    if (write(1, "done\n", 5) != 5)
        abort();
    while (read(0, &byte, 1) > 0 || errno == EINTR)
        errno = 0;
}
