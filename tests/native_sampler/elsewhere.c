/* Code that is made while the program runs and points rsp into the heap, as matrix products of oneDNN do, from two
 * callers. usage: elsewhere MS. Prints one line of JSON: the CPU time in each of them. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))
#define CODE_BYTES (400u << 10)
#define HEAP_BYTES (256u << 10) /* more than the kernel copies of a stack */

static uint8_t *code;
static char *heap;
static volatile uint64_t sink;

static uint64_t ran_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* void code(uint64_t rounds, void *heap) */
static void make(void) {
    static const uint8_t begin[] = {
        0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57, /* push rbx, rbp, r12, r13, r14, r15 */
        0x48, 0x89, 0xe5,                                           /* mov rbp, rsp */
        0x48, 0x89, 0xf4,                                           /* mov rsp, rsi */
        0x48, 0x89, 0x6c, 0x24, 0x78,                               /* mov [rsp + 0x78], rbp */
        0x48, 0xc7, 0xc5, 0x01, 0x00, 0x00, 0x00,                   /* mov rbp, 1 */
        0x48, 0xff, 0xcf, 0x75, 0xfb};                              /* dec rdi; jnz */
    static const uint8_t end[] = {
        0x48, 0x8b, 0x64, 0x24, 0x78,                                      /* mov rsp, [rsp + 0x78] */
        0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3}; /* pop the same; ret */
    code = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    heap = malloc(HEAP_BYTES);
    memset(code, 0x90, CODE_BYTES); /* nop: what is unrolled is long */
    memcpy(code, begin, sizeof begin);
    memcpy(code + CODE_BYTES - sizeof end, end, sizeof end);
}

NOINLINE void product(int times) {
    for (int i = 0; i < times; i++)
        ((void (*)(uint64_t, void *))(uintptr_t)code)(1000000, heap + HEAP_BYTES / 2);
    sink++;
}

NOINLINE void often(void) {
    product(60);
    sink++;
}

NOINLINE void seldom(void) {
    product(20);
    sink++;
}

int main(int argc, char **argv) {
    uint64_t limit_ns = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000000 : 0, often_ns = 0, seldom_ns = 0;
    make();
    while (often_ns + seldom_ns < limit_ns) {
        uint64_t begun = ran_ns();
        often();
        uint64_t middle = ran_ns();
        seldom();
        often_ns += middle - begun;
        seldom_ns += ran_ns() - middle;
    }
    printf("{\"often_ns\": %llu, \"seldom_ns\": %llu}\n", (unsigned long long)often_ns, (unsigned long long)seldom_ns);
    return 0;
}
