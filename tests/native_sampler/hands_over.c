/* A program with the agent inside whose threads and programs come at bad moments, and that says what it has used.
 * usage: hands_over SOCKET late MS | found MS | becomes MS COMMAND... | idle THREADS. Prints one line of JSON. */
#define _GNU_SOURCE
#include "agent/agent.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern uint32_t ls_sampling_least_python;

#define MS 1000000ull
#define IDLE_MOST 500

static uint64_t limit_ns, used_ns;
static int tid, has_burnt, may_end;
static volatile uint64_t sink;

static uint64_t now(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void burn(uint64_t ns) {
    for (uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ns; now(CLOCK_THREAD_CPUTIME_ID) < end;)
        for (uint64_t i = 0; i < 20000; i++)
            sink += i;
}

static void begin(const char *door, int uses_timers) {
    ls_sampling_least_python = 0;
    if (ls_prepare(door, "", 0) || ls_sampling_start(99, uses_timers))
        exit(9);
    usleep(300000); /* until it is sampled */
}

static void *works(void *unused) {
    tid = (int)syscall(SYS_gettid);
    ls_mark("works", 0, 0); /* the agent knows a thread from its first event on */
    burn(limit_ns);
    __atomic_store_n(&has_burnt, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&may_end, __ATOMIC_ACQUIRE))
        usleep(20000);
    used_ns = now(CLOCK_THREAD_CPUTIME_ID);
    return unused;
}

static void *sleeps(void *unused) {
    usleep(1500000);
    return unused;
}

static pthread_t begun(void *(*what)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, what, NULL))
        abort();
    return thread;
}

int main(int count, char **words) {
    const char *door = words[1], *mode = count > 3 ? words[2] : "";
    limit_ns = count > 3 ? strtoull(words[3], NULL, 10) * MS : 0;
    if (!strcmp(mode, "late")) { /* its stacks are copied when the thread begins, and its area comes behind that */
        for (int i = 0; i < 2; i++, usleep(100000))
            burn(60 * MS);
        pthread_t thread = begun(works);
        while (!__atomic_load_n(&has_burnt, __ATOMIC_ACQUIRE))
            usleep(10000);
        begin(door, 0);
        __atomic_store_n(&may_end, 1, __ATOMIC_RELEASE);
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "found")) { /* nobody tells that the thread begins */
        begin(door, 1);
        __atomic_store_n(&may_end, 1, __ATOMIC_RELEASE);
        pthread_join(begun(works), NULL);
    } else if (!strcmp(mode, "becomes")) {
        begin(door, 0);
        burn(limit_ns);
        execv(words[4], words + 4);
        return 8;
    } else if (!strcmp(mode, "idle")) {
        static pthread_t threads[IDLE_MOST];
        int most = atoi(words[3]) < IDLE_MOST ? atoi(words[3]) : IDLE_MOST;
        begin(door, 0);
        for (int i = 0; i < most; i++)
            threads[i] = begun(sleeps);
        for (int i = 0; i < most; i++)
            pthread_join(threads[i], NULL);
    } else
        return 8;
    printf("{\"tid\": %d, \"used_ns\": %lu}\n", tid, (unsigned long)used_ns);
    return 0;
}
