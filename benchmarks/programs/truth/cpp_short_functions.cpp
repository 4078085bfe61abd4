// A short function that two others call, three times as often from one.
// build: g++ -O2 {source} -o {out}

#include "planted.h"

NOINLINE double shortly(double x) {
    for (int i = 0; i < 100; i++) x = x * 0.999 + 1;
    return x;
}

NOINLINE double often(double x) {
    for (int i = 0; i < 30000; i++) x = shortly(x);
    return x + 1;
}

NOINLINE double seldom(double x) {
    for (int i = 0; i < 10000; i++) x = shortly(x);
    return x + 2;
}

int main(int, char **argv) {
    planted_start(argv[1]);
    while (planted_going()) {
        PLANTED_CPU("symbol_total", "often", planted_sink = often(1));
        PLANTED_CPU("symbol_total", "seldom", planted_sink = seldom(1));
    }
    planted_finish();
}
