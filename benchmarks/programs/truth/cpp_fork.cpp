// A child that fork made computes beside its parent.
// build: g++ -O2 {source} -o {out}

#include <sys/wait.h>

#include "planted.h"

NOINLINE double parent(double x) {
    for (int i = 0; i < 10; i++) x = planted_work(x);
    return x + 1;
}

NOINLINE double child(double x) {
    for (int i = 0; i < 10; i++) x = planted_work(x);
    return x + 2;
}

int main(int, char **argv) {
    planted_start(argv[1]);
    pid_t pid = fork();
    while (planted_going()) {
        if (pid)
            PLANTED_CPU("symbol", "parent", planted_sink = parent(1));
        else
            PLANTED_CPU("symbol", "child", planted_sink = child(1));
    }
    if (pid) PLANTED_WAIT("child", waitpid(pid, 0, 0));
    planted_finish();
}
