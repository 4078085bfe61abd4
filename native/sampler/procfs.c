/* Small files of /proc, and memory of other processes. */
#define _GNU_SOURCE
#include "procfs.h"

#include "recording.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* The text of a file; its length, -1 if it cannot be read. */
int sm_proc(char *into, size_t room, const char *format, ...) {
    char path[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t bytes = read(fd, into, room - 1);
    close(fd);
    into[bytes > 0 ? bytes : 0] = 0;
    return (int)bytes;
}

/* What stands behind the name in /proc/PID/task/TID/stat: a blank, then field 3 and so on (proc_pid_stat(5)). NULL: it
 * cannot be read, and errno says why. */
const char *sm_stat(char *into, size_t room, int32_t pid, int32_t tid) {
    errno = 0;
    const char *name = sm_proc(into, room, "/proc/%d/task/%d/stat", pid, tid) > 0 ? strrchr(into, ')') : NULL;
    return name ? name + 1 : NULL;
}

/* How many threads the process has; `one` is called with each. */
int sm_each_task(int32_t pid, void (*one)(int32_t pid, int32_t tid, void *of), void *of) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    int found = 0;
    for (const struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder))
        if (entry->d_name[0] != '.') {
            one(pid, (int32_t)atol(entry->d_name), of);
            found++;
        }
    if (folder)
        closedir(folder);
    return found;
}

/* When the thread began, or up to a tick later: field 22 of /proc/PID/task/TID/stat counts ticks since the system
 * began, those that it slept included. */
uint64_t sm_started_ns(int32_t pid, int32_t tid) {
    char text[1024];
    const char *at = sm_stat(text, sizeof text, pid, tid);
    for (int field = 3; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return 0;
    uint64_t awake = sm_clock(CLOCK_MONOTONIC), asleep = sm_clock(CLOCK_BOOTTIME) - awake;
    uint64_t ticks = strtoull(at, NULL, 10);
    uint64_t ns = (ticks + 1) * (1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK));
    return ns > asleep ? ns - asleep : 1;
}

int sm_read_memory(void *pid, uint64_t address, void *into, size_t bytes) {
    struct iovec ours = {into, bytes}, theirs = {(void *)(uintptr_t)address, bytes};
    return process_vm_readv(*(const int32_t *)pid, &ours, 1, &theirs, 1, 0) == (ssize_t)bytes ? 0 : -1;
}

#define SNAPSHOT_BYTES 16384u
static struct {
    uint64_t from;
    size_t bytes;
    uint8_t content[SNAPSHOT_BYTES];
} snapshot;

void sm_snapshot_begin(void) { snapshot.bytes = 0; }

int sm_read_snapshot(void *pid, uint64_t address, void *into, size_t bytes) {
    if (address < snapshot.from || address - snapshot.from + bytes > snapshot.bytes) {
        struct iovec ours = {snapshot.content, SNAPSHOT_BYTES}, theirs = {(void *)(uintptr_t)address, SNAPSHOT_BYTES};
        ssize_t got = process_vm_readv(*(const int32_t *)pid, &ours, 1, &theirs, 1, 0);
        snapshot.from = address;
        snapshot.bytes = got > 0 ? (size_t)got : 0;
    }
    if (snapshot.bytes < bytes)
        return -1;
    memcpy(into, snapshot.content + (address - snapshot.from), bytes);
    return 0;
}

#define PAGE_BYTES 4096u
#define PAGES 256u
static struct {
    uint64_t address; /* 0: free */
    int32_t pid;
    uint8_t content[PAGE_BYTES];
} pages[PAGES];

void sm_pages_forget(void) {
    for (size_t i = 0; i < PAGES; i++)
        pages[i].address = 0;
}

int sm_read_pages(void *of, uint64_t address, void *into, size_t bytes) {
    int32_t pid = *(const int32_t *)of;
    uint64_t page = address & ~(uint64_t)(PAGE_BYTES - 1);
    size_t slot = (size_t)(page / PAGE_BYTES) % PAGES;
    if (!page || bytes > PAGE_BYTES - (address - page))
        return sm_read_memory(of, address, into, bytes);
    if (pages[slot].address != page || pages[slot].pid != pid) {
        pages[slot].address = 0;
        if (sm_read_memory(of, page, pages[slot].content, PAGE_BYTES))
            return -1;
        pages[slot].address = page;
        pages[slot].pid = pid;
    }
    memcpy(into, pages[slot].content + (address - page), bytes);
    return 0;
}

/* CPU time of the thread so far, what it waited for a CPU, and how often it came onto one; 0: it is gone. */
uint64_t sm_ran_ns(int32_t pid, int32_t tid, uint64_t *delay_ns, uint64_t *dispatches) {
    char text[96];
    uint64_t ran, delay, count;
    if (sm_proc(text, sizeof text, "/proc/%d/task/%d/schedstat", pid, tid) <= 0
        || sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &ran, &delay, &count) != 3)
        return 0;
    *delay_ns = delay;
    *dispatches = count;
    return ran;
}

int sm_is_of_our_user(int32_t pid) {
    char path[32];
    struct stat found;
    snprintf(path, sizeof path, "/proc/%d", pid);
    return !stat(path, &found) && found.st_uid == geteuid();
}

/* As its file is called; one that cannot be asked may be. */
int sm_is_python(int32_t pid) {
    char path[32], exe[4096];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    ssize_t length = readlink(path, exe, sizeof exe - 1);
    if (length <= 0)
        return 1;
    exe[length] = 0;
    const char *slash = strrchr(exe, '/');
    return strstr(slash ? slash : exe, "py") != NULL;
}
