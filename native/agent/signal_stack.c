/* Which threads may be sent the signal of samples: those that have a stack for signals. The stack pointer of a thread
 * need not point to its stack. Code may use it for something else while no signal is expected: matrix kernels of oneDNN
 * point it into the heap, where the kernel would write the frame of the signal.
 *
 * So a thread gets a stack of ours when it begins, or when it meets the agent for the first time, and is then put into
 * the table of the area, where the sampler looks. Those that begin: the thread that starts sampling, and all that
 * Python begins later, because its way to pthread_create(3) leads here (imports.c). Of all others, such as the workers
 * of a library, the kernel copies the stacks (native/sampler/copied_stacks.c). */
#define _GNU_SOURCE
#include "sampling.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

#define GUARD_BYTES 4096u
/* As those of other runtimes: handlers of the program's own may come to run there. */
#define STACK_BYTES (64u << 10)
/* What our handler needs besides the frame that the kernel writes. */
#define HANDLER_BYTES 4096u

/* Of one thread, at the upper end of its mapping. */
typedef struct {
    pid_t pid; /* a forked child has it of its parent */
    int32_t tid;
    uint32_t timer; /* sampling.c */
    int is_in_table, has_our_stack;
} signalled;

static pthread_key_t key;
static int has_key;
static const ls_signalled_threads *threads;

static uint8_t *mapping_of(signalled *of) {
    return (uint8_t *)(of + 1) - GUARD_BYTES - STACK_BYTES;
}

static signalled *new_signalled(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    uint8_t *at = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    signalled *of = (signalled *)(at + GUARD_BYTES + STACK_BYTES) - 1;
    if (mprotect(at, GUARD_BYTES, PROT_NONE) || pthread_setspecific(key, of)) {
        munmap(at, GUARD_BYTES + STACK_BYTES);
        return NULL;
    }
    return of;
}

/* Whether the thread has a stack for signals, ours where it had none. The program's own may be too small for what the
 * kernel writes there: such a thread is not signalled. */
static int has_stack(signalled *of) {
    stack_t now, ours = {.ss_sp = mapping_of(of) + GUARD_BYTES, .ss_size = STACK_BYTES - sizeof *of};
    unsigned long least = getauxval(AT_MINSIGSTKSZ);
    if (sigaltstack(NULL, &now))
        return 0;
    if (!(now.ss_flags & SS_DISABLE))
        return now.ss_size >= (least ? least : (unsigned long)MINSIGSTKSZ) + HANDLER_BYTES;
    of->has_our_stack = !sigaltstack(&ours, NULL);
    return of->has_our_stack;
}

static void put_into_table(lf_samples_header *area, signalled *of) {
    for (uint32_t probe = 0; probe < LF_SIGNALLED_PROBES && !of->is_in_table; probe++) {
        int32_t *place = &area->signalled[lf_signalled_place(of->tid, probe)], expected = 0;
        of->is_in_table = __atomic_compare_exchange_n(place, &expected, of->tid, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
    if (of->is_in_table)
        __atomic_add_fetch(&area->signalled_puts, 1, __ATOMIC_RELEASE);
}

static void take_from_table(lf_samples_header *area, signalled *of) {
    for (uint32_t probe = 0; area && of->is_in_table && probe < LF_SIGNALLED_PROBES; probe++) {
        int32_t *place = &area->signalled[lf_signalled_place(of->tid, probe)], expected = of->tid;
        if (__atomic_compare_exchange_n(place, &expected, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return;
    }
}

/* The sampler learns of it later, so what it still sends this thread must not be delivered any more. */
static void refuse_signals(void) {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGURG);
    pthread_sigmask(SIG_BLOCK, &ours, NULL);
}

/* The thread ends. A stack that somebody has put another in place of stays: it may be put back. */
static void end(void *state) {
    signalled *of = state;
    stack_t now, none = {.ss_flags = SS_DISABLE};
    uint8_t *at = mapping_of(of);
    refuse_signals();
    if (of->pid == getpid()) {
        take_from_table(threads->area(), of);
        threads->end_timer(&of->timer);
    }
    int is_used = of->has_our_stack && !sigaltstack(NULL, &now)
        && (now.ss_flags & SS_DISABLE || now.ss_sp != at + GUARD_BYTES || sigaltstack(&none, NULL));
    if (!is_used)
        munmap(at, GUARD_BYTES + STACK_BYTES);
}

/* The calling thread may be sent the signal from now on, if that is safe. Its place for a timer; NULL: it may not. */
uint32_t *ls_signal_stack_begin(lf_samples_header *area) {
    signalled *of = has_key ? pthread_getspecific(key) : NULL;
    if (!of && has_key)
        of = new_signalled();
    if (!of)
        return NULL;
    if (of->pid != area->pid) {
        of->pid = area->pid;
        of->tid = (int32_t)syscall(SYS_gettid);
        of->timer = 0;
        of->is_in_table = 0;
        if (has_stack(of))
            put_into_table(area, of);
    }
    return of->is_in_table ? &of->timer : NULL;
}

/* --- Threads of Python --- */

typedef int create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
typedef struct {
    void *(*run)(void *);
    void *argument;
} beginning;

static create *real_create;

static void *begin_thread(void *of) {
    beginning b = *(beginning *)of;
    free(of);
    threads->begins();
    return b.run(b.argument);
}

/* In the place of pthread_create(3), for Python alone. */
static int create_of_python(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
    beginning *b = malloc(sizeof *b);
    ls_thread_names_begin(threads->area);
    if (!b)
        return real_create(thread, attributes, run, argument);
    *b = (beginning){run, argument};
    int failed = real_create(thread, attributes, begin_thread, b);
    if (failed)
        free(b);
    return failed;
}

static void lead_python(void *from, void *to) {
    void *python = dlsym(RTLD_DEFAULT, "PyThread_start_new_thread");
    if (python && from)
        ls_import_replace(python, "pthread_create", from, to);
}

/* Before any thread is let in. 0 or -1. */
int ls_signal_stack_prepare(const ls_signalled_threads *told) {
    threads = told;
    if (!has_key)
        has_key = !pthread_key_create(&key, end);
    *(void **)&real_create = dlsym(RTLD_DEFAULT, "pthread_create");
    lead_python(*(void **)&real_create, (void *)(uintptr_t)create_of_python);
    return has_key ? 0 : -1;
}

/* Threads that Python begins from now on are as they were. */
void ls_signal_stack_give_back(void) {
    lead_python((void *)(uintptr_t)create_of_python, *(void **)&real_create);
    ls_thread_names_end();
}
