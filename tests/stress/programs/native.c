/* Hard things that a program in C does. It is sampled like any other: it loads the agent as a library that uses ITT would.
 * usage: native MODE SEED SECONDS. What it prints follows from these alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int rounds;
static unsigned seed;
extern char **environ;

static int chosen(int most) { return rand_r(&seed) % most; }

static void open_door(void) {
    const char *agent = getenv("INTEL_LIBITTNOTIFY64");
    void *library = agent ? dlopen(agent, RTLD_NOW) : NULL;
    int (*door)(void) = NULL;
    if (library)
        *(void **)&door = dlsym(library, "ls_door_open");
    if (door)
        door();
}

static __attribute__((noinline)) uint64_t burn(int us) {
    struct timespec t;
    uint64_t x = 1, ends = 0;
    for (;;) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        uint64_t now = (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000;
        ends = ends ? ends : now + (uint64_t)us;
        if (now >= ends)
            return x;
        for (int i = 0; i < 500; i++)
            x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    }
}

static _Atomic int is_over;
static void *busy(void *unused) {
    while (!is_over)
        burn(1000);
    return unused;
}

static void in_threads(int count, size_t stack, void *(*function)(void *)) {
    pthread_t threads[count];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack)
        pthread_attr_setstacksize(&attributes, stack);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], &attributes, function, NULL))
            abort();
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* --- Stacks --- */

static void *on_own_stack(void *unused) {
    burn(3000);
    return unused;
}

static void small(void) {
    for (int i = 0; i < rounds; i++)
        in_threads(8, 16 << 10, on_own_stack);
    printf("%d threads\n", 8 * rounds);
}

static __attribute__((noinline)) int deeper(int left) {
    volatile char room[1024];
    memset((char *)room, left, sizeof room);
    int below = left ? deeper(left - 1) : (burn(20000), 0);
    return below + (room[left % 1024] == (char)left);
}

static void *is_deep(void *unused) {
    printf("%d\n", deeper(4000));
    return unused;
}

static void deep(void) {
    for (int i = 0; i < rounds; i++)
        in_threads(1, 16 << 20, is_deep);
}

static volatile sig_atomic_t handled, nested_fault;
static void on_user(int number) {
    burn(2000);
    handled += number == SIGUSR1;
}

static void alternate_stack(size_t bytes) {
    stack_t stack = {.ss_size = bytes};
    stack.ss_sp = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sigaltstack(&stack, NULL))
        abort();
}

static void *on_alternate_stacks(void *unused) {
    alternate_stack(16 << 10);
    for (int i = 0; i < rounds; i++) {
        burn(1000);
        raise(SIGUSR1);
    }
    return unused;
}

static void alternate(void) {
    struct sigaction action = {.sa_handler = on_user, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    on_alternate_stacks(NULL);
    printf("%d\n", (int)handled);
    in_threads(3, 0, on_alternate_stacks);
}

/* A fault on a stack that is full is handled on another one, and the program dies of it as it would. */
static void on_fault(int number) {
    burn(20000);
    write(1, "fault\n", 6);
    signal(number, SIG_DFL);
}

static __attribute__((noinline)) int without_end(int number) {
    volatile char room[4096];
    memset((char *)room, number, sizeof room);
    return without_end(number + 1) + room[5];
}

static void overflow(void) {
    alternate_stack(16 << 10);
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    burn(20000);
    exit(without_end(0));
}

/* --- Interrupted calls --- */

static _Atomic int interrupted[8], asked;
static void note(int call, long result) {
    interrupted[call] += result < 0 && errno == EINTR;
    asked++;
}

static void *calls(void *unused) {
    int pipes[2], queue = epoll_create1(EPOLL_CLOEXEC), listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct timeval timeout = {0, 500};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event;
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    if (pipe(pipes) || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1))
        abort();
    int receiver = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    bind(receiver, (struct sockaddr *)&address, sizeof address);
    for (int i = 0; i < rounds; i++) {
        struct timespec short_ns = {0, 300000};
        struct pollfd polled = {pipes[0], POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(pipes[0], &set);
        struct timeval most = {0, 300};
        char byte;
        uint32_t word = 0;
        burn(300);
        note(0, poll(&polled, 1, 1));
        burn(100);
        note(1, select(pipes[0] + 1, &set, NULL, NULL, &most));
        burn(100);
        note(2, epoll_wait(queue, &event, 1, 1));
        burn(100);
        note(3, nanosleep(&short_ns, NULL));
        burn(100);
        note(4, recv(receiver, &byte, 1, 0));
        burn(100);
        note(5, syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &short_ns, NULL, 0));
        burn(100);
        clock_gettime(CLOCK_REALTIME, &short_ns);
        short_ns.tv_nsec = (short_ns.tv_nsec + 300000) % 1000000000;
        note(6, sem_timedwait(&semaphore, &short_ns));
        note(7, accept(listener, NULL, NULL));
    }
    close(pipes[0]), close(pipes[1]), close(queue), close(listener), close(receiver);
    return unused;
}

static void interrupts(void) {
    in_threads(4, 0, calls);
    printf("%d calls:", asked);
    for (int i = 0; i < 8; i++)
        printf(" %d", interrupted[i]);
    puts(" interrupted");
}

/* --- Signals --- */

static _Atomic int urgent, others;
static void on_urgent(int number, siginfo_t *info, void *context) {
    *(info->si_code <= 0 && info->si_pid == getpid() && context ? &urgent : &others) += number == SIGURG;
}

/* A handler from before: what is sent arrives, and nothing else. */
static void handled_before(void) {
    struct sigaction action = {.sa_sigaction = on_urgent, .sa_flags = SA_SIGINFO};
    sigaction(SIGURG, &action, NULL);
    open_door();
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, busy, NULL);
    for (int i = 0; i < rounds * 10; i++) {
        pthread_kill(threads[chosen(3)], SIGURG);
        while (urgent <= i)
            sched_yield();
    }
    is_over = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("%d and %d\n", urgent, others);
}

/* A handler from afterwards, which nobody sees: what is sent arrives. Ours may come too, until we notice. */
static void taken(void) {
    struct sigaction action = {.sa_sigaction = on_urgent, .sa_flags = SA_SIGINFO};
    sigaction(SIGURG, &action, NULL);
    for (int i = 0; i < rounds * 10; i++) {
        kill(getpid(), SIGURG);
        while (urgent <= i)
            sched_yield();
        burn(1000);
    }
    printf("%d\n", urgent);
}

static void *with_all_blocked(void *unused) {
    sigset_t every, pending;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, NULL);
    burn(100000);
    sigpending(&pending);
    sigdelset(&pending, SIGURG);
    for (int number = 1; number < 32; number++)
        others += sigismember(&pending, number);
    return unused;
}

static void blocked(void) {
    in_threads(6, 0, with_all_blocked);
    printf("%d\n", others);
}

/* --- Other programs --- */

static void *becomes(void *unused) {
    burn(chosen(20000));
    execl("/proc/self/exe", "native", "urgent_by_others", "1", "1", NULL);
    return unused;
}

static void executes(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, busy, NULL);
    pthread_create(&threads[0], NULL, becomes, NULL);
    pthread_join(threads[0], NULL);
}

/* What becomes of a program that is not sampled any more: nobody sends it what it handles. */
static void urgent_by_others(void) {
    struct sigaction action = {.sa_sigaction = on_urgent, .sa_flags = SA_SIGINFO};
    sigaction(SIGURG, &action, NULL);
    burn(300000);
    printf("%d and %d\n", urgent, others);
}

static void children(void) {
    pthread_t threads[2];
    int sum = 0, status;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, busy, NULL);
    for (int i = 0; i < rounds * 4; i++) {
        pid_t child;
        if (i % 3 == 0) {
            char *words[] = {"sh", "-c", "exit 3", NULL};
            if (posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ))
                abort();
        } else if (!(child = i % 3 == 1 ? fork() : vfork())) {
            if (i % 3 == 1)
                burn(12000);
            else
                execl("/bin/false", "false", NULL);
            _exit(5);
        }
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", sum);
}

static const struct {
    const char *name;
    void (*run)(void);
    int each_second;
} modes[] = {{"small", small, 20},          {"deep", deep, 10},
             {"alternate", alternate, 50},  {"overflow", overflow, 1},
             {"interrupts", interrupts, 40}, {"handled_before", handled_before, 50},
             {"taken", taken, 20},
             {"blocked", blocked, 1},       {"executes", executes, 1},
             {"urgent_by_others", urgent_by_others, 1}, {"children", children, 10}};

int main(int count, char **words) {
    if (count < 4)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    seed = (unsigned)atoi(words[2]);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].name, words[1])) {
            rounds = (int)(modes[i].each_second * atof(words[3]));
            rounds = rounds ? rounds : 1;
            if (modes[i].run != handled_before && modes[i].run != urgent_by_others)
                open_door();
            modes[i].run();
            return 0;
        }
    return 2;
}
