/* An event of the thread's CPU clock, whose first tick outside of the kernel copies what is asked for. */
#define _GNU_SOURCE
#include "one_copy.h"

#include "perf_event.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PERIOD_NS 100000u
#define PAGES 16u

typedef struct {
    struct perf_event_header header;
    uint64_t abi, registers[LF_REGISTERS], stack_bytes; /* then the stack, and how many bytes of it are there */
} copy_record;

static int take(const struct perf_event_mmap_page *page, const uint8_t *data, uint64_t size, sm_one_copy *into) {
    uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE), there = 0;
    copy_record record;
    if (head < sizeof record)
        return -EAGAIN;
    sm_ring_copy(data, size, 0, &record, sizeof record);
    if (record.header.type != PERF_RECORD_SAMPLE || record.abi != PERF_SAMPLE_REGS_ABI_64
        || record.stack_bytes > sizeof into->stack || head < sizeof record + record.stack_bytes)
        return -EAGAIN;
    sm_ring_copy(data, size, sizeof record, into->stack, record.stack_bytes);
    if (record.stack_bytes)
        sm_ring_copy(data, size, sizeof record + record.stack_bytes, &there, sizeof there);
    into->bytes = there < record.stack_bytes ? there : record.stack_bytes;
    for (int i = 0; i < LF_REGISTERS; i++)
        into->registers[sm_user_registers[i]] = record.registers[i];
    return 0;
}

/* Waits for the first record of the event. */
static int wait_for(int fd, int most_ms, sm_one_copy *into) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (1 + PAGES) * page;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    int failed = poll(&ready, 1, most_ms) > 0 ? take((void *)at, at + page, PAGES * page, into) : -EAGAIN;
    munmap(at, bytes);
    return failed;
}

int sm_copy_once(int32_t tid, int most_ms, sm_one_copy *into) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_CPU_CLOCK};
    a.sample_period = PERIOD_NS;
    a.sample_type = PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    a.sample_regs_user = SM_USER_REGISTERS;
    a.sample_stack_user = sizeof into->stack;
    a.exclude_kernel = a.exclude_hv = 1;
    a.wakeup_events = 1;
    int fd = sm_perf_event_open(&a, tid, -1);
    if (fd < 0)
        return fd;
    int failed = wait_for(fd, most_ms, into);
    close(fd);
    return failed;
}
