// Waits on a futex by the system call itself.
// build: gcc -O2 -pthread {source} -o {out}

#include "planted.h"

#include <linux/futex.h>
#include <sys/syscall.h>

static int word;

static void *other(void *nothing) {
    for (;;) {
        struct timespec nap = {0, 30000000};
        PLANTED_WAIT("sleep", nanosleep(&nap, 0));
        __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0);
    }
    return nothing;
}

NOINLINE void waits(void) {
    while (!__atomic_exchange_n(&word, 0, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &word, FUTEX_WAIT, 0, 0, 0, 0);
}

int main(int count, char **argv) {
    pthread_t thread;
    planted_start(count > 1 ? argv[1] : 0);
    pthread_create(&thread, 0, other, 0);
    while (planted_going()) {
        PLANTED_WAIT("lock", waits());
        planted_sink = planted_work(1);
    }
    planted_finish();
    return 0;
}
