// Touches fresh memory: time in the kernel without a system call.
// build: g++ -O2 {source} -o {out}

#include <sys/mman.h>

#include "planted.h"

static const size_t SIZE = 16 << 20;

NOINLINE void touch(char *memory) {
    for (size_t at = 0; at < SIZE; at += 4096) memory[at] = 1;
}

NOINLINE double compute(double x) {
    for (int i = 0; i < 10; i++) x = planted_work(x);
    return x + 1;
}

int main(int, char **argv) {
    planted_start(argv[1]);
    while (planted_going()) {
        void *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        PLANTED_CPU("symbol_total", "touch", touch((char *)memory));
        munmap(memory, SIZE);
        PLANTED_CPU("symbol", "compute", planted_sink = compute(1));
    }
    planted_finish();
}
