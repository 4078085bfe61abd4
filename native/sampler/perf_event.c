/* Events of the kernel (perf_event_open(2)): on which CPUs they are opened, what is asked of the registers, and how the
 * rings are read into which they write. */
#define _GNU_SOURCE
#include "perf_event.h"

#include "procfs.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPARE_FILES 4

static int *cpus;
static uint32_t count;

const uint8_t sm_user_registers[LF_REGISTERS] = {LF_RAX, LF_RBX, LF_RCX, LF_RDX, LF_RSI, LF_RDI, LF_RBP, LF_RSP, LF_RIP,
                                                 LF_R8,  LF_R9,  LF_R10, LF_R11, LF_R12, LF_R13, LF_R14, LF_R15};

/* Some descriptors are left for files that are opened for a moment: the one that is written above all. */
int sm_may_keep(int fd) {
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) || (rlim_t)fd + SPARE_FILES < files.rlim_cur;
}

/* A descriptor or minus an errno. */
int sm_perf_event_open(void *attributes, int32_t tid, int cpu) {
    long fd = syscall(SYS_perf_event_open, attributes, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (sm_may_keep((int)fd))
        return (int)fd;
    close((int)fd);
    return -EMFILE;
}

/* A list such as 0-3,8; how many. */
static uint32_t read_cpus(const char *text, int *into) {
    uint32_t found = 0;
    for (char *end; *text; text = *end == ',' ? end + 1 : end) {
        long first = strtol(text, &end, 10), last = first;
        if (end == text)
            break;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        for (long cpu = first; cpu <= last && cpu < 65536; cpu++, found++)
            if (into)
                into[found] = (int)cpu;
    }
    return found;
}

int sm_cpus_find(void) {
    char text[4096];
    if (sm_proc(text, sizeof text, "/sys/devices/system/cpu/online") <= 0)
        snprintf(text, sizeof text, "0-%ld", sysconf(_SC_NPROCESSORS_CONF) - 1);
    count = read_cpus(text, NULL);
    cpus = calloc(count, sizeof *cpus);
    if (!cpus)
        return -ENOMEM;
    read_cpus(text, cpus);
    return 0;
}

uint32_t sm_cpus(void) {
    return count;
}

int sm_cpu(uint32_t place) {
    return cpus[place];
}

void sm_ring_copy(const uint8_t *data, uint64_t size, uint64_t at, void *into, size_t bytes) {
    uint64_t from = at % size, first = size - from < bytes ? size - from : bytes;
    memcpy(into, data + from, first);
    memcpy((uint8_t *)into + first, data, bytes - first);
}

void sm_perf_event_pause(int fd, int is_on) {
    ioctl(fd, is_on ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE, 0);
}
