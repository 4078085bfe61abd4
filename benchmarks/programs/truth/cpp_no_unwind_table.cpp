// Code made at run time, without an entry in any table: its callers are those that called it.
// build: g++ -O2 {source} -o {out}

#include <sys/mman.h>

#include "planted.h"

// mov $N, %ecx ; dec %ecx ; jnz -4 ; ret
static unsigned char code[] = {0xb9, 0x00, 0x00, 0x00, 0x02, 0xff, 0xc9, 0x75, 0xfc, 0xc3};

NOINLINE int caller(void (*made)(void)) {
    made();
    return 1;
}

NOINLINE double compute(double x) {
    for (int i = 0; i < 10; i++) x = planted_work(x);
    return x + 1;
}

int main(int, char **argv) {
    void *made = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
    memcpy(made, code, sizeof code);
    planted_start(argv[1]);
    while (planted_going()) {
        PLANTED_CPU("symbol_total", "caller", planted_sink = caller((void (*)(void))made));
        PLANTED_CPU("symbol", "compute", planted_sink = compute(1));
    }
    planted_finish();
}
