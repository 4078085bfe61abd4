/* Threads that wait, below frames that end where a register says: rbp, which nobody outside knows. */
#define _GNU_SOURCE
#include <alloca.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HERE __attribute__((noinline, noclone))
static volatile uint64_t sink;
static sem_t never;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

HERE static void waits(uintptr_t way) {
    struct timespec hour = {3600, 0};
    char byte;
    switch (way) {
    case 0: sem_wait(&never); break;
    case 1: pthread_mutex_lock(&held); break;
    case 2: nanosleep(&hour, NULL); break;
    case 3: poll(NULL, 0, 3600000); break;
    default: sink += (uint64_t)read(0, &byte, 1); break;
    }
    sink++;
}

HERE static void ends_at_rbp(uintptr_t way, unsigned bytes) {
    volatile char *memory = alloca(bytes);
    memory[0] = 1;
    waits(way);
    sink += (uint64_t)memory[0];
}

HERE static void realigned(uintptr_t way, unsigned bytes) {
    volatile uint64_t aligned[8] __attribute__((aligned(64)));
    volatile char *memory = alloca(bytes);
    aligned[0] = memory[0] = 1;
    ends_at_rbp(way, bytes * 2);
    sink += aligned[0] + (uint64_t)memory[0];
}

HERE static void deep(uintptr_t way, int depth) {
    if (depth)
        deep(way, depth - 1);
    else
        realigned(way, 300 * (unsigned)way + 50);
    sink++;
}

static void *thread(void *way) {
    deep((uintptr_t)way, 10);
    return NULL;
}

int main(void) {
    pthread_t made;
    sem_init(&never, 0, 0);
    pthread_mutex_lock(&held);
    for (uintptr_t way = 0; way < 4; way++)
        pthread_create(&made, NULL, thread, (void *)way);
    usleep(200000);
    puts("done");
    fflush(stdout);
    deep(4, 3);
    return 0;
}
