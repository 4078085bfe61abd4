// Two functions 3:1, stripped of all names: they go by where they begin.
// build: g++ -O2 -s {source} -o {out}

#include <link.h>

#include "planted.h"

NOINLINE static double first(double x) {
    for (int i = 0; i < 30; i++) x = planted_work(x);
    return x + 1;
}

NOINLINE static double second(double x) {
    for (int i = 0; i < 10; i++) x = planted_work(x);
    return x + 2;
}

static int base(struct dl_phdr_info *info, size_t, void *found) {
    *(unsigned long *)found = info->dlpi_addr;
    return 1;
}

int main(int, char **argv) {
    unsigned long begin = 0;
    char names[2][120];
    dl_iterate_phdr(base, &begin);
    const char *file = strrchr(argv[0], '/') + 1;
    unsigned long at[2] = {(unsigned long)first - begin, (unsigned long)second - begin};
    for (int i = 0; i < 2; i++)
        snprintf(names[i], sizeof names[i], "%s+0x%lx|[%s]+0x%lx|[%s+0x%lx]", file, at[i], file,
                 at[i], file, at[i]);
    planted_start(argv[1]);
    while (planted_going()) {
        PLANTED_CPU("symbol", names[0], planted_sink = first(1));
        PLANTED_CPU("symbol", names[1], planted_sink = second(1));
    }
    planted_finish();
}
