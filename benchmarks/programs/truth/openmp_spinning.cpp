// A team in which one works and the other spins at the barrier.
// build: g++ -O2 -fopenmp {source} -o {out}

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
    if (!getenv("OMP_WAIT_POLICY")) {
        setenv("OMP_WAIT_POLICY", "active", 1);
        execv("/proc/self/exe", argv);
    }
    planted_start(count > 1 ? argv[1] : 0);
    while (planted_going()) {
#pragma omp parallel num_threads(2)
        {
            if (omp_get_thread_num())
                PLANTED_CPU("symbol", "heavy", planted_sink = heavy(1));
            else
                PLANTED_CPU("symbol", "light", planted_sink = light(1));
        }
    }
    planted_finish();
}
