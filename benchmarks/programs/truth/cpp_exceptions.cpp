// Work below a constructor, a destructor and a handler of exceptions.
// build: g++ -O2 {source} -o {out}

#include "planted.h"

NOINLINE double work(double x, int times) {
    for (int i = 0; i < times; i++) x = planted_work(x);
    return x + 1;
}

NOINLINE void thrower(void) {
    planted_sink = work(1, 10);
    throw 1;
}

NOINLINE void catcher(void) {
    try {
        thrower();
    } catch (int) {
        planted_sink = work(1, 30);
    }
}

int main(int, char **argv) {
    planted_start(argv[1]);
    while (planted_going()) {
        long long begin = planted_cpu();
        catcher();
        long long ns = planted_cpu() - begin;
        planted_add("symbol", "work", ns);
        planted_add("symbol_total", "catcher", ns);
        planted_add("symbol_total", "thrower", ns / 4);
    }
    planted_finish();
}
