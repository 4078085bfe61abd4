// Two functions 3:1.

#include "planted.h"

#ifndef PLANTED_SYMBOL
#define PLANTED_SYMBOL "symbol"
#endif

extern "C" {
NOINLINE double first(double x) {
    for (int i = 0; i < 30; i++) x = planted_work(x);
    return x + 1;
}

NOINLINE double second(double x) {
    for (int i = 0; i < 10; i++) x = planted_work(x);
    return x + 2;
}
}

int main(int, char **argv) {
    planted_start(argv[1]);
    while (planted_going()) {
        PLANTED_CPU(PLANTED_SYMBOL, "first", planted_sink = first(1));
        PLANTED_CPU(PLANTED_SYMBOL, "second", planted_sink = second(1));
    }
    planted_finish();
}
