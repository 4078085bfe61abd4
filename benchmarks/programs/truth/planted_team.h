// A team in which one works and the other waits at the barrier.

#include <omp.h>

#include "planted.h"

NOINLINE double heavy(double x) {
    for (int i = 0; i < 150; i++) x = planted_work(x);
    return x + 1;
}

NOINLINE double light(double x) {
    for (int i = 0; i < 30; i++) x = planted_work(x);
    return x + 2;
}

int main(int count, char **argv) {
    // Waits in the kernel, at once: a barrier that spins is work of the CPU.
    if (!getenv("OMP_WAIT_POLICY")) {
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", argv);
    }
    planted_start(count > 1 ? argv[1] : 0);
    for (int round = 0; planted_going(); round++) {
        long long ended[2];
#pragma omp parallel num_threads(2)
        {
            // The master waits for the worker, then the worker for the master.
            int which = omp_get_thread_num() ^ (round & 1);
            if (which)
                PLANTED_CPU("symbol", "heavy", planted_sink = heavy(1));
            else
                PLANTED_CPU("symbol", "light", planted_sink = light(1));
            ended[which] = planted_now(CLOCK_MONOTONIC);
#pragma omp barrier
        }
        planted_add("wait", "barrier", llabs(ended[1] - ended[0]));
    }
    planted_finish();
}
