/* A program whose recordings lie here: two threads that call each other's functions, and one that sleeps between.
 * See README.md for how they were made. */
#include <pthread.h>
#include <unistd.h>

__attribute__((noinline)) static void inner(long count) {
    for (volatile long i = 0; i < count; i++) {
    }
}

__attribute__((noinline)) static void outer(int depth, long count) {
    if (depth > 0) {
        outer(depth - 1, count);
        return;
    }
    inner(count);
}

static void *work(void *count) {
    outer(3, (long)count);
    return 0;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, (void *)300000000L);
    for (int i = 0; i < 10; i++) {
        outer(1, 10000000);
        usleep(10000);
    }
    pthread_join(thread, 0);
    return 0;
}
