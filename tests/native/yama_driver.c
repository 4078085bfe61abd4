/* A program with the agent inside that says whom it allows to read its memory. usage: yama_driver SOCKET
 * Compile it with -Wl,--wrap=prctl and -DLS_YAMA="FILE". */
#define _GNU_SOURCE
#include "agent/agent.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern uint32_t ls_sampling_least_python;

LS_EXPORT int ls_prepare(const char *name, const char *library_path, int use_tsc);

static const char *who;

int __wrap_prctl(int option, ...) {
    va_list more;
    va_start(more, option);
    unsigned long pid = va_arg(more, unsigned long);
    va_end(more);
    if (option == PR_SET_PTRACER) {
        char text[64];
        int bytes = snprintf(text, sizeof text, "%s %lu\n", who, pid);
        return write(1, text, (size_t)bytes) == bytes ? 0 : -1;
    }
    return 0;
}

/* As an event of the sampler tells. */
static void tick(void) {
    siginfo_t info = {.si_signo = SIGURG, .si_code = POLL_IN};
    info.si_fd = 77;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), (int)syscall(SYS_gettid), SIGURG, &info);
}

int main(int count, char **words) {
    who = "parent";
    ls_sampling_least_python = 0;
    if (count != 2 || ls_prepare(words[1], "", 0) || ls_sampling_start(99, 0))
        return 9;
    tick();
    pid_t child = fork();
    if (!child) {
        who = "child";
        tick();
        tick();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    ls_sampling_stop();
    return status;
}
