/* A program with the agent inside that does known things and says what it measured itself.
 * usage: known SOCKET MODE [NUMBER]. It begins with a line on stdin, and prints lines of JSON. Compile it with -rdynamic: it looks its functions up. */
#define _GNU_SOURCE
#include "agent/agent.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern uint32_t ls_sampling_least_python;

#define NOINLINE __attribute__((noinline, visibility("default")))
#define MS 1000000l

static int number;

static uint64_t now(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int gettid_here(void) { return (int)syscall(SYS_gettid); }

/* Where the code of a function lies in the file. */
static void say_function(const char *name, void *function) {
    Dl_info info;
    const ElfW(Sym) *symbol;
    if (!dladdr1(function, &info, (void **)&symbol, RTLD_DL_SYMENT))
        abort();
    printf("{\"function\": \"%s\", \"first\": %lu, \"last\": %lu}\n", name, (unsigned long)symbol->st_value,
           (unsigned long)(symbol->st_value + symbol->st_size));
}

static volatile uint64_t sink;
NOINLINE void sixty(long rounds) {
    for (long i = 0; i < rounds; i++)
        sink += (uint64_t)i * (uint64_t)i;
}
NOINLINE void forty(long rounds) {
    for (long i = 0; i < rounds; i++)
        sink += (uint64_t)i * (uint64_t)i;
}

static void burn(uint64_t ns) {
    for (uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ns; now(CLOCK_THREAD_CPUTIME_ID) < end;)
        sixty(20000);
}

/* --- 60 to 40 --- */

static void split(void) {
    uint64_t first = 0, second = 0, limit = (uint64_t)number * (uint64_t)MS;
    while (first + second < limit) {
        uint64_t a = now(CLOCK_THREAD_CPUTIME_ID);
        sixty(600000);
        uint64_t b = now(CLOCK_THREAD_CPUTIME_ID);
        forty(400000);
        first += b - a;
        second += now(CLOCK_THREAD_CPUTIME_ID) - b;
    }
    printf("{\"tid\": %d, \"sixty_ns\": %lu, \"forty_ns\": %lu}\n", gettid_here(), (unsigned long)first,
           (unsigned long)second);
}

/* --- Waits --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static _Atomic int is_held;

static void say_waited(const char *what, uint64_t wall, uint64_t cpu, uint64_t begun, uint64_t ended) {
    printf("{\"what\": \"%s\", \"tid\": %d, \"off_ns\": %ld, \"begun\": %lu, \"ended\": %lu}\n", what, gettid_here(),
           (long)(wall - cpu), (unsigned long)begun, (unsigned long)ended);
}

NOINLINE void sleep_under_lock(void) {
    pthread_mutex_lock(&lock);
    is_held = 1;
    nanosleep(&(struct timespec){0, 50 * MS}, NULL);
    is_held = 0;
    pthread_mutex_unlock(&lock);
}
NOINLINE void wait_for_lock(void) {
    while (!is_held)
        usleep(1000);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
}

static void *waiter(void *unused) {
    uint64_t begun = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < number; i++)
        wait_for_lock();
    uint64_t used = now(CLOCK_THREAD_CPUTIME_ID) - cpu, ended = now(CLOCK_MONOTONIC);
    say_waited("waiter", ended - begun, used, begun, ended);
    return unused;
}

static void locks(void) {
    pthread_t other;
    pthread_create(&other, NULL, waiter, NULL);
    uint64_t begun = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < number; i++) {
        sleep_under_lock();
        usleep(5000); /* the other one takes it */
    }
    uint64_t used = now(CLOCK_THREAD_CPUTIME_ID) - cpu, ended = now(CLOCK_MONOTONIC);
    say_waited("sleeper", ended - begun, used, begun, ended);
    while (pthread_tryjoin_np(other, NULL))
        sleep_under_lock();
}

static void *reader(void *unused) {
    char byte;
    uint64_t begun = now(CLOCK_MONOTONIC), cpu = now(CLOCK_THREAD_CPUTIME_ID);
    while (read(ends[0], &byte, 1) == 1 && byte)
        continue;
    uint64_t used = now(CLOCK_THREAD_CPUTIME_ID) - cpu, ended = now(CLOCK_MONOTONIC);
    say_waited("reader", ended - begun, used, begun, ended);
    return unused;
}

static void files(int is_socket) {
    pthread_t other;
    if (is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends))
        abort();
    pthread_create(&other, NULL, reader, NULL);
    for (char i = 5; i >= 0; i--) {
        usleep(60000);
        if (write(ends[1], &i, 1) != 1)
            abort();
    }
    pthread_join(other, NULL);
}

static void *mover(void *unused) {
    for (int i = 1; i <= number; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(i % 2, &one);
        if (sched_setaffinity(0, sizeof one, &one))
            abort();
        burn(MS);
    }
    printf("{\"moved\": %d, \"tid\": %d}\n", number, gettid_here());
    return unused;
}

/* A thread that begins on CPU 0 and moves `number` times. */
static void moves(void) {
    pthread_t other;
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    if (sched_setaffinity(0, sizeof first, &first))
        abort();
    pthread_create(&other, NULL, mover, NULL);
    pthread_join(other, NULL);
}

/* --- Threads --- */

static _Atomic uint64_t used_ns;

static void *one_ms(void *unused) {
    burn(MS);
    used_ns += now(CLOCK_THREAD_CPUTIME_ID);
    return unused;
}

static void short_threads(void) {
    for (int i = 0; i < number; i++) {
        pthread_t other;
        pthread_create(&other, NULL, one_ms, NULL);
        pthread_join(other, NULL);
    }
    printf("{\"threads\": %d, \"used_ns\": %lu}\n", number, (unsigned long)used_ns);
}

static void *several_ms(void *barrier) {
    ls_sampling_thread_begins(); /* as threads that Python begins do */
    pthread_barrier_wait(barrier);
    burn(20 * MS);
    used_ns += now(CLOCK_THREAD_CPUTIME_ID);
    pthread_barrier_wait(barrier);
    return NULL;
}

static void many_threads(void) {
    pthread_barrier_t barrier;
    pthread_attr_t small;
    pthread_t *others = calloc((size_t)number, sizeof *others);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&barrier, NULL, (unsigned)number + 1);
    for (int i = 0; i < number; i++)
        if (pthread_create(&others[i], &small, several_ms, &barrier))
            abort();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < number; i++)
        pthread_join(others[i], NULL);
    printf("{\"threads\": %d, \"used_ns\": %lu}\n", number, (unsigned long)used_ns);
}

/* --- Faults, forks, deaths --- */

NOINLINE void touch(volatile char *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 4096)
        memory[i] = 1;
}

static void faults(void) {
    struct rusage before, after;
    size_t bytes = (size_t)number << 12;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    getrusage(RUSAGE_THREAD, &before);
    touch(memory, bytes);
    getrusage(RUSAGE_THREAD, &after);
    printf("{\"faults\": %ld}\n", after.ru_minflt - before.ru_minflt);
}

/* Asks the kernel for its pid again and again. */
NOINLINE void ask(uint64_t ns) {
    for (uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ns; now(CLOCK_THREAD_CPUTIME_ID) < end;)
        for (int i = 0; i < 1000; i++)
            sink += (uint64_t)syscall(SYS_getppid);
}

/* Takes pages and gives them back. */
NOINLINE void fill(uint64_t ns) {
    size_t bytes = 64u << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    for (uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ns; now(CLOCK_THREAD_CPUTIME_ID) < end;) {
        touch(memory, bytes);
        madvise(memory, bytes, MADV_DONTNEED);
    }
    munmap(memory, bytes);
}

static void in_kernel(void) {
    uint64_t half = (uint64_t)number * (uint64_t)MS / 2;
    ask(half);
    fill(half);
    printf("{\"tid\": %d, \"half_ns\": %lu}\n", gettid_here(), (unsigned long)half);
}

static void forks(void) {
    pid_t pid = fork();
    if (!pid) {
        burn((uint64_t)number * (uint64_t)MS);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    printf("{\"child\": %d}\n", pid);
}

static void on_signal(int unused) { (void)unused; }

static void takes_the_signal(void) {
    struct sigaction own = {.sa_handler = on_signal};
    sigaction(SIGURG, &own, NULL);
    burn((uint64_t)number * (uint64_t)MS);
}

int main(int count, char **words) {
    const char *mode = count > 2 ? words[2] : "";
    number = count > 3 ? atoi(words[3]) : 0;
    int uses_timers = getenv("TIMERS") != NULL;
    ls_sampling_least_python = 0;
    if (ls_prepare(words[1], "", 0) || ls_sampling_start(99, uses_timers))
        return 9;
    while (getchar() != '\n') /* until it is sampled */
        continue;
    say_function("sixty", sixty);
    say_function("forty", forty);
    say_function("sleep_under_lock", sleep_under_lock);
    say_function("wait_for_lock", wait_for_lock);
    say_function("touch", touch);
    say_function("ask", ask);
    say_function("fill", fill);
    if (!strcmp(mode, "split"))
        split();
    else if (!strcmp(mode, "locks"))
        locks();
    else if (!strcmp(mode, "pipe") || !strcmp(mode, "socket"))
        files(*mode == 's');
    else if (!strcmp(mode, "moves"))
        moves();
    else if (!strcmp(mode, "short"))
        short_threads();
    else if (!strcmp(mode, "many"))
        many_threads();
    else if (!strcmp(mode, "faults"))
        faults();
    else if (!strcmp(mode, "kernel"))
        in_kernel();
    else if (!strcmp(mode, "forks"))
        forks();
    else if (!strcmp(mode, "takes"))
        takes_the_signal();
    else if (!strcmp(mode, "dies")) {
        burn((uint64_t)number * (uint64_t)MS);
        kill(getpid(), SIGKILL);
    } else if (!strcmp(mode, "burn"))
        burn((uint64_t)number * (uint64_t)MS);
    else
        return 8;
    fflush(stdout);
    return 0;
}
