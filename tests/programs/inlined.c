/* Two functions of 3 : 1 that the compiler inlines into a third, which is inlined into main. */
#include <stdio.h>
#include <time.h>

#define INLINE static inline __attribute__((always_inline))

static volatile double result;

INLINE double often(double x) {
    for (int i = 0; i < 3000000; i++) x = x * 0.999999 + 1e-6;
    return x;
}

INLINE double seldom(double x) {
    for (int i = 0; i < 1000000; i++) x = x * 0.999998 + 2e-6;
    return x;
}

INLINE double both(double x) {
    x = often(x);
    return seldom(x);
}

static double cpu_s(void) {
    struct timespec at;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

int main(void) {
    while (cpu_s() < 1.5)
        result = both(result);
    printf("%.9f\n", cpu_s());
    return 0;
}
