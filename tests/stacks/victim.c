/* Functions whose frames are of every kind, called at random until the recorder has what it wants. */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void recorder_start(const char *path, unsigned samples);
void recorder_thread(void);
int recorder_wants_more(void);
void recorder_finish(void);

#define HERE __attribute__((noinline, noclone))

static volatile uint64_t sink;
static volatile int is_over;
static uint64_t (*volatile plugged)(uint64_t, uint64_t (*)(uint64_t));

HERE static uint64_t spin(uint64_t n) {
    uint64_t x = n;
    for (uint64_t i = 0; i < n % 4096; i++)
        x = x * 6364136223846793005u + i;
    return sink = x;
}

HERE static uint64_t with_alloca(uint64_t n) {
    char *memory = alloca(n % 3000 + 16);
    memset(memory, (int)n, n % 3000 + 16);
    return spin(n) + (uint64_t)memory[n % 16];
}

HERE static uint64_t large_frame(uint64_t n) {
    volatile char memory[60000];
    memory[n % sizeof memory] = 1;
    return with_alloca(n) + (uint64_t)memory[(n + 1) % sizeof memory];
}

HERE static uint64_t realigned(uint64_t n, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
                               uint64_t g) {
    volatile uint64_t aligned[16] __attribute__((aligned(64)));
    char *memory = alloca(n % 500 + 1);
    aligned[n % 16] = a + b + c + d + e + f + g;
    memory[0] = (char)n;
    return spin(n) + aligned[n % 16] + (uint64_t)memory[0];
}

HERE static uint64_t variadic(int count, ...) {
    va_list list;
    uint64_t sum = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        sum += va_arg(list, uint64_t);
    va_end(list);
    return spin(sum);
}

HERE static uint64_t tail(uint64_t n) {
    if (n & 64)
        return large_frame(n); /* a jump when optimized */
    return realigned(n, 1, 2, 3, 4, 5, 6, 7);
}

HERE static uint64_t deep(uint64_t n, unsigned depth) {
    char pad[48];
    memset(pad, (int)depth, sizeof pad);
    uint64_t result = depth ? deep(n, depth - 1) : tail(n);
    return result + (uint64_t)pad[n % sizeof pad];
}

static int compare(const void *a, const void *b) {
    spin(97);
    return *(const int *)a - *(const int *)b;
}

HERE static uint64_t sorted(uint64_t n) {
    int numbers[40];
    for (unsigned i = 0; i < 40; i++)
        numbers[i] = (int)((n * (i + 7)) % 97);
    qsort(numbers, 40, sizeof *numbers, compare);
    return (uint64_t)numbers[3];
}

static void handle(int number) { sink += deep((uint64_t)number * 1000003, 3); }

static void on_stack_of_its_own(int number) { sink += tail((uint64_t)number * 777); }

HERE static uint64_t plug(uint64_t n) { return plugged ? plugged(n, tail) : spin(n); }

HERE static uint64_t formatted(uint64_t n) {
    char text[100];
    return (uint64_t)snprintf(text, sizeof text, "%lu %g %s", n, (double)n / 7, "text");
}

static void work(unsigned seed) {
    for (unsigned i = 0; i < 64; i++) {
        seed = seed * 1103515245 + 12345;
        uint64_t n = seed >> 4;
        switch (seed >> 16 & 7) {
        case 0: deep(n, n % 60); break;
        case 1: tail(n); break;
        case 2: sorted(n); break;
        case 3: raise(SIGUSR1); break;
        case 4: raise(SIGUSR2); break;
        case 5: plug(n); break;
        case 6: formatted(n); break;
        default: variadic(4, n, n, n, n); break;
        }
    }
}

static void *thread(void *arg) {
    recorder_thread();
    for (unsigned i = 0; recorder_wants_more(); i++)
        work(i + 1000u * (unsigned)(uintptr_t)arg);
    is_over = 1;
    pause(); /* its stack stays */
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t made;
    static char stack[1 << 18];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction plain = {.sa_handler = handle};
    struct sigaction apart = {.sa_handler = on_stack_of_its_own, .sa_flags = SA_ONSTACK};
    if (argc < 3)
        return 2;
    void *library = argc > 3 ? dlopen(argv[3], RTLD_NOW) : NULL;
    if (argc > 3 && !library)
        return 3;
    if (library)
        *(void **)&plugged = dlsym(library, "plugged");
    sigaltstack(&other, NULL);
    sigaction(SIGUSR1, &plain, NULL);
    sigaction(SIGUSR2, &apart, NULL);
    recorder_start(argv[1], (unsigned)atoi(argv[2]));
    pthread_create(&made, NULL, thread, (void *)1);
    for (unsigned i = 0; recorder_wants_more(); i++)
        work(i);
    while (!is_over) /* a test may take the code of the plugin away now */
        sched_yield();
    recorder_finish();
    return 0;
}
