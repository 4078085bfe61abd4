/* A program without the agent that does known things and says what it measured itself.
 * usage: plain split MS | threads MS | faults MS | moves MS | zeros MS | children MS | writes MS | reads. Prints one line
 * of JSON, `children` one for each; `writes` keeps stdout for bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static uint64_t now(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static __thread volatile uint64_t sink;
NOINLINE void seventy(long rounds) {
    for (long i = 0; i < rounds; i++)
        sink += (uint64_t)i * (uint64_t)i;
}
NOINLINE void thirty(long rounds) {
    for (long i = 0; i < rounds; i++)
        sink += (uint64_t)i * (uint64_t)i;
}

static uint64_t limit_ns;

static void split(uint64_t measured[2]) {
    while (measured[0] + measured[1] < limit_ns) {
        uint64_t a = now(CLOCK_THREAD_CPUTIME_ID);
        seventy(700000);
        uint64_t b = now(CLOCK_THREAD_CPUTIME_ID);
        thirty(300000);
        measured[0] += b - a;
        measured[1] += now(CLOCK_THREAD_CPUTIME_ID) - b;
    }
}

NOINLINE long touch(void) {
    const size_t bytes = 64 << 20;
    struct rusage before, after;
    char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || madvise(pages, bytes, MADV_NOHUGEPAGE))
        abort();
    getrusage(RUSAGE_SELF, &before);
    for (size_t at = 0; at < bytes; at += 4096)
        pages[at] = 1;
    getrusage(RUSAGE_SELF, &after);
    munmap(pages, bytes);
    return after.ru_minflt - before.ru_minflt;
}

/* From CPU to CPU, often. */
static void moves(void) {
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may))
        abort();
    for (int cpu = 0; now(CLOCK_THREAD_CPUTIME_ID) < limit_ns; cpu = (cpu + 1) % CPU_SETSIZE) {
        if (!CPU_ISSET(cpu, &may))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        for (uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + 3700000; now(CLOCK_THREAD_CPUTIME_ID) < end;)
            seventy(20000);
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("{\"system_ns\": %ld}\n", used.ru_stime.tv_sec * 1000000000l + used.ru_stime.tv_usec * 1000l);
}

/* In the kernel nearly all the time. */
static void zeros(void) {
    static char bytes[1 << 20];
    int file = open("/dev/zero", O_RDONLY);
    while (now(CLOCK_PROCESS_CPUTIME_ID) < limit_ns)
        if (read(file, bytes, sizeof bytes) < 0)
            abort();
    printf("{\"pid\": %d, \"used_ns\": %lu}\n", getpid(), (unsigned long)now(CLOCK_PROCESS_CPUTIME_ID));
}

static void children(char **words) {
    char *command[] = {words[0], "zeros", words[2], NULL};
    for (int i = 0; i < 6; i++) {
        pid_t child;
        if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, command, environ))
            abort();
        waitpid(child, NULL, 0);
    }
}

static void *thread(void *unused) {
    uint64_t measured[2] = {0, 0};
    split(measured);
    return unused;
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    uint64_t measured[2] = {0, 0};
    limit_ns = count > 2 ? strtoull(words[2], NULL, 10) * 1000000u : 0;
    if (!strcmp(mode, "split")) {
        split(measured);
        printf("{\"seventy_ns\": %lu, \"thirty_ns\": %lu}\n", (unsigned long)measured[0], (unsigned long)measured[1]);
    } else if (!strcmp(mode, "threads")) {
        pthread_t others[3];
        split(measured); /* so that it is sampled when they begin */
        for (int i = 0; i < 3; i++)
            if (pthread_create(&others[i], NULL, thread, NULL))
                abort();
        for (int i = 0; i < 3; i++)
            pthread_join(others[i], NULL);
        pid_t child = fork();
        if (!child) {
            thread(NULL);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        printf("{\"child\": %d}\n", child);
    } else if (!strcmp(mode, "faults")) {
        long faults = 0;
        split(measured); /* so that it is sampled when they begin */
        for (int i = 0; i < 4; i++)
            faults += touch();
        printf("{\"faults\": %ld}\n", faults);
    } else if (!strcmp(mode, "moves")) {
        moves();
    } else if (!strcmp(mode, "zeros")) {
        zeros();
    } else if (!strcmp(mode, "children")) {
        split(measured); /* so that it is sampled when they begin */
        children(words);
    } else if (!strcmp(mode, "writes")) {
        split(measured);
        usleep(300000);
        if (write(1, "x", 1) != 1)
            abort();
    } else if (!strcmp(mode, "reads")) {
        char byte;
        split(measured);
        while (read(0, &byte, 1) == 1)
            continue;
        printf("{\"read\": 1}\n");
    } else
        return 2;
    fflush(stdout);
    return 0;
}
