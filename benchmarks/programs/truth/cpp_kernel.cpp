// Two functions in the kernel 3:1.
// build: g++ -O2 {source} -o {out}

#include "planted.h"

NOINLINE int reads(int times) {
    for (int i = 0; i < times; i++) planted_kernel();
    return times + 1;
}

NOINLINE int often(void) { return reads(90) + 1; }

NOINLINE int seldom(void) { return reads(30) + 1; }

int main(int, char **argv) {
    planted_start(argv[1]);
    while (planted_going()) {
        long long begin = planted_cpu();
        planted_sink = often();
        long long middle = planted_cpu();
        planted_sink = seldom();
        long long end = planted_cpu();
        planted_add("symbol_total", "often", middle - begin);
        planted_add("symbol_total", "seldom", end - middle);
        planted_add("symbol_total", "reads", end - begin);
    }
    planted_finish();
}
