// Two threads of OpenMP, of which one has three times the work of the other; says how long that one waited, in ns.
#include <layerscope.hpp>

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <omp.h>

static int64_t now(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * int64_t(1000000000) + t.tv_nsec;
}

static volatile uint64_t sink;

// So much CPU time of the calling thread.
__attribute__((noinline)) static void work(int64_t ns) {
    int64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ns;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end)
        for (int i = 0; i < 1000; i++)
            sink = sink * 31 + 7;
}

int main() {
    int64_t waited = 0;
    for (int step = 0; step < 20; step++) {
        layerscope::Range range("imbalanced");
#pragma omp parallel num_threads(2)
        {
            int is_late = omp_get_thread_num() == 0;
            work(is_late ? 90000000 : 30000000);
            int64_t begin = now(CLOCK_MONOTONIC);
#pragma omp barrier
            if (!is_late)
                waited += now(CLOCK_MONOTONIC) - begin;
        }
    }
    std::printf("%lld\n", (long long)waited);
}
