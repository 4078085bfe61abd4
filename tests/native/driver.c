/* Drives the agent at full speed from several threads, with the stand-in for torch in the same program, so that
 * all of it can be built under a sanitizer. What it did is known: it prints counts, and in `tree` every span
 * carries its number on its thread, from which its depth and its parent follow.
 *
 * usage: driver SOCKET tree  THREADS COUNT PAUSE_US    COUNT operators a thread in a repeating tree
 *        driver SOCKET chaos THREADS COUNT SEED        ends out of order and on other threads, names of all kinds
 *        driver SOCKET windows THREADS COUNT SEED      the same, while only windows of it are recorded
 *        driver SOCKET memory THREADS COUNT SEED       COUNT blocks a thread, released by whichever thread comes by
 *        driver -      cost  1       COUNT REPEATS     CPU time of one operator in ns; COUNT below what a ring holds */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct record_function record_function;
record_function *fake_begin(const char *name, int scope, int64_t sequence, uint64_t forward_thread);
void fake_end(record_function *f);
void fake_run(const char *const *names, int kinds, uint64_t count);
int ls_prepare(const char *name, const char *library_path, int use_tsc);
int ls_torch_start(void);
void ls_operators_stop(void);
void ls_note_optimizer(uint32_t instance);
void ls_window_set(int64_t first, int64_t last, int64_t every, int by_time, const char *mark);
void ls_window_forks(void);
void ls_window_forked(int is_child);
void ls_allocation(const void *address, size_t bytes, unsigned by);
void ls_release(const void *address);
int ls_probe_record(const char *library, int sequence_offset, int use_tsc);

enum { FUNCTION = 0, BACKWARD = 1, RANGE = 7 };
/* Depths of the tree's spans in the order of their starts; the tests know the same list. */
static const int DEPTHS[] = {0, 1, 2, 2, 3, 1, 2, 3, 3, 2};
static const char *const NAMES[] = {"aten::add", "aten::mul", "aten::linear", "aten::t", "aten::addmm", "aten::relu",
                                    "aten::conv2d", "aten::convolution", "aten::_convolution", "aten::max_pool2d"};
enum { PATTERN = sizeof DEPTHS / sizeof *DEPTHS };

static uint64_t count;
static unsigned pause_us;
static int windows;
static _Atomic uint64_t begun, ended;

static void *tree(void *unused) {
    (void)unused;
    record_function *open[8];
    int depth = 0;
    for (uint64_t i = 0; i < count; i++) {
        int want = DEPTHS[i % PATTERN];
        while (depth > want)
            fake_end(open[--depth]);
        open[depth++] = fake_begin(NAMES[i % PATTERN], FUNCTION, (int64_t)i, 0);
        if (pause_us && i % 1000 == 0)
            usleep(pause_us);
    }
    while (depth)
        fake_end(open[--depth]);
    return NULL;
}

/* Spans on their way from one thread to another. */
enum { CARRIED = 64 };
static _Atomic(record_function *) carried[CARRIED];

static uint32_t dice(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static record_function *chaos_begin(uint64_t *state, char *buffer) {
    static const int scopes[] = {FUNCTION, BACKWARD, RANGE, RANGE};
    int scope = scopes[dice(state) % 4];
    /* Relaxed: counting must not order what the agent leaves without order. */
    atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed);
    const char *name = NAMES[dice(state) % PATTERN];
    switch (dice(state) % 8) {
    case 0: /* one address, another name each time */
        snprintf(buffer, 64, "step_%u", dice(state) % 5000);
        name = buffer;
        break;
    case 1: /* not aligned */
        snprintf(buffer + 1 + dice(state) % 7, 40, "odd_%u", dice(state) % 10);
        name = buffer + 8;
        break;
    case 2:
        name = windows ? "Optimizer.zero_grad#Adam" : "Optimizer.step#Adam.step"; /* that one really makes steps */
        break;
    }
    return fake_begin(name, scope, dice(state), dice(state) % 100);
}

static void chaos_end(record_function *f) {
    fake_end(f);
    atomic_fetch_add_explicit(&ended, 1, memory_order_relaxed);
}

static void *chaos(void *seed) {
    uint64_t state = (uintptr_t)seed;
    char *buffer = malloc(64); /* an address that another thread has had for other names */
    memset(buffer, 0, 64);
    record_function *open[700];
    int depth = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t throw = dice(&state) % 100;
        if (throw < 45 || !depth) {
            open[depth++] = chaos_begin(&state, buffer);
        } else if (throw < 80) {
            chaos_end(open[--depth]);
        } else if (throw < 88) { /* out of order */
            int which = (int)(dice(&state) % (uint32_t)depth);
            record_function *f = open[which];
            memmove(&open[which], &open[which + 1], (size_t)(--depth - which) * sizeof *open);
            chaos_end(f);
        } else if (throw < 98) { /* elsewhere: leave one there, end what lay there */
            record_function *f = atomic_exchange_explicit(&carried[dice(&state) % CARRIED], open[--depth], memory_order_acq_rel);
            if (f)
                chaos_end(f);
        } else {
            ls_note_optimizer(dice(&state));
        }
        if (depth == 600 || i % 997 == 0)
            while (depth)
                chaos_end(open[--depth]);
        if (windows && i % 997 == 0) {
            record_function *f = fake_begin("Optimizer.step#SGD.step", RANGE, 0, 0);
            ls_note_optimizer(1);
            fake_end(f);
        }
        if (i % 10000 == 5000) /* deeper than what is kept */
            while (depth < 600)
                open[depth++] = chaos_begin(&state, buffer);
    }
    while (depth)
        chaos_end(open[--depth]);
    free(buffer);
    return NULL;
}

static void in_child(void) {
    uint64_t state = 1;
    char buffer[64] = "";
    for (int i = 0; i < 200; i++)
        fake_end(chaos_begin(&state, buffer));
    _exit(0);
}

static void run_threads(void *(*work)(void *), int threads, uintptr_t seed) {
    pthread_t all[64];
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, work, (void *)(seed + (uintptr_t)i));
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
}

static void run_chaos(int threads, uintptr_t seed) {
    for (int round = 0; round < 4; round++) { /* threads come and go: rings have several owners */
        run_threads(chaos, threads, seed + 100 * (uintptr_t)round);
#ifndef __SANITIZE_THREAD__
        ls_window_forks();
        pid_t child = fork();
        ls_window_forked(child == 0);
        if (child == 0)
            in_child();
        waitpid(child, NULL, 0);
#endif
    }
    for (int i = 0; i < CARRIED; i++)
        if (carried[i])
            chaos_end(carried[i]);
}

/* Blocks on their way from one thread to another. */
static _Atomic(void *) passed[CARRIED];

static void drop(void *block) {
    if (!block)
        return;
    ls_release(block);
    free(block);
    atomic_fetch_add(&ended, 1);
}

static void *memory(void *seed) {
    uint64_t state = (uintptr_t)seed + 1;
    for (uint64_t i = 0; i < count; i++) {
        size_t bytes = 16 + dice(&state) % 4000;
        record_function *f = fake_begin(NAMES[i % PATTERN], i % 3 ? FUNCTION : BACKWARD, -1, 0);
        void *block = malloc(bytes);
        ls_allocation(block, bytes, 0);
        atomic_fetch_add(&begun, 1);
        fake_end(f);
        drop(atomic_exchange(&passed[dice(&state) % CARRIED], block));
        if (pause_us && i % 1000 == 0)
            usleep(pause_us);
    }
    return NULL;
}

static void run_memory(int threads, uintptr_t seed) {
    pause_us = 2000;
    run_threads(memory, threads, seed);
    for (int i = 0; i < CARRIED; i++)
        drop(passed[i]);
}

static void run_cost(int repeats) {
    for (int i = 0; i < repeats; i++) {
        ls_probe_record("", 8, 1); /* into a ring of our own, emptied at each call */
        struct timespec a, b;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        fake_run(NAMES, PATTERN, count);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        double ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
        printf("%.2f\n", ns / (double)count);
    }
}

int main(int arguments, char **argument) {
    if (arguments < 6)
        return 2;
    int threads = atoi(argument[3]);
    count = strtoull(argument[4], NULL, 10);
    if (!strcmp(argument[2], "cost")) {
        run_cost(atoi(argument[5]));
        return 0;
    }
    if (ls_prepare(argument[1], "", 0))
        return 3;
    windows = !strcmp(argument[2], "windows");
    if (windows)
        ls_window_set(20, 40, 60, 0, atoi(argument[5]) % 2 ? "aten::addmm" : "");
    for (int i = 0; i < 1000 && ls_torch_start() == 1; i++)
        usleep(10000);
    if (ls_torch_start())
        return 4;
    printf("started\n");
    fflush(stdout);
    if (!strcmp(argument[2], "tree")) {
        pause_us = (unsigned)atoi(argument[5]);
        run_threads(tree, threads, 0);
    } else if (!strcmp(argument[2], "memory")) {
        run_memory(threads, (uintptr_t)atoi(argument[5]));
        printf("%llu %llu\n", (unsigned long long)begun, (unsigned long long)ended);
    } else {
        run_chaos(threads, (uintptr_t)atoi(argument[5]));
        printf("%llu %llu\n", (unsigned long long)begun, (unsigned long long)ended);
    }
    ls_operators_stop();
    return 0;
}
