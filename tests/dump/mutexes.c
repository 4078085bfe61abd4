/* Threads that hold mutexes and wait for them: `owner` has one that `wants` waits for, `left` and `right` are a
 * deadlock, and the main thread joins `owner`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER, one = PTHREAD_MUTEX_INITIALIZER,
                       other = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both, begun;

static void named(const char *name) {
    pthread_setname_np(pthread_self(), name);
}

static void *owner(void *unused) {
    named("owner");
    pthread_mutex_lock(&alone);
    pthread_barrier_wait(&begun);
    sleep(600);
    return unused;
}

static void *wants(void *unused) {
    named("wants");
    pthread_barrier_wait(&begun);
    pthread_mutex_lock(&alone);
    return unused;
}

static void *left(void *unused) {
    named("left");
    pthread_mutex_lock(&one);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&other);
    return unused;
}

static void *right(void *unused) {
    named("right");
    pthread_mutex_lock(&other);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&one);
    return unused;
}

int main(void) {
    pthread_t threads[4];
    void *(*const begin[])(void *) = {owner, wants, left, right};
    pthread_barrier_init(&both, NULL, 2);
    pthread_barrier_init(&begun, NULL, 2);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, begin[i], NULL);
    puts("ready");
    fflush(stdout);
    return pthread_join(threads[0], NULL);
}
