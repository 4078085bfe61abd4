/* What the programs in C and C++ share: clocks around batches of work and waits, and the truth,
 * which every process prints at its end as one line of JSON. */
#ifndef PLANTED_H
#define PLANTED_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static struct {
    char kind[24], name[120];
    long long ns;
} planted_found[32];
static int planted_count;
static long long planted_begin, planted_duration;
static pthread_mutex_t planted_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile double planted_sink __attribute__((unused));

static inline long long planted_now(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static inline long long planted_cpu(void) { return planted_now(CLOCK_THREAD_CPUTIME_ID); }

static inline void planted_start(const char *seconds) {
    planted_begin = planted_now(CLOCK_MONOTONIC);
    planted_duration = (long long)(1e9 * atof(seconds ? seconds : "2"));
}

/* Some hundreds of microseconds each. */
static inline __attribute__((always_inline)) double planted_work(double x) {
    for (int i = 0; i < 100000; i++) x = x * 0.999999 + 1e-6;
    return x;
}

/* At times with up to 10 ms of work that nobody judges, so that the turns of a program do not keep
 * step with the samples of a tool. */
static NOINLINE int planted_going(void) {
    if (rand() % 4 == 0)
        for (int left = rand() % 40; left > 0; left--) planted_sink = planted_work(1);
    return planted_now(CLOCK_MONOTONIC) - planted_begin < planted_duration;
}

static inline void planted_add(const char *kind, const char *name, long long ns) {
    pthread_mutex_lock(&planted_lock);
    int i = 0;
    while (i < planted_count &&
           (strcmp(planted_found[i].kind, kind) || strcmp(planted_found[i].name, name)))
        i++;
    if (i == planted_count && i < 32) {
        snprintf(planted_found[i].kind, sizeof planted_found[i].kind, "%s", kind);
        snprintf(planted_found[i].name, sizeof planted_found[i].name, "%s", name);
        planted_count++;
    }
    if (i < 32) planted_found[i].ns += ns;
    pthread_mutex_unlock(&planted_lock);
}

/* A batch on the CPU of this thread. */
#define PLANTED_CPU(kind, name, ...)                     \
    do {                                                 \
        long long begin_ns_ = planted_cpu();             \
        __VA_ARGS__;                                     \
        planted_add(kind, name, planted_cpu() - begin_ns_); \
    } while (0)

/* A wait of this thread: its kind. */
#define PLANTED_WAIT(state, ...)                                                        \
    do {                                                                                \
        long long cpu_ns_ = planted_cpu(), begin_ns_ = planted_now(CLOCK_MONOTONIC);    \
        __VA_ARGS__;                                                                    \
        planted_add("wait", state,                                                      \
                    planted_now(CLOCK_MONOTONIC) - begin_ns_ - (planted_cpu() - cpu_ns_)); \
    } while (0)

static inline void planted_finish(void) {
    printf("{\"truth\": {");
    for (int i = 0; i < planted_count; i++) {
        int is_first = 1;
        for (int j = 0; j < i; j++)
            if (!strcmp(planted_found[i].kind, planted_found[j].kind)) is_first = 0;
        if (!is_first) continue;
        printf("%s\"%s\": {", i ? ", " : "", planted_found[i].kind);
        for (int j = i; j < planted_count; j++)
            if (!strcmp(planted_found[i].kind, planted_found[j].kind))
                printf("%s\"%s\": %.9f", j > i ? ", " : "", planted_found[j].name,
                       planted_found[j].ns / 1e9);
        printf("}");
    }
    printf("}, \"cpu\": %.9f, \"wall\": %.9f}\n", planted_now(CLOCK_PROCESS_CPUTIME_ID) / 1e9,
           (planted_now(CLOCK_MONOTONIC) - planted_begin) / 1e9);
    fflush(stdout);
}

/* Some tens of microseconds each, in the kernel. */
static inline __attribute__((always_inline)) void planted_kernel(void) {
    static int zero = -1;
    static char block[1 << 20];
    if (zero < 0) zero = open("/dev/zero", O_RDONLY);
    if (read(zero, block, sizeof block) < 0) abort();
}
#endif
