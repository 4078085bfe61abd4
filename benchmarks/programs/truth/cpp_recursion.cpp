// Work below 800 calls of one function, and two that call each other.
// build: g++ -O2 -fno-optimize-sibling-calls {source} -o {out}

#include "planted.h"

NOINLINE double leaf(double x) {
    for (int i = 0; i < 30; i++) x = planted_work(x);
    return x + 1;
}

NOINLINE double down(int level, double x) {
    return level ? down(level - 1, x) + 1 : leaf(x);
}

double odd(int level, double x);

NOINLINE double even(int level, double x) {
    for (int i = 0; i < 3; i++) x = planted_work(x);
    return level ? odd(level - 1, x) + 1 : x;
}

NOINLINE double odd(int level, double x) {
    x = planted_work(x);
    return level ? even(level - 1, x) + 2 : x;
}

int main(int, char **argv) {
    planted_start(argv[1]);
    while (planted_going()) {
        long long begin = planted_cpu();
        planted_sink = down(800, 1);
        long long middle = planted_cpu();
        planted_add("symbol", "leaf", middle - begin);
        planted_add("symbol_total", "down", middle - begin);
        planted_sink = even(20, 1);
        long long ns = planted_cpu() - middle;
        planted_add("symbol", "even", ns * 33 / 43);
        planted_add("symbol", "odd", ns * 10 / 43);
        planted_add("symbol_total", "even", ns);
    }
    planted_finish();
}
