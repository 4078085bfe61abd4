// Waits on a condition variable of pthread.
// build: gcc -O2 -pthread {source} -o {out}

#include "planted.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ready;

static void *other(void *nothing) {
    for (;;) {
        struct timespec nap = {0, 30000000};
        PLANTED_WAIT("sleep", nanosleep(&nap, 0));
        pthread_mutex_lock(&mutex);
        ready = 1;
        pthread_cond_signal(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return nothing;
}

NOINLINE void waits(void) {
    pthread_mutex_lock(&mutex);
    while (!ready) pthread_cond_wait(&condition, &mutex);
    ready = 0;
    pthread_mutex_unlock(&mutex);
}

int main(int count, char **argv) {
    pthread_t thread;
    planted_start(count > 1 ? argv[1] : 0);
    pthread_create(&thread, 0, other, 0);
    while (planted_going()) {
        PLANTED_WAIT("lock", waits());
        planted_sink = planted_work(1);
    }
    planted_finish();
    return 0;
}
