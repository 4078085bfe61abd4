/* The sampler: a process beside the program. It takes areas of samples from a socket, as the session passes them on,
 * has the threads of those processes sampled, follows their switches, and writes raw/stacks.
 *
 * usage: layerscope-sampler SOCKET RAW_FOLDER HZ [MOST_BYTES [GENERATION]]
 *        layerscope-sampler --check
 *        layerscope-sampler --dump|--dump-native PID...
 *
 * MOST_BYTES is what the files may take, 0: as much as there is; GENERATION how many samplers were there before.
 * SOCKET is a descriptor, SOCK_SEQPACKET, of lf_message with a memfd each; type 0, without one, names the program, and its
 * index what of it is recorded. A
 * message comes back when its memory is not needed any more. LF_SEND_RATE changes the rate of samples, and LF_SEND_USED
 * comes back every second from then on. LF_SEND_END is the end of the recording; where the socket ends without it the
 * session was killed, and the end is that of the program. The last line on stdout is JSON: cpu_ns and what was done. */
#define _GNU_SOURCE
#include "accounts.h"
#include "areas.h"
#include "copied_stacks.h"
#include "cpu_time.h"
#include "dump.h"
#include "events.h"
#include "fault_rate.h"
#include "first_ticks.h"
#include "handover.h"
#include "joined_stacks.h"
#include "kernel_records.h"
#include "kernel_time.h"
#include "lifecycle.h"
#include "output.h"
#include "pauses.h"
#include "process_accounts.h"
#include "rate.h"
#include "recording.h"
#include "rings.h"
#include "samples.h"
#include "scan.h"
#include "session.h"
#include "signalled.h"
#include "thinning.h"
#include "waits.h"
#include "wakeups.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAIN 0u /* lf_message.type of the program itself */
enum { OUTSIDE = 1, ALONE = 2 }; /* its index: it runs already; without its children */
#define LEAST_HZ 1
#define MOST_HZ 10000
/* A handler that was preempted publishes a sample later than others; what is told to be complete lies so far back. */
#define LATE_NS 100000000ull
#define SLICE_NS 100000u
/* A thread that has just begun is about to get a stack for signals. */
#define SOON_NS 1000000ull
/* How often the file is written. */
#define WRITE_NS 250000000ull
#define WRITE_SLOWER_MOST 5u /* that many times twice as long, as samples are thinned */

static int program_fd = -1; /* a pidfd, where the kernel has them */
static int is_orphan;       /* the session was killed */

/* --- Messages --- */

static void begin(const lf_message *m, int epoll_fd) {
    sm.main_pid = m->pid;
    sm.is_outside = !!(m->index & OUTSIDE);
    sm.is_alone = !!(m->index & ALONE);
    if (program_fd >= 0)
        close(program_fd);
    program_fd = (int)syscall(SYS_pidfd_open, m->pid, 0);
    sm.start_ns = m->process_start ? m->process_start : sm.now_ns;
    sm_scan(m->pid, 0, sm.start_ns);
    sm_rings_poll(epoll_fd);
    sm_settings();
}

static void apply(const lf_message *m, int fd, int epoll_fd) {
    if (m->type == MAIN)
        begin(m, epoll_fd);
    sm.is_over |= m->type == LF_SEND_END;
    if (m->type == LF_SEND_RATE && m->index >= LEAST_HZ && m->index <= MOST_HZ)
        sm_rate_set(m->index);
    if (m->type == LF_SEND_SAMPLES && fd >= 0) {
        sm_records_take(); /* what became of that process before it handed its area over */
        sm_hand_over(m, fd);
        sm_rings_poll(epoll_fd);
    } else if (fd >= 0)
        close(fd);
}

static void receive_all(int socket_fd, int epoll_fd) {
    lf_message m;
    int fd, received;
    while ((received = sm_session_receive(&m, &fd)) == SM_RECEIVED || received == SM_OTHER)
        if (received == SM_RECEIVED)
            apply(&m, fd, epoll_fd);
    if (received == SM_CLOSED) {
        is_orphan = 1;
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, socket_fd, NULL);
    }
}

static int program_lives(void) {
    struct pollfd program = {.fd = program_fd, .events = POLLIN};
    return program_fd >= 0 && poll(&program, 1, 0) == 0;
}

/* --- Rounds --- */

static void take_areas(void) {
    for (sm_process *p = sm_processes(); p; p = p->next)
        if (p->area)
            sm_area_take(p->area, sm_take_record);
}

static void round_of(int is_last, int epoll_fd) {
    sm_records_take();
    sm_pauses_end();
    sm_signalled_look();
    take_areas();
    sm_signalled_tick();
    if (sm_copies_tick())
        sm_copies_poll(epoll_fd);
    if (!is_last) {
        sm_pauses_begin();
        sm_wakeups_tick();
        sm_kernel_tick();
        sm_first_ticks_tick();
        sm_waits_tick();
        sm_process_accounts_tick();
    }
    sm_reap();
}

/* A wait that goes on, or a sample that is not published yet, began before its row is written. */
static void tell_until(int is_last) {
    uint64_t until = sm_waits_oldest(), held = sm_held_oldest(), late_ns = LATE_NS;
    until = held < until ? held : until;
    for (sm_process *p = sm_processes(); p; p = p->next)
        if (p->area && sm_area_is_behind(p->area))
            late_ns = LATE_NS + SM_STUCK_NS;
    sm_tell_poll(is_last || until < sm.now_ns - late_ns ? until : sm.now_ns - late_ns);
}

static void each_second(int is_last) {
    static uint64_t swept;
    int is_lost = sm.lost_records != swept;
    swept = sm.lost_records;
    if (!sm.has_switches || is_lost || is_last)
        sm_sweep(is_lost && !is_last);
    sm_accounts_read();
    sm_records_take();
    sm_accounts_settle();
    sm_rate_each_second();
    sm_fault_rate_each_second();
    sm_waits_each_second(is_last);
    sm_thinning_each_second();
    tell_until(is_last);
}

static uint64_t next_write(void) {
    uint32_t slower = sm_thinning_level();
    return sm.now_ns + (WRITE_NS << (slower < WRITE_SLOWER_MOST ? slower : WRITE_SLOWER_MOST));
}

static void loop(int socket_fd, int epoll_fd, int32_t parent) {
    uint64_t tick = 0, write = 0, next_second = 0;
    int are_new = 0;
    while (!sm.is_over) {
        uint64_t now = sm_clock(CLOCK_MONOTONIC);
        uint64_t until = are_new && tick > now + SOON_NS ? now + SOON_NS : tick;
        until = until < sm_pauses_end_ns() ? until : sm_pauses_end_ns();
        int timeout = until > now ? (int)((until - now + 999999) / 1000000) : 0;
        int has_message = sm_rings_wait(epoll_fd, timeout, socket_fd);
        sm.now_ns = sm_clock(CLOCK_MONOTONIC);
        if (has_message)
            receive_all(socket_fd, epoll_fd);
        if (sm.now_ns < tick) {
            sm_records_take(); /* a new thread is sampled from its beginning on */
            sm_pauses_end();
            are_new = sm_signalled_tick();
            continue;
        }
        tick = sm.now_ns + SM_TICK_NS;
        sm.is_over |= is_orphan && (sm.is_outside || !program_lives());
        round_of(0, epoll_fd);
        if (sm_follow_tick()) {
            sm_rings_poll(epoll_fd);
            sm_settings();
        }
        if (sm.now_ns >= next_second) {
            next_second = sm.now_ns + SM_SECOND_NS;
            each_second(0);
            is_orphan |= (int32_t)getppid() != parent;
        }
        if (sm.now_ns >= write || sm_is_writing_due()) {
            write = next_write();
            sm_output_write(sm_tell_who);
        }
    }
}

/* What is there still, then nothing more. */
static void finish(int epoll_fd) {
    sm.now_ns = sm_clock(CLOCK_MONOTONIC);
    round_of(1, epoll_fd);
    sm.lost_records += sm_rings_full();
    each_second(1);
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (sm_thread *t = p->is_sampled ? p->threads : NULL; t; t = t->next)
            if (!t->end_ns) {
                sm_account(t, 1);
                sm_rest(t, sm.now_ns, t->account.row.run_ns);
                sm_tell_held(t);
            }
    sm.now_ns += 2 * SM_TICK_NS; /* those that ended just now, too */
    sm_reap();
    if (sm_cut_stacks())
        sm_problem("stacks_cut_short", 0, "the innermost frames of these samples",
                   "allow the recording more (run --max-size)",
                   "%llu samples have a stack that is not whole, as there was no room for it",
                   (unsigned long long)sm_cut_stacks());
    if (sm.torn)
        sm_problem("python_torn", 0, "who called the innermost functions of Python in these samples", "",
                   "%llu of %llu samples of running threads have frames of Python that had changed before they were read",
                   (unsigned long long)sm.torn, (unsigned long long)sm.quality.samples);
    if (sm.lost_records)
        sm_problem("switches_lost", 0, "waits, and threads that began or ended, at some moments",
                   "leave the machine some CPU time, or record fewer threads",
                   "the kernel has lost %llu records of switches, as they were not taken in time",
                   (unsigned long long)sm.lost_records);
    sm_output_close(sm_tell_who);
    printf("{\"cpu_ns\": %llu, \"samples\": %llu, \"lost\": %llu, \"waits\": %llu, \"switches\": %llu, "
           "\"lost_records\": %llu, \"dropped\": %llu}\n",
           (unsigned long long)sm_clock(CLOCK_PROCESS_CPUTIME_ID), (unsigned long long)sm.quality.samples,
           (unsigned long long)sm.quality.lost, (unsigned long long)sm.quality.waits, (unsigned long long)sm.switches,
           (unsigned long long)sm.lost_records, (unsigned long long)sm_rows_dropped());
}

/* Short slices: woken sooner, at the same share of the CPU as everybody. Linux 6.12 and later take the slice of a
 * normal task from `sched_runtime` of sched_setattr(2), in ns; older ones leave things as they are. */
static void ask_for_low_latency(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
        uint32_t util_min, util_max;
    } attributes = {.size = sizeof attributes, .runtime = SLICE_NS};
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void prepare(void) {
    ask_for_low_latency();
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ, SIGURG};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files)) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sm.now_ns = sm_clock(CLOCK_MONOTONIC);
}

static int usage(void) {
    fprintf(stderr, "usage: layerscope-sampler SOCKET RAW_FOLDER HZ [MOST_BYTES [GENERATION]]\n"
                    "       layerscope-sampler --check\n"
                    "       layerscope-sampler --dump|--dump-native PID...\n");
    return 2;
}

/* What can be recorded here, in one line of JSON. */
static int check(void) {
    sm.period_ns = 10000000;
    int clock = sm_events_check();
    int failed = sm_rings_open(), switches = failed ? failed : sm_rings_add((int32_t)getpid());
    printf("{\"cpu_clock\": %d, \"switches\": %d, \"wakers\": %d, \"kernel\": %d}\n", clock < 0 ? -clock : 0,
           -switches, sm.has_wakers ? 0 : EACCES, sm.has_kernel ? 0 : EACCES);
    return 0;
}

int main(int count, char **words) {
    int32_t parent = (int32_t)getppid();
    prepare();
    if (count == 2 && !strcmp(words[1], "--check"))
        return check();
    int is_native = count > 2 && !strcmp(words[1], "--dump-native");
    if (is_native || (count > 2 && !strcmp(words[1], "--dump"))) {
        for (int i = 2; i < count; i++)
            sm_dump(atoi(words[i]), is_native);
        return 0;
    }
    long hz = count >= 4 && count <= 6 ? strtol(words[3], NULL, 10) : 0;
    if (hz < LEAST_HZ || hz > MOST_HZ)
        return usage();
    int socket_fd = atoi(words[1]), epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    sm_session_open(socket_fd);
    sm.hz = (uint32_t)hz;
    sm.period_ns = 1000000000ull / (uint64_t)hz;
    sm.began_ns = sm.now_ns;
    sm.generation = count > 5 ? (uint32_t)strtoul(words[5], NULL, 10) : 0;
    if (sm_output_open(words[2], count > 4 ? strtoull(words[4], NULL, 10) : 0) || sm_rings_open()
        || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, socket_fd,
                     &(struct epoll_event){.events = EPOLLIN, .data.fd = socket_fd}))
        return usage();
    loop(socket_fd, epoll_fd, parent);
    finish(epoll_fd);
    return 0;
}
