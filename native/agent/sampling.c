/* Stacks by sampling: the sampler beside the program opens an event on each thread that tells the thread by SIGURG when
 * it has run for another period, or, where that is not allowed, a timer of ours does. The handler copies registers,
 * stack and the frames of Python into the shared area; all else is done outside.
 *
 * SIGURG is ignored unless the program uses it. What is not ours is passed on (signal_handler.c). */
#define _GNU_SOURCE
#include "sampling.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static ls_sampled_process *sampled; /* NULL: sampling has not started in this process or one that forked it */
static _Atomic int is_on;
static uint32_t uses_timers;
static int can_read, period_ns;
static const char cookie; /* its address is in the signals of our timers */

/* A signal can hurt code that expects none. Without frames of Python, which only we can read, the sampler does without:
 * the kernel copies the stacks of such processes. */
uint32_t ls_sampling_least_python = LF_PYTHON_3_11; /* tests in C lower it */
static int is_signalled(void) { return ls_python.version >= ls_sampling_least_python; }

/* --- A sample --- */

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void take_registers(uint64_t into[LF_REGISTERS], const ucontext_t *context) {
    static const uint8_t order[LF_REGISTERS] = {
        [LF_RAX] = REG_RAX, [LF_RDX] = REG_RDX, [LF_RCX] = REG_RCX, [LF_RBX] = REG_RBX, [LF_RSI] = REG_RSI,
        [LF_RDI] = REG_RDI, [LF_RBP] = REG_RBP, [LF_RSP] = REG_RSP, [LF_R8] = REG_R8,   [LF_R9] = REG_R9,
        [LF_R10] = REG_R10, [LF_R11] = REG_R11, [LF_R12] = REG_R12, [LF_R13] = REG_R13, [LF_R14] = REG_R14,
        [LF_R15] = REG_R15, [LF_RIP] = REG_RIP};
    for (int i = 0; i < LF_REGISTERS; i++)
        into[i] = (uint64_t)context->uc_mcontext.gregs[order[i]];
}

/* The frames of Python of this thread into the scratch; how many, LS_NUMBER_NO_ROOM: they cannot be written down. */
static int take_frames(ls_sampled_process *process, ls_scratch *s, uint16_t *flags) {
    int is_known = can_read && ls_python.version > LF_PYTHON_UNKNOWN;
    uint64_t state = is_known ? (uint64_t)(uintptr_t)ls_python.thread_state() : 0, at = s->stack_at;
    lu_python_left_out left_out = {0};
    int most = (int)LF_SAMPLES_FRAMES_MOST - 1, used = 0;
    int walked = state ? lu_python_walk(ls_python.version, state, at, ls_read_here, s, s->found, most, &left_out) : 0;
    walked = walked < 0 ? 0 : walked;
    int count = ls_read_codes(s, ls_python.version, walked);
    for (int i = 0; i < count; i++) {
        if (left_out.between && i == left_out.behind)
            s->frames[used++] = (lf_sample_frame){LF_BETWEEN, (uint32_t)left_out.between};
        int64_t number = ls_samples_code(process, s, &s->found[i]);
        if (number == LS_NUMBER_NO_ROOM)
            return LS_NUMBER_NO_ROOM;
        if (number == LS_NUMBER_NO_CODE)
            count = i;
        else
            s->frames[used++] = (lf_sample_frame){(uint32_t)number, s->found[i].place};
    }
    if (left_out.is_cut || count < walked)
        *flags |= LF_SAMPLE_FRAMES_CUT;
    return used;
}

/* All but the head of the record of a sample whose stack and frames lie in the scratch. */
static void write_sample(lf_sample *into, const ls_scratch *s, const siginfo_t *info, const ucontext_t *context,
                         uint32_t frames) {
    int by_timer = info->si_code == SI_TIMER;
    into->tid = (int32_t)syscall(SYS_gettid);
    into->event = by_timer ? -1 : info->si_fd;
    into->count = by_timer ? (uint32_t)info->si_overrun + 1 : 0;
    into->frames = frames;
    into->stack_bytes = (uint32_t)s->stack_bytes;
    into->pad = 0;
    take_registers(into->registers, context);
    lf_sample_frame *to = (lf_sample_frame *)(into + 1);
    memcpy(to, s->frames, frames * sizeof *to);
    memcpy(to + frames + frames % 2, s->stack, s->stack_bytes);
}

static void take_sample(ls_sampled_process *process, lf_samples_header *area, ls_scratch *s, const siginfo_t *info,
                        const ucontext_t *context, uint64_t ran_ns) {
    uint64_t at_ns = ls_monotonic_ns(), position;
    uint16_t flags = info->si_code == SI_TIMER ? LF_SAMPLE_TIMER : 0;
    s->pid = area->pid;
    s->stack_bytes = 0;
    if (can_read && ls_read_stack(s, (uint64_t)context->uc_mcontext.gregs[REG_RSP]))
        flags |= LF_SAMPLE_STACK_CUT;
    flags |= s->stack_bytes ? 0 : LF_SAMPLE_STACK_NONE;
    int frames = take_frames(process, s, &flags);
    size_t even = frames > 0 ? (size_t)(frames + frames % 2) : 0;
    size_t bytes = (sizeof(lf_sample) + even * sizeof(lf_sample_frame) + s->stack_bytes + 15) & ~(size_t)15;
    lf_sample *record = frames < 0 ? NULL : (lf_sample *)ls_samples_reserve(area, bytes, &position);
    if (!record) {
        __atomic_add_fetch(&area->lost_full, 1, __ATOMIC_RELAXED);
        return;
    }
    record->at_ns = at_ns;
    record->cpu_ns = ran_ns;
    write_sample(record, s, info, context, (uint32_t)frames);
    ls_samples_commit(&record->head, bytes, LF_SAMPLE_STACK, flags, position);
    __atomic_add_fetch(&area->samples, 1, __ATOMIC_RELAXED);
}

static void account(lf_samples_header *area, uint64_t ns) {
    __atomic_add_fetch(&area->handler_ns, ns, __ATOMIC_RELAXED);
    uint64_t most = LS_LOAD(area->handler_most_ns);
    while (ns > most && !__atomic_compare_exchange_n(&area->handler_most_ns, &most, ns, 0, __ATOMIC_RELAXED,
                                                     __ATOMIC_RELAXED))
        continue;
}

/* How samples are taken, for the sampler. */
static void say_how(lf_samples_header *area) {
    area->uses_timers = uses_timers;
    area->is_signalled = (uint32_t)is_signalled();
    area->has_handler = (uint32_t)ls_disposition_has_handler();
}

/* The area of this process; a forked child makes its own at its first signal. NULL: there is none, or this is a child
 * that borrows the memory of its parent until it executes another program. */
static lf_samples_header *area_here(ls_sampled_process *process) {
    lf_samples_header *area = atomic_load_explicit(&process->area, memory_order_acquire);
    if (!area && !atomic_exchange(&process->is_making_area, 1)) {
        area = atomic_load(&process->area);
        if (!area)
            atomic_store(&process->area, area = ls_samples_area(say_how));
        atomic_store(&process->is_making_area, 0);
    }
    return area && area->pid == getpid() ? area : NULL;
}

/* The same for those who are not told by a signal. NULL: nothing is sampled. */
lf_samples_header *ls_sampling_area(void) {
    return atomic_load(&is_on) ? area_here(sampled) : NULL;
}

/* The area of this process whether samples are taken now or not; NULL: it has made none. */
static lf_samples_header *area_made(void) {
    lf_samples_header *area = sampled ? atomic_load(&sampled->area) : NULL;
    return area && area->pid == getpid() ? area : NULL;
}

/* The program handles the signal from now on: the sampler sends no more, and timers end when they come. */
static void end_signals(void) {
    lf_samples_header *area = ls_sampling_area();
    if (area)
        __atomic_store_n(&area->has_handler, 1, __ATOMIC_RELEASE);
}

static void sample(const siginfo_t *info, const ucontext_t *context) {
    uint64_t ran_ns = cpu_ns();
    ls_sampled_process *process = sampled;
    lf_samples_header *area = area_here(process);
    if (!area)
        return;
    if (LS_LOAD(area->has_handler) && info->si_code == SI_TIMER)
        syscall(SYS_timer_settime, info->si_timerid, 0, &(struct itimerspec){0}, NULL);
    for (uint32_t i = 0; i < LS_SCRATCHES; i++)
        if (!LS_LOAD(process->busy[i]) && !atomic_exchange_explicit(&process->busy[i], 1, memory_order_acquire)) {
            take_sample(process, area, &process->scratch[i], info, context, ran_ns);
            atomic_store_explicit(&process->busy[i], 0, memory_order_release);
            account(area, cpu_ns() - ran_ns);
            return;
        }
    __atomic_add_fetch(&area->lost_busy, 1, __ATOMIC_RELAXED);
}

/* --- The signal --- */

static void pass_on(int number, siginfo_t *info, void *context) {
    lf_samples_header *area = atomic_load_explicit(&sampled->area, memory_order_relaxed);
    if (area)
        __atomic_add_fetch(&area->foreign, 1, __ATOMIC_RELAXED);
    ls_disposition_pass_on(number, info, context);
}

static int is_by_timer(const siginfo_t *info) { return info->si_code == SI_TIMER && info->si_ptr == &cookie; }

static void on_signal(int number, siginfo_t *info, void *context) {
    int kept = errno, is_by_event = info->si_code >= POLL_IN && info->si_code <= POLL_HUP;
    if (!is_by_event && !is_by_timer(info))
        pass_on(number, info, context);
    else if (atomic_load_explicit(&is_on, memory_order_relaxed))
        sample(info, context);
    errno = kept;
}

/* --- Timers --- */

/* A timer of the calling thread, by the CPU time that it takes; its number plus one, 0: none. */
static uint32_t timer_make(int32_t tid) {
    struct sigevent how = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
    int id;
    how.sigev_value.sival_ptr = (void *)(uintptr_t)&cookie;
    how.sigev_notify_thread_id = tid;
    if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &how, &id))
        return 0;
    struct timespec period = {period_ns / 1000000000, period_ns % 1000000000};
    struct itimerspec setting = {period, period};
    syscall(SYS_timer_settime, id, 0, &setting, NULL);
    return (uint32_t)id + 1;
}

static void timer_end(uint32_t *timer) {
    if (*timer)
        syscall(SYS_timer_delete, (int)*timer - 1);
    *timer = 0;
}

/* A thread of the program begins, or is seen by the agent for the first time. */
void ls_sampling_thread_begins(void) {
    lf_samples_header *area = is_signalled() ? ls_sampling_area() : NULL;
    uint32_t *timer = area ? ls_signal_stack_begin(area) : NULL;
    if (timer && uses_timers && !*timer)
        *timer = timer_make((int32_t)syscall(SYS_gettid));
}

static const ls_signalled_threads threads = {ls_sampling_thread_begins, timer_end, area_made};

/* --- Start and stop --- */

static int begin(int hz, int with_timers) {
    if (hz <= 0 || hz > 10000)
        return -EINVAL;
    if (!ls.wiped)
        return -EAGAIN;
    if (atomic_load(&is_on))
        return 0;
    ls_sampled_process *process = sampled;
    if (!process) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        process = mmap(NULL, sizeof *process, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (process == MAP_FAILED)
            return -ENOMEM;
        if (madvise(process, sizeof *process, MADV_WIPEONFORK)) {
            munmap(process, sizeof *process);
            return -ENOSYS;
        }
        sampled = process;
        can_read = ls_can_read();
        process->scratch[0].pid = getpid();
        ls_interpreter_find(&process->scratch[0]);
    }
    period_ns = 1000000000 / hz;
    uses_timers = with_timers != 0;
    if (!area_here(process))
        return -ECONNREFUSED;
    atomic_store(&is_on, 1);
    if (!is_signalled())
        return 0;
    if (ls_disposition_take(on_signal, end_signals) || ls_signal_stack_prepare(&threads)) {
        atomic_store(&is_on, 0);
        return -EINVAL;
    }
    lf_samples_header *area = area_here(process);
    area->first_ns = ls_monotonic_ns();
    area->first_tid = (int32_t)syscall(SYS_gettid);
    ls_sampling_thread_begins();
    return 0;
}

/* Take samples of this process's threads, `hz` times in each second that a thread runs; `with_timers`: by timers of its
 * own, of the calling thread and those that record. After ls_prepare. 0, or minus an errno. */
LS_EXPORT int ls_sampling_start(int hz, int with_timers) {
    ls_lock_beginning();
    int was_on = atomic_load(&is_on), failed = begin(hz, with_timers);
    ls_unlock_beginning();
    if (failed && failed != -EAGAIN)
        ls_mark("stacks_refused\nthis process has no memory for samples, or may not share it", LF_MARK_PROBLEM, 0);
    else if (!failed && !was_on && with_timers && !is_signalled())
        ls_mark("stacks_unsignalled\na signal could hurt this process, and the kernel gives no events in its place",
                LF_MARK_PROBLEM, 0);
    else if (!failed && !was_on && !can_read)
        ls_mark("stacks_unreadable\nthis process may not read its own stacks (process_vm_readv)", LF_MARK_PROBLEM, 0);
    return failed;
}

/* Take no more. The signal goes back to what was there before, unless somebody else has taken it since. */
LS_EXPORT void ls_sampling_stop(void) {
    ls_lock_beginning();
    if (atomic_exchange(&is_on, 0)) {
        if (is_signalled()) {
            ls_signal_stack_give_back();
            ls_disposition_give_back();
        }
        ls_yama_forbid();
    }
    ls_unlock_beginning();
}
