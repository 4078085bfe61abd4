/* A library that the victim loads while it runs. */
#include <stdint.h>

static volatile uint64_t sink;

uint64_t plugged(uint64_t n, uint64_t (*back)(uint64_t)) {
    volatile double aligned[8] __attribute__((aligned(64)));
    aligned[n % 8] = (double)n;
    for (uint64_t i = 0; i < n % 512; i++)
        sink += i;
    return back(n) + (uint64_t)aligned[n % 8];
}
