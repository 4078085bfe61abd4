// Matrix products in code that oneDNN made at run time, from two callers 3:1.
// build: g++ -O2 -pthread {source} -o {out} -ldnnl

#include <oneapi/dnnl/dnnl.h>

#include "planted.h"

static float a[256 * 256], b[256 * 256], c[256 * 256];

NOINLINE int product(int times) {
    for (int i = 0; i < times; i++)
        if (dnnl_sgemm('N', 'N', 256, 256, 256, 1, a, 256, b, 256, 0, c, 256)) abort();
    return times + 1;
}

NOINLINE int often(void) { return product(30) + 1; }

NOINLINE int seldom(void) { return product(10) + 1; }

int main(int, char **argv) {
    // The clock of one thread sees it all; the runtime reads this before main.
    if (!getenv("OMP_NUM_THREADS")) {
        setenv("OMP_NUM_THREADS", "1", 1);
        execv("/proc/self/exe", argv);
    }
    planted_start(argv[1]);
    while (planted_going()) {
        long long begin = planted_cpu();
        planted_sink = often();
        long long middle = planted_cpu();
        planted_sink = seldom();
        long long end = planted_cpu();
        planted_add("symbol_total", "often", middle - begin);
        planted_add("symbol_total", "seldom", end - middle);
        planted_add("symbol_total", "product", end - begin);
    }
    planted_finish();
}
