/* The parts of a line of `dump` that say what a thread waits for. */
#define _GNU_SOURCE
#include "dump_waits.h"

#include "json.h"
#include "procfs.h"
#include "python_objects.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define FUTEX_BYTES 32u
#define POLLED_MOST 64u
enum { FUTEX_WAIT = 0, FUTEX_LOCK_PI = 6, FUTEX_WAIT_BITSET = 9, FUTEX_WAIT_REQUEUE_PI = 11, FUTEX_LOCK_PI2 = 13 };

/* --- /proc/PID/task/TID/status --- */

static uint64_t number_behind(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

int sm_read_status(int32_t pid, int32_t tid, sm_status *into) {
    char text[4096], *line;
    if (sm_proc(text, sizeof text, "/proc/%d/task/%d/status", pid, tid) <= 0 || strncmp(text, "Name:\t", 6))
        return -1;
    size_t bytes = strcspn(text + 6, "\n");
    snprintf(into->name, sizeof into->name, "%.*s", (int)bytes, text + 6);
    line = strstr(text + 6 + bytes, "\nState:\t");
    into->state = line ? line[8] : '?';
    into->own_tid = tid;
    line = strstr(text + 6 + bytes, "\nNSpid:");
    if (line) {
        line[1 + strcspn(line + 1, "\n")] = 0;
        into->own_tid = (int32_t)atol(strrchr(line, '\t') + 1);
        line[strlen(line)] = '\n';
    }
    into->switches = number_behind(text + 6 + bytes, "\nvoluntary_ctxt_switches:")
        + number_behind(text + 6 + bytes, "\nnonvoluntary_ctxt_switches:");
    return 0;
}

/* --- The system call --- */

int sm_is_futex_wait(const sm_call *c) {
    uint64_t operation = c->arguments[1] & 127;
    return c->number == SYS_futex
        && (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET || operation == FUTEX_LOCK_PI
            || operation == FUTEX_WAIT_REQUEUE_PI || operation == FUTEX_LOCK_PI2);
}

static void tell_polled(const sm_process *p, uint64_t at, uint64_t count) {
    struct pollfd polled[POLLED_MOST];
    int32_t pid = p->pid;
    count = count < POLLED_MOST ? count : POLLED_MOST;
    if (!count || sm_read_pages(&pid, at, polled, count * sizeof *polled))
        return;
    printf(",\"polled\":[");
    for (uint64_t i = 0; i < count; i++)
        printf("%s%d", i ? "," : "", polled[i].fd);
    printf("]");
}

/* Of select: the descriptors of its three sets. */
static void tell_selected(const sm_process *p, const sm_call *c) {
    int32_t pid = p->pid;
    const char *separator = "";
    printf(",\"polled\":[");
    for (int set = 1; set <= 3; set++)
        for (uint64_t first = 0; c->arguments[set] && first < c->arguments[0] && first < 1024; first += 64) {
            uint64_t bits;
            if (sm_read_pages(&pid, c->arguments[set] + first / 8, &bits, sizeof bits))
                break;
            for (uint64_t i = 0; i < 64 && first + i < c->arguments[0]; i++)
                if (bits >> i & 1) {
                    printf("%s%d", separator, (int)(first + i));
                    separator = ",";
                }
        }
    printf("]");
}

static void tell_futex(const sm_process *p, uint64_t address) {
    uint32_t words[FUTEX_BYTES / 4];
    int32_t pid = p->pid;
    if (sm_read_pages(&pid, address, words, sizeof words))
        return;
    printf(",\"futex\":[");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        printf("%s%u", i ? "," : "", words[i]);
    printf("]");
}

void sm_tell_call(const sm_process *p, const sm_call *c) {
    const uint64_t *a = c->arguments;
    printf(",\"call\":%" PRId64 ",\"arguments\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
           "]", c->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (sm_is_futex_wait(c))
        tell_futex(p, a[0]);
    if (c->number == SYS_poll || c->number == SYS_ppoll)
        tell_polled(p, a[0], a[1]);
    if (c->number == SYS_select || c->number == SYS_pselect6)
        tell_selected(p, c);
}

/* --- Thread objects --- */

int sm_python_is_called(const sm_process *p, const lu_python_frame *is, const char *name) {
    char text[64];
    int32_t pid = p->pid, first_line;
    uint64_t at_file, at_name, at_lines;
    if (lu_python_code(p->python, is->code, sm_read_pages, &pid, &at_file, &at_name, &at_lines, &first_line))
        return 0;
    int bytes = lu_python_text(p->python, at_name, sm_read_pages, &pid, text, sizeof text);
    return bytes == (int)strlen(name) && !memcmp(text, name, (size_t)bytes);
}

int sm_tell_thread_object(const sm_process *p, uint64_t frame, const lu_python_frame *is) {
    int is_join = sm_python_is_called(p, is, "Thread.join");
    if (!is_join && !sm_python_is_called(p, is, "Thread._bootstrap"))
        return 0;
    uint64_t self = sm_python_first(p, frame);
    char text[256];
    int32_t pid = p->pid;
    if (is_join) {
        printf(",\"joins\":%" PRId64, sm_python_number(p, sm_python_attribute(p, self, "_native_id")));
        return 0;
    }
    int bytes = lu_python_text(p->python, sm_python_attribute(p, self, "_name"), sm_read_pages, &pid, text,
                               sizeof text);
    if (bytes > 0) {
        printf(",\"python_name\":");
        sm_json_text(text, (size_t)bytes);
    }
    return 1;
}

void sm_tell_owner(const sm_process *p, uint64_t frame, const lu_python_frame *is) {
    if (!sm_python_is_called(p, is, "_RLock.acquire") && !sm_python_is_called(p, is, "_RLock._acquire_restore"))
        return;
    int64_t owner = sm_python_number(p, sm_python_attribute(p, sm_python_first(p, frame), "_owner"));
    printf(",\"python_rlock\":[%" PRId64 "]", owner > 0 ? owner : 0);
}
