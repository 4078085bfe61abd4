/* What the system counts for each thread, about every second and when it ends, and what the sampler says of itself. */
#define _GNU_SOURCE
#include "accounts.h"

#include "areas.h"
#include "cpu_time.h"
#include "output.h"
#include "procfs.h"
#include "recording.h"
#include "signalled.h"
#include "thinning.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* So much CPU time in a second without a sample, so many seconds on end: its signals go somewhere else. */
#define SILENT_CPU_NS 300000000ull
#define SILENT_S 3u

/* Of /proc/PID/task/TID/stat, behind the name: fields 10 minflt, 12 majflt, 14 utime, 15 stime (proc_pid_stat(5)). */
static int read_stat(int32_t pid, int32_t tid, lt_account *into) {
    char text[1024];
    const char *at = sm_stat(text, sizeof text, pid, tid);
    uint64_t minor, major, user, system, tick_ns = 1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK);
    if (!at
        || sscanf(at, " %*c %*d %*d %*d %*d %*d %*u %" SCNu64 " %*u %" SCNu64 " %*u %" SCNu64 " %" SCNu64, &minor,
                  &major, &user, &system) != 4)
        return -1;
    into->faults_minor = minor;
    into->faults_major = major;
    into->user_ns = user * tick_ns;
    into->system_ns = system * tick_ns;
    return 0;
}

static void read_status(int32_t pid, int32_t tid, lt_account *into, int *is_blocked) {
    char text[4096];
    *is_blocked = 0;
    if (sm_proc(text, sizeof text, "/proc/%d/task/%d/status", pid, tid) <= 0)
        return;
    const char *blocked = strstr(text, "\nSigBlk:"), *voluntary = strstr(text, "\nvoluntary_ctxt_switches:"),
               *forced = strstr(text, "\nnonvoluntary_ctxt_switches:");
    if (blocked)
        *is_blocked = (int)(strtoull(blocked + 8, NULL, 16) >> (SIGURG - 1) & 1);
    if (voluntary)
        into->switches_voluntary = strtoull(voluntary + 25, NULL, 10);
    if (forced)
        into->switches_forced = strtoull(forced + 28, NULL, 10);
}

/* What it has used until now is not of the recording. */
void sm_account_base(sm_thread *t) {
    lt_account *base = &t->account.base;
    int32_t pid = t->process->pid;
    int is_blocked;
    uint64_t none, ran_ns = sm_ran_ns(pid, t->tid, &base->delay_ns, &none);
    if (!read_stat(pid, t->tid, base))
        read_status(pid, t->tid, base, &is_blocked);
    t->time.before_ns = t->time.told_ns = t->time.copied_ns = ran_ns;
    t->time.has_base = 1;
}

/* One that ended before it was read again has used nothing since, as far as is known. */
static uint64_t since(uint64_t now, uint64_t base) { return now > base ? now - base : 0; }

static void leave_out(lt_account *row, const lt_account *base) {
    row->delay_ns = since(row->delay_ns, base->delay_ns);
    row->user_ns = since(row->user_ns, base->user_ns);
    row->system_ns = since(row->system_ns, base->system_ns);
    row->switches_voluntary = since(row->switches_voluntary, base->switches_voluntary);
    row->switches_forced = since(row->switches_forced, base->switches_forced);
    row->faults_minor = since(row->faults_minor, base->faults_minor);
    row->faults_major = since(row->faults_major, base->faults_major);
}

/* A thread that has ended was read before its last faults, which samples stand for. */
static void count_last_faults(const sm_thread *t, lt_account *into) {
    uint64_t minor = t->account.base.faults_minor + t->sampled.faults_minor;
    uint64_t major = t->account.base.faults_major + t->sampled.faults_major;
    into->faults_minor = minor > into->faults_minor ? minor : into->faults_minor;
    into->faults_major = major > into->faults_major ? major : into->faults_major;
}

void sm_account(sm_thread *t, int is_last) {
    int32_t pid = t->process->pid;
    lt_account *a = &t->account.row;
    uint64_t before_user = a->user_ns, before_run = a->run_ns, none;
    int is_blocked = 0;
    if (!is_last && sm.has_switches && t->wait.out_ns && t->account.switches == t->wait.switches + 1)
        return; /* it has done nothing since */
    uint64_t ran = is_last ? 0 : sm_ran_ns(pid, t->tid, &a->delay_ns, &none);
    if (!is_last && !read_stat(pid, t->tid, a)) {
        read_status(pid, t->tid, a, &is_blocked);
        t->account.switches = t->wait.switches + 1;
    }
    if (ran && !t->time.is_counted)
        sm_count_from(t, ran);
    t->account.read_ns = t->wait.out_ns ? ran : 0;
    t->account.read_at = t->wait.switches;
    if (is_last) {
        ran = sm_cpu_ns(t);
        count_last_faults(t, a);
    }
    ran = ran > t->time.told_ns ? ran : t->time.told_ns;
    a->run_ns = ran > a->run_ns ? ran : a->run_ns;
    before_run = before_run > t->time.before_ns ? before_run : t->time.before_ns;
    sm.program_ns += a->run_ns > before_run ? a->run_ns - before_run : 0;
    a->at_ns = t->end_ns ? t->end_ns : sm.now_ns;
    a->thread = t->number;
    if (!is_blocked && before_user && t->events[SM_CPU] >= 0)
        t->process->silence.cpu_ns += a->user_ns - before_user;
    /* What they count only grows, so of a long run some are enough. */
    int is_written = is_last || !(++t->account.count & ((1u << sm_thinning_level()) - 1));
    lt_account *row = is_written ? sm_row(LT_ACCOUNTS, sizeof *row) : NULL;
    if (!row)
        return;
    *row = *a;
    row->run_ns -= t->time.before_ns < a->run_ns ? t->time.before_ns : a->run_ns;
    leave_out(row, &t->account.base);
}

/* Whether somebody else has taken the signal: CPU time passes, and nothing comes. */
static void look_for_silence(sm_process *p) {
    lt_quality counted = {0};
    sm_area_count(p->area, &counted);
    int is_silent = counted.signals == p->silence.signals && p->silence.cpu_ns > SILENT_CPU_NS;
    p->silence.seconds = is_silent ? p->silence.seconds + 1 : 0;
    p->silence.signals = counted.signals;
    p->silence.cpu_ns = 0;
    if (p->silence.seconds >= SILENT_S)
        sm_signalled_leave_alone(p);
}

/* What its switches say leaves out the switching itself. What was read counts if nothing has come in between. */
static void correct(const sm_process *p) {
    for (sm_thread *t = p->threads; t; t = t->next)
        if (t->wait.out_ns && t->account.read_at == t->wait.switches
            && t->account.read_ns > t->time.copied_ns + t->time.ran_ns)
            t->time.ran_ns = t->account.read_ns - t->time.copied_ns;
}

static void tell_quality(void) {
    lt_quality sum = sm.quality;
    sum.our_ns = sm_clock(CLOCK_PROCESS_CPUTIME_ID);
    for (const sm_process *p = sm_processes(); p; p = p->next)
        if (p->area)
            sm_area_count(p->area, &sum);
    sm.handler_ns = sum.handler_ns;
    sm_tell_quality(&sum);
}

void sm_accounts_read(void) {
    for (sm_process *p = sm_processes(); p; p = p->next) {
        if (!p->is_sampled || p->end_ns)
            continue;
        for (sm_thread *t = p->threads; t; t = t->next)
            if (!t->end_ns)
                sm_account(t, 0);
        if (p->has_events && p->area)
            look_for_silence(p);
    }
}

void sm_accounts_settle(void) {
    for (sm_process *p = sm_processes(); p; p = p->next)
        correct(p);
    tell_quality();
}
