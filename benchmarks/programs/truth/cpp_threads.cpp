// Threads with a function each; main waits for their end.
// build: g++ -O2 -pthread {source} -o {out}

#include <thread>

#include "planted.h"

NOINLINE double first(double x) {
    for (int i = 0; i < 30; i++) x = planted_work(x);
    return x + 1;
}

NOINLINE double second(double x) {
    for (int i = 0; i < 10; i++) x = planted_work(x);
    return x + 2;
}

int main(int, char **argv) {
    planted_start(argv[1]);
    std::thread both([] {
        while (planted_going()) {
            PLANTED_CPU("symbol", "first", planted_sink = first(1));
            PLANTED_CPU("symbol", "second", planted_sink = second(1));
        }
    });
    PLANTED_WAIT("thread|join", both.join());
    planted_finish();
}
