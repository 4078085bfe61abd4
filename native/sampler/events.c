/* The events that make samples: a clock of the CPU time of each thread, whose ticks the kernel tells the thread by
 * SIGURG, and its page faults. The handler of the agent answers in the area.
 *
 * Without the kernel's part: a signal that comes while a system call waits would end that with EINTR. A tick that falls
 * into the kernel is not told; the CPU time since the sample before says that it was there. */
#define _GNU_SOURCE
#include "events.h"

#include "chance.h"
#include "output.h"
#include "perf_event.h"
#include "procfs.h"
#include "recording.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Primes, so that they keep no step with what the program does. A sample costs as much as some hundred minor faults, or
 * half a read from a fast disk: programs that map what they read make thousands of major faults a second. */
#define MINOR_PERIOD 509u
#define MAJOR_PERIOD 17u
#define FIRST_TICKS 8u
#define PAUSED_SHARE 4u
#define LEAST_PERIOD_NS 1000000ull

static int open_event(int32_t tid, uint64_t config, uint64_t period) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = config};
    a.sample_period = period;
    a.disabled = a.exclude_kernel = a.exclude_hv = 1;
    int fd = sm_perf_event_open(&a, tid, -1);
    if (fd < 0)
        return fd;
    struct f_owner_ex owner = {F_OWNER_TID, tid};
    if (fcntl(fd, F_SETOWN_EX, &owner) || fcntl(fd, F_SETSIG, SIGURG) || fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK)
        || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0)) {
        int failed = -errno;
        close(fd);
        return failed;
    }
    return fd;
}

int sm_events_check(void) {
    return open_event((int32_t)getpid(), PERF_COUNT_SW_CPU_CLOCK, sm.period_ns);
}

uint64_t sm_events_config(int event) {
    static const uint64_t configs[] = {PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_PAGE_FAULTS_MIN,
                                       PERF_COUNT_SW_PAGE_FAULTS_MAJ};
    return configs[event];
}

/* CPU time in ns, or how many page faults a sample stands for. */
uint64_t sm_events_period(int event) {
    return event == SM_CPU ? sm.period_ns : event == SM_MINOR ? MINOR_PERIOD : MAJOR_PERIOD;
}

/* Of clocks that copy stacks, and are paused for about a fourth of the time (pauses.c; with very many threads less). So
 * they tick sooner, and there are about as many samples. */
uint64_t sm_events_copies_period(void) { return sm.period_ns - sm.period_ns / PAUSED_SHARE; }

static void say_missed(const sm_thread *t, int failed) {
    static int said_room, said_refused;
    if (failed == -ESRCH) /* it has ended */
        return;
    sm.quality.missed_threads++;
    int *said = failed == -EMFILE || failed == -ENFILE ? &said_room : &said_refused;
    if ((*said)++)
        return;
    if (said == &said_room)
        sm_problem("no_descriptors", t->process->pid, "stacks on a CPU of the threads that came after",
                   "raise the hard limit of open files (ulimit -Hn)",
                   "the limit of open files does not allow an event for each thread");
    else
        sm_problem("events_refused", t->process->pid, "stacks on a CPU of that process",
                   "let the program keep the user of the recorder", "the kernel gives no events of process %d: %s",
                   t->process->pid, strerror(-failed));
}

/* A thread ticks several times in its first period, until its first sample is taken: else of one that is over by then
 * none of its time would have a stack. By chance, so that threads that do the same are not seen at the same place. */
uint64_t sm_events_first_period(void) {
    static uint64_t state = 1;
    uint64_t least_ns = sm.period_ns / FIRST_TICKS > LEAST_PERIOD_NS ? sm.period_ns / FIRST_TICKS : LEAST_PERIOD_NS;
    return least_ns < sm.period_ns / 2 ? least_ns + sm_chance(&state, least_ns) : sm.period_ns;
}

void sm_events_open(sm_thread *t) {
    t->sampled.has_first_period = 1;
    t->sampled.period_ns = sm.period_ns;
    for (int i = 0; i < SM_EVENTS; i++) {
        t->events[i] = open_event(t->tid, sm_events_config(i), i == SM_CPU ? sm_events_first_period() : sm_events_period(i));
        if (t->events[i] >= 0)
            continue;
        if (i == SM_CPU)
            say_missed(t, t->events[i]);
        t->events[i] = -1;
        return;
    }
    uint64_t none;
    int is_new = t->since_birth && !t->time.ran_ns && !t->sampled.count;
    t->time.base_ns = is_new ? 0 : sm_ran_ns(t->process->pid, t->tid, &none, &none);
}

/* Its clock begins a period of this length; what it has counted stays. */
void sm_events_set_period(sm_thread *t, uint64_t period_ns) {
    t->sampled.has_first_period = 0;
    t->sampled.of_period = 0;
    t->sampled.period_ns = period_ns;
    if (t->events[SM_CPU] >= 0)
        ioctl(t->events[SM_CPU], PERF_EVENT_IOC_PERIOD, &period_ns);
}

void sm_events_close(sm_thread *t) {
    for (int i = 0; i < SM_EVENTS; i++) {
        if (t->events[i] >= 0)
            close(t->events[i]);
        t->events[i] = -1;
    }
}
