/* What the system says of each process but the program itself, which the drainer reads: memory while it lives, CPU time
 * and page faults so far, and how it ended. Its parent alone is told that: others read the exit status from /proc as
 * long as the parent has not asked, and by a descriptor of the process after that (Linux 6.15 and later). */
#define _GNU_SOURCE
#include "process_accounts.h"

#include "output.h"
#include "procfs.h"
#include "recording.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How often each is read: less often where there are many. */
#define READ_NS 100000000ull
#define READ_AT_ONCE 8u
/* Nobody can read the memory of a process that has ended, so that of a young or growing one is read more often. */
#define YOUNG_NS SM_SECOND_NS
#define GROWING_READ_NS 20000000ull
#define GROWS_BY 16u /* the sixteenth part, or a MiB */
#define GROWS_BYTES (1ull << 20)
#define TOLD_NS SM_SECOND_NS

/* struct pidfd_info of linux/pidfd.h, as it is since Linux 6.15. */
typedef struct {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, users[8];
    int32_t exit_code;
} pidfd_info;
#define INFO_EXIT (1ull << 3)
#define GET_INFO _IOWR(0xff, 11, pidfd_info)
_Static_assert(sizeof(pidfd_info) == 64, "pidfd_info");

static int is_asked_by_descriptor(void) {
    static int known = -1;
    if (known < 0) {
        pidfd_info info = {.mask = INFO_EXIT};
        int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
        known = fd >= 0 && !ioctl(fd, GET_INFO, &info);
        if (fd >= 0)
            close(fd);
    }
    return known;
}

static int is_left_to_others(const sm_process *p) { return p->is_foreign || p->pid == sm.main_pid; }

/* Of one that had begun before we looked. */
static int has_command_of_parent(const sm_process *p) {
    char own[4096], parents[4096];
    int bytes = sm_proc(own, sizeof own, "/proc/%d/cmdline", p->pid);
    return bytes > 0 && bytes == sm_proc(parents, sizeof parents, "/proc/%d/cmdline", p->ppid)
        && !memcmp(own, parents, (size_t)bytes);
}

void sm_process_account_begin(sm_process *p) {
    p->whole.row.process = p->number;
    if (!is_left_to_others(p) && is_asked_by_descriptor())
        p->whole.end_fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
}

void sm_process_account_found(sm_process *p) { p->whole.is_found_fork = p->ppid && has_command_of_parent(p); }

/* Others read 0 in the place of the status. */
static int may_read_status(const sm_process *p) {
    char path[32];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%d", p->pid);
    return !geteuid() || (!stat(path, &found) && found.st_uid == geteuid());
}

static void ended_with(sm_process *p, int status) {
    p->whole.row.flags |= LT_ENDED;
    p->whole.row.exit = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* /proc/PID/stat (proc_pid_stat(5)), behind the name: fields 3 state, 10 minflt, 12 majflt, 14 utime, 15 stime,
 * 20 num_threads, 52 exit_code. */
static void read_stat(sm_process *p, int is_end) {
    char text[1024], state;
    lt_process_account *row = &p->whole.row;
    uint64_t minor, major, user, system, tick_ns = 1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK);
    uint32_t threads;
    const char *at = sm_proc(text, sizeof text, "/proc/%d/stat", p->pid) > 0 ? strrchr(text, ')') : NULL;
    if (!at
        || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %" SCNu64 " %*u %" SCNu64 " %*u %" SCNu64 " %" SCNu64
                  " %*d %*d %*d %*d %" SCNu32, &state, &minor, &major, &user, &system, &threads) != 6)
        return;
    row->faults_minor = minor;
    row->faults_major = major;
    row->user_ns = user * tick_ns;
    row->system_ns = system * tick_ns;
    row->threads = threads;
    const char *last = strrchr(at, ' ');
    if (last && may_read_status(p) && (is_end || strchr("ZX", state)))
        ended_with(p, atoi(last + 1));
}

static uint64_t kilobytes(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

static void read_memory(sm_process *p) {
    char text[4096];
    if (sm_proc(text, sizeof text, "/proc/%d/status", p->pid) <= 0)
        return;
    uint64_t peak = kilobytes(text, "\nVmHWM:");
    p->whole.row.rss_bytes = kilobytes(text, "\nVmRSS:");
    p->whole.memory_ns = sm.now_ns;
    p->whole.is_growing = peak > p->whole.row.rss_peak_bytes + p->whole.row.rss_peak_bytes / GROWS_BY + GROWS_BYTES;
    if (peak > p->whole.row.rss_peak_bytes)
        p->whole.row.rss_peak_bytes = peak;
}

int sm_is_fork(const sm_process *p) { return p->is_a_fork || p->whole.is_found_fork; }

static void tell(sm_process *p) {
    lt_process_account *row = sm_row(LT_PROCESS_ACCOUNTS, sizeof *row);
    p->whole.told_ns = sm.now_ns;
    p->whole.row.at_ns = p->end_ns ? p->end_ns : sm.now_ns;
    p->whole.row.flags = (p->whole.row.flags & ~(uint32_t)LT_FORKED) | (sm_is_fork(p) ? LT_FORKED : 0u);
    if (row)
        *row = p->whole.row;
}

static int is_memory_due(const sm_process *p, uint64_t among) {
    int is_fast = p->whole.is_growing || sm.now_ns < p->start_ns + YOUNG_NS;
    return is_fast && sm.now_ns >= p->whole.memory_ns + GROWING_READ_NS * among;
}

void sm_process_accounts_tick(void) {
    uint32_t living = 0;
    for (const sm_process *p = sm_processes(); p; p = p->next)
        living += !p->end_ns;
    for (sm_process *p = sm_processes(); p; p = p->next) {
        uint64_t among = 1 + living / READ_AT_ONCE;
        if (p->end_ns || is_left_to_others(p))
            continue;
        if (sm.now_ns < p->whole.read_ns + READ_NS * among) {
            if (is_memory_due(p, among))
                read_memory(p);
            continue;
        }
        p->whole.read_ns = sm.now_ns;
        read_stat(p, 0);
        read_memory(p);
        if (sm.now_ns >= p->whole.told_ns + TOLD_NS)
            tell(p);
    }
}

/* It has been told to end, so that its status is there, whether its parent has asked for it or not. */
void sm_process_account_end(sm_process *p) {
    if (!is_left_to_others(p))
        read_stat(p, 1);
}

void sm_process_account_finish(sm_process *p, int is_followed_by_exec) {
    pidfd_info info = {.mask = INFO_EXIT};
    if (p->whole.end_fd >= 0) {
        int is_told = !ioctl(p->whole.end_fd, GET_INFO, &info) && info.mask & INFO_EXIT;
        if (is_told && !is_followed_by_exec)
            ended_with(p, info.exit_code);
        close(p->whole.end_fd);
        p->whole.end_fd = -1;
    }
    if (!is_left_to_others(p) && !is_followed_by_exec)
        tell(p);
}
