/* Yama (kernel.yama.ptrace_scope 1) lets nobody but a process's ancestors read its memory. The sampler is none, so each
 * process allows the recorder to, and with it what the recorder has started: the sampler, or the next one after that.
 * Who the recorder is the kernel says, of the socket where the process hands its area over.
 *
 * A process has one such permission. Where Yama does not ask for it, it is left alone; at 2 and 3 none would help. */
#define _GNU_SOURCE
#include "sampling.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef LS_YAMA /* tests */
#define LS_YAMA "/proc/sys/kernel/yama/ptrace_scope"
#endif

static _Atomic pid_t allowed; /* the process that has; a child of it has not */

static int is_needed(void) {
    char scope = 0;
    int fd = open(LS_YAMA, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? 0 : read(fd, &scope, 1);
    if (fd >= 0)
        close(fd);
    return bytes == 1 && scope == '1';
}

/* Whoever listens at the other end of `connection` may read this process. Called in a signal handler too. */
void ls_yama_allow(int connection) {
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (!is_needed() || getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) || peer.pid <= 0)
        return;
    if (!prctl(PR_SET_PTRACER, (unsigned long)peer.pid, 0, 0, 0))
        atomic_store(&allowed, getpid());
}

void ls_yama_forbid(void) {
    if (atomic_exchange(&allowed, 0) == getpid())
        prctl(PR_SET_PTRACER, 0, 0, 0, 0);
}
