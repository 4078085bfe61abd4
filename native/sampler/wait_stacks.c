/* A look at a thread that waits: in which system call, for what kind of file, and its stack. The kernel says number,
 * arguments, stack pointer and instruction of a thread that is off a CPU; its stack and its frames of Python are read
 * from outside. Read again at the end, the numbers say whether it still waited. */
#define _GNU_SOURCE
#include "wait_stacks.h"

#include "joined_stacks.h"
#include "perf_event.h"
#include "procfs.h"
#include "python_stacks.h"
#include "recording.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define COPY_BYTES (32u << 10)

/* -1: it runs, or has ended, and errno is not EACCES or EPERM. */
int sm_read_call(sm_thread *t, sm_call *into) {
    char text[256], path[64];
    memset(into, 0, sizeof *into);
    if (t->wait_fd < 0) {
        snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", t->process->pid, t->tid);
        t->wait_fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    errno = t->wait_fd < 0 ? errno : 0;
    ssize_t bytes = t->wait_fd < 0 ? -1 : pread(t->wait_fd, text, sizeof text - 1, 0);
    if (t->wait_fd >= 0 && !sm_may_keep(t->wait_fd)) {
        int failed = errno;
        close(t->wait_fd);
        t->wait_fd = -1;
        errno = failed;
    }
    if (bytes <= 0)
        return -1;
    text[bytes] = 0;
    if (!strncmp(text, "-1 ", 3)) {
        into->number = -1;
        return sscanf(text + 3, "%" SCNx64 " %" SCNx64, &into->stack_pointer, &into->instruction) == 2 ? 0 : -1;
    }
    uint64_t *a = into->arguments;
    return sscanf(text, "%" SCNd64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
                  " %" SCNx64, &into->number, a, a + 1, a + 2, a + 3, a + 4, a + 5, &into->stack_pointer,
                  &into->instruction) == 9 ? 0 : -1;
}

/* --- What it waits for --- */

static uint32_t kind_of_file(int32_t pid, int fd) {
    char path[48], target[128];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    if (fd < 0 || bytes <= 0)
        return LT_NO_FILE;
    target[bytes] = 0;
    struct stat is;
    if (target[0] == '/' && !stat(path, &is) && S_ISFIFO(is.st_mode))
        return LT_PIPE; /* with a name */
    static const struct {
        const char *begins;
        uint32_t kind;
    } kinds[] = {{"pipe:", LT_PIPE},         {"socket:", LT_SOCKET},          {"anon_inode:", LT_EVENT},
                 {"/dev/pts/", LT_TERMINAL}, {"/dev/tty", LT_TERMINAL},       {"/dev/console", LT_TERMINAL},
                 {"/dev/null", LT_NO_FILE},  {"/memfd:", LT_FILE},            {"/", LT_FILE}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(target, kinds[i].begins, strlen(kinds[i].begins)))
            return kinds[i].kind;
    return LT_NO_FILE;
}

static uint32_t file_of(int32_t pid, const sm_call *c) {
    static const int with_descriptor[] = {
        SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_preadv, SYS_pwritev, SYS_recvfrom,
        SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_accept, SYS_accept4, SYS_connect,
        SYS_epoll_wait, SYS_epoll_pwait, SYS_fsync, SYS_fdatasync, SYS_flock, SYS_fcntl, SYS_ioctl, SYS_ftruncate,
        SYS_fallocate, SYS_getdents64, SYS_splice, SYS_sync_file_range, SYS_fstat, SYS_openat, SYS_newfstatat};
    if (c->number == SYS_poll || c->number == SYS_ppoll) {
        int32_t fd; /* of the first one that it polls */
        return c->arguments[1] && !sm_read_memory(&pid, c->arguments[0], &fd, sizeof fd) ? kind_of_file(pid, fd)
                                                                                          : LT_NO_FILE;
    }
    if (c->number == SYS_sendfile)
        return kind_of_file(pid, (int)c->arguments[1]);
    for (size_t i = 0; i < sizeof with_descriptor / sizeof *with_descriptor; i++)
        if (c->number == with_descriptor[i])
            return kind_of_file(pid, (int)c->arguments[0]);
    return LT_NO_FILE;
}

/* --- Its stack --- */

static uint32_t stack_of(sm_thread *t, const sm_call *c, uint32_t *how, uint32_t *flags) {
    static uint8_t copied[COPY_BYTES] __attribute__((aligned(16)));
    static lu_native_frame native[SM_FRAMES_MOST];
    static sm_python_frame python[LF_SAMPLES_FRAMES_MOST];
    static lu_python_frame raw[LF_SAMPLES_FRAMES_MOST];
    sm_process *p = t->process;
    int32_t pid = p->pid;
    lu_space *space = sm_space(p, 0);
    if (!space)
        return LT_NONE;
    struct iovec ours = {copied, sizeof copied}, theirs = {(void *)(uintptr_t)c->stack_pointer, sizeof copied};
    ssize_t bytes = process_vm_readv(pid, &ours, 1, &theirs, 1, 0);
    lu_stack_copy copy = {c->stack_pointer, copied, bytes > 0 ? (size_t)bytes : 0, sm_read_memory, &pid, NULL};
    uint64_t registers[LF_REGISTERS] = {[LF_RSP] = c->stack_pointer, [LF_RIP] = c->instruction};
    int count = lu_unwind(space, registers, 1u << LF_RSP | 1u << LF_RIP, &copy, native, SM_FRAMES_MOST, how);
    int frames = sm_python_frames(t, raw, python);
    return sm_join(p, native, count, *how, python, frames, flags);
}

/* SM_LOOKED: it waited all the time. SM_UNREADABLE: it may not be looked at. SM_NOT_LOOKED: it ran meanwhile. */
int sm_look_at(sm_thread *t, sm_look *look) {
    sm_call before, after;
    uint32_t how = 0, flags = 0;
    if (sm_read_call(t, &before))
        return errno == EACCES || errno == EPERM ? SM_UNREADABLE : SM_NOT_LOOKED;
    uint32_t stack = before.stack_pointer ? stack_of(t, &before, &how, &flags) : LT_NONE;
    uint32_t file = file_of(t->process->pid, &before);
    if (sm_read_call(t, &after) || memcmp(&before, &after, sizeof before))
        return SM_NOT_LOOKED;
    look->stack = stack;
    look->system_call = (int32_t)before.number;
    look->file = file;
    sm.quality.waits++;
    sm.quality.waits_to_root += !!(how & LU_UNWOUND_ROOT);
    return SM_LOOKED;
}

/* The thread has ended. */
void sm_look_end(sm_thread *t) {
    if (t->wait_fd >= 0)
        close(t->wait_fd);
}
