/* A program with the agent inside that is told to take samples of itself: at known places it sends itself the signal that
 * an event of the sampler would send. usage: sampling_driver SOCKET MODE [NUMBER]. It prints what must have been seen. */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "samples.h"

#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern uint32_t ls_sampling_least_python;

LS_EXPORT int ls_prepare(const char *name, const char *library_path, int use_tsc);

static int number = 100;

/* --- Allocations --- */

#if !defined(__SANITIZE_ADDRESS__)
extern void *__libc_malloc(size_t bytes);
static _Atomic int is_counting, allocations;
void *malloc(size_t bytes) {
    allocations += is_counting;
    return __libc_malloc(bytes);
}
#endif

/* --- Signals as events send them --- */

static void fill(siginfo_t *info, int code) {
    memset(info, 0, sizeof *info);
    info->si_signo = SIGURG;
    info->si_code = code;
    if (code == POLL_IN) {
        info->si_fd = 77;
        info->si_band = 1;
    }
}

static void tick(void) {
    siginfo_t info;
    fill(&info, POLL_IN);
    syscall(SYS_rt_tgsigqueueinfo, getpid(), (int)syscall(SYS_gettid), SIGURG, &info);
}

static void wait_for_line(void) {
    fflush(stdout);
    int c;
    while ((c = getchar()) != '\n' && c != EOF)
        continue;
}

static void start(const char *socket, int uses_timers) {
    ls_sampling_least_python = 0;
    if (ls_prepare(socket, "", 0) || ls_sampling_start(uses_timers ? 1000 : 99, uses_timers))
        _exit(3);
}

/* --- Modes --- */

typedef struct {
    uint64_t rbx, r12, r13, r14, r15, rsp, rip;
} known;

/* The signal comes at the end of a system call, between the last two labels' instructions. */
static __attribute__((noinline)) void tick_with_known_registers(const siginfo_t *info, known *k) {
    long result = SYS_rt_tgsigqueueinfo, pid = getpid(), tid = syscall(SYS_gettid), signal = SIGURG;
    register long a4 __asm__("r10") = (long)info; /* the last: calls do not keep it */
    __asm__ volatile("mov $0x1111, %%rbx\n mov $0x2222, %%r12\n mov $0x3333, %%r13\n mov $0x4444, %%r14\n"
                     "mov $0x5555, %%r15\n mov %%rsp, %1\n lea 1f(%%rip), %%r8\n mov %%r8, %2\n syscall\n1:\n"
                     : "+a"(result), "=m"(k->rsp), "=m"(k->rip)
                     : "D"(pid), "S"(tid), "d"(signal), "r"(a4)
                     : "rcx", "r8", "r11", "rbx", "r12", "r13", "r14", "r15", "memory");
}

static __attribute__((noinline)) int inner(void) {
    static void *addresses[32];
    volatile uint64_t pattern[8];
    for (uint64_t i = 0; i < 8; i++)
        pattern[i] = 0x5eed000000000000u + i * 0x0101010101u;
    siginfo_t info;
    known k;
    fill(&info, POLL_IN);
    int count = backtrace(addresses, 32);
    tick_with_known_registers(&info, &k);
    printf("%llu %llu %llu\n", (unsigned long long)k.rsp, (unsigned long long)k.rip,
           (unsigned long long)(uintptr_t)pattern);
    for (int i = 1; i < count; i++)
        printf("%llu ", (unsigned long long)(uintptr_t)addresses[i]);
    puts("");
    return (int)pattern[3];
}

static __attribute__((noinline)) int middle(void) { return inner() + 1; }
static __attribute__((noinline)) int outer(void) { return middle() + 1; }

static void *ticking(void *unused) {
    (void)unused;
    for (int i = 0; i < 10; i++)
        tick();
    return NULL;
}

static void on_small_stacks(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
    for (int i = 0; i < number; i++) {
        pthread_t thread;
        pthread_create(&thread, &attributes, ticking, NULL);
        pthread_join(thread, NULL);
    }
}

static void handler_that_ticks(int unused) {
    (void)unused;
    tick();
}

static void on_another_stack(void) {
    stack_t stack = {.ss_size = 64 << 10};
    stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = handler_that_ticks, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    tick();
    raise(SIGUSR1);
    printf("%llu\n", (unsigned long long)(uintptr_t)stack.ss_sp);
}

static void blocked(void) {
    sigset_t urgent;
    sigemptyset(&urgent);
    sigaddset(&urgent, SIGURG);
    pthread_sigmask(SIG_BLOCK, &urgent, NULL);
    tick();
    tick();
    pthread_sigmask(SIG_UNBLOCK, &urgent, NULL);
}

static _Atomic int informed, simple, was_masked, last_code;
static void on_informed(int signal, siginfo_t *info, void *context) {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    was_masked = sigismember(&now, SIGURG) && sigismember(&now, SIGUSR2) && !sigismember(&now, SIGUSR1);
    informed += signal == SIGURG && context != NULL;
    last_code = info->si_code;
}
static void on_simple(int signal) { simple += signal == SIGURG; }

static void send(int code) {
    siginfo_t info;
    fill(&info, code);
    syscall(SYS_rt_tgsigqueueinfo, getpid(), (int)syscall(SYS_gettid), SIGURG, &info);
}

/* A handler of the program's from before us, and another that it sets afterwards. */
static void with_handlers(const char *socket) {
    struct sigaction its = {.sa_sigaction = on_informed, .sa_flags = SA_SIGINFO}, now;
    sigaddset(&its.sa_mask, SIGUSR2);
    sigaction(SIGURG, &its, NULL);
    start(socket, 0);
    tick();
    send(SI_QUEUE);
    raise(SIGURG);
    send(SI_TIMER); /* of a timer of its own */
    printf("%d %d %d\n", informed, was_masked, last_code == SI_TIMER);
    ls_sampling_stop();
    sigaction(SIGURG, NULL, &now);
    printf("%d\n", now.sa_sigaction == on_informed);
    tick();
    printf("%d\n", informed);
    signal(SIGURG, SIG_DFL);
    ls_sampling_start(99, 0);
    raise(SIGURG); /* is ignored */
    tick();
    signal(SIGURG, on_simple);
    raise(SIGURG);
    ls_sampling_stop();
    raise(SIGURG);
    printf("%d\n", simple);
}

static void once(const char *socket) {
    struct sigaction its = {.sa_handler = on_simple, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGURG, &its, NULL);
    start(socket, 0);
    for (int i = 0; i < 3; i++)
        raise(SIGURG);
    printf("%d\n", simple);
}

static void *busy(void *state) {
    volatile uint64_t *sum = state;
    for (int i = 0; i < 3000000; i++)
        *sum += (uint64_t)i * i;
    free(malloc((size_t)(*sum % 1000) + 1));
    return NULL;
}

static void in_threads(void) {
    for (int i = 0; i < number; i++) {
        pthread_t threads[4];
        static uint64_t sums[4];
        for (int t = 0; t < 4; t++)
            pthread_create(&threads[t], NULL, busy, &sums[t]);
        for (int t = 0; t < 4; t++)
            pthread_join(threads[t], NULL);
    }
}

static _Atomic int is_over;
static void *busy_without_end(void *state) {
    while (!is_over)
        busy(state);
    return NULL;
}

/* Until somebody has seen enough of them. */
static void in_threads_that_stay(void) {
    pthread_t threads[4];
    static uint64_t sums[4];
    for (int t = 0; t < 4; t++)
        pthread_create(&threads[t], NULL, busy_without_end, &sums[t]);
    wait_for_line();
    is_over = 1;
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
}

static void *ticks_without_end(void *unused) {
    while (!is_over)
        tick();
    return unused;
}

static void in_children(void) {
    pthread_t threads[2];
    for (int t = 0; t < 2; t++)
        pthread_create(&threads[t], NULL, ticks_without_end, NULL);
    for (int i = 0; i < number; i++) {
        pid_t child = fork();
        if (!child) {
            for (int n = 0; n < 5; n++)
                tick();
            _exit(0);
        }
        waitpid(child, NULL, 0);
        printf("%d ", child);
    }
    is_over = 1;
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    pid_t borrower = vfork();
    if (!borrower) {
        tick();
        _exit(0);
    }
    waitpid(borrower, NULL, 0);
    printf("\n%d\n", borrower);
}

static void without_reading(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(4);
}

int main(int argc, char **argv) {
    (void)argc;
    const char *mode = argv[2];
    number = argv[3] ? atoi(argv[3]) : number;
    if (!strcmp(mode, "handlers"))
        with_handlers(argv[1]);
    else if (!strcmp(mode, "once"))
        once(argv[1]);
    if (!strcmp(mode, "refused"))
        without_reading();
    start(argv[1], !strcmp(mode, "timers"));
    if (!strcmp(mode, "known"))
        outer();
    else if (!strcmp(mode, "small"))
        on_small_stacks();
    else if (!strcmp(mode, "altstack"))
        on_another_stack();
    else if (!strcmp(mode, "blocked"))
        blocked();
    else if (!strcmp(mode, "threads") || !strcmp(mode, "timers"))
        in_threads();
    else if (!strcmp(mode, "staying"))
        in_threads_that_stay();
    else if (!strcmp(mode, "children"))
        in_children();
    else if (!strcmp(mode, "refused"))
        tick();
#if !defined(__SANITIZE_ADDRESS__)
    else if (!strcmp(mode, "allocations")) {
        is_counting = 1;
        for (int i = 0; i < number; i++)
            tick();
        void *volatile counted = malloc(1);
        free(counted);
        is_counting = 0;
        printf("%d\n", allocations);
    }
#endif
    else if (!strcmp(mode, "full"))
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < number; i++)
                tick();
            puts("");
            wait_for_line();
        }
    wait_for_line();
    return 0;
}
