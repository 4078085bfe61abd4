/* Waits: from when a thread leaves a CPU until it comes onto one again.
 *
 * Each is as long as the kernel says. Every round looks at the threads that are off a CPU, once in a wait. A wait that
 * is longer than a round is seen so and has a row of its own (LT_EXACT). A shorter one is seen by chance, which is in
 * proportion to how long it is: each one that was seen stands for the same part of the sum of those that were short,
 * and so they add up exactly for each thread and second. What was never seen has a row without a stack. Threads that
 * could have run (LT_PREEMPTED) are not looked at: they were about where their last sample was.
 *
 * A wait that goes on for more than a second is told in parts that follow each other (LT_UNFINISHED: there is more, or
 * it was the end), so that what is told is never far behind.
 *
 * The time of the switch itself, one or two us, is CPU time of the thread for the system and still its wait for us.
 *
 * Where no switches are told, a round that finds a thread in the same wait as before counts the time between. */
#define _GNU_SOURCE
#include "waits.h"

#include "output.h"
#include "procfs.h"
#include "recording.h"
#include "thinning.h"
#include "wait_stacks.h"
#include "wakeups.h"

#include <string.h>

/* Looks take at most one part in a hundred of the time, and save up for so long. */
#define LOOK_SHARE 100u
#define LOOK_MOST_NS 20000000ull
/* How often, where no switches are told. */
#define LONG_NS 100000000ull
#define ROUND_NS 100000000ull
#define STOPPED (-3) /* in place of a system call */

static uint64_t look_budget_ns;

/* --- Rows --- */

static void row(sm_thread *t, const sm_look *look, uint64_t weight_ns, uint32_t waits, uint32_t flags) {
    lt_sample s = sm_sample(t, look->at_ns, LT_OFFCPU, weight_ns);
    s.stack = look->stack;
    s.system_call = look->system_call;
    s.file = look->file;
    s.waker = look->waker;
    s.count = waits;
    s.flags = flags;
    sm_tell(t, &s);
}

/* Those that were seen share the sum. */
static void tell_pool(sm_thread *t, sm_pool *pool, uint32_t flags) {
    uint64_t sum_ns = pool->sum_ns;
    uint32_t waits = pool->waits;
    for (uint32_t left = pool->seen; left; left--) {
        row(t, &pool->looks[left - 1], sum_ns / left, waits / left, flags);
        sum_ns -= sum_ns / left;
        waits -= waits / left;
    }
    if (!pool->seen && sum_ns)
        row(t, &(sm_look){pool->first_ns, LT_NONE, -2, LT_NO_FILE, LT_NONE}, sum_ns, waits, flags);
    pool->sum_ns = pool->waits = pool->seen = 0;
}

static void add(sm_thread *t, sm_pool *pool, uint64_t at_ns, uint64_t ns, const sm_look *look) {
    if (look && pool->seen == SM_SEEN_MOST)
        tell_pool(t, pool, 0);
    if (!pool->waits)
        pool->first_ns = at_ns;
    pool->waits++;
    pool->sum_ns += ns;
    if (look)
        pool->looks[pool->seen++] = *look;
}

/* Where a thread was that could have run: about where its last sample was. Those of one place are one row. */
static void add_preempted(sm_thread *t, uint64_t at_ns, uint64_t ns) {
    sm_pool *pool = &t->wait.preempted;
    uint32_t stack = t->sampled.last_ns ? t->sampled.last_stack : LT_NONE;
    if (pool->waits && (pool->seen ? pool->looks[0].stack : LT_NONE) != stack)
        tell_pool(t, pool, LT_PREEMPTED);
    add(t, pool, at_ns, ns, NULL);
    if (stack == LT_NONE)
        return;
    pool->looks[0] = (sm_look){pool->first_ns, stack, -2, LT_NO_FILE, LT_NONE};
    pool->seen = 1;
}

/* --- Switches --- */

static void ended(sm_thread *t, uint64_t from_ns, uint64_t until_ns) {
    uint64_t ns = until_ns - from_ns;
    t->wait.look.at_ns = from_ns;
    t->wait.look.waker = sm_waker_of(t, from_ns, until_ns);
    if (t->wait.is_preempted)
        add_preempted(t, from_ns, ns);
    else if (t->wait.looked == SM_LOOKED && ns >= SM_TICK_NS)
        row(t, &t->wait.look, ns, 1, LT_EXACT);
    else
        add(t, &t->wait.shorts, from_ns, ns, t->wait.looked == SM_LOOKED ? &t->wait.look : NULL);
}

static void came_onto(sm_thread *t, uint64_t at_ns, uint32_t cpu) {
    t->account.row.migrations += t->wait.came_ns && t->wait.cpu != cpu;
    t->wait.came_ns = at_ns;
    t->wait.cpu = cpu;
    t->wait.cpus |= 1ull << cpu % 64;
}

/* It is told late that the thread left a CPU, onto which or another one it has come again. */
static void left_late(sm_thread *t, uint64_t at_ns, int is_preempted) {
    int is_preempted_now = t->wait.is_preempted, looked_now = t->wait.looked;
    if (t->wait.late_ns == at_ns) /* told twice */
        return;
    t->wait.late_ns = at_ns;
    if (t->wait.unclosed_ns && t->wait.unclosed_ns < at_ns)
        t->time.ran_ns += at_ns - t->wait.unclosed_ns;
    t->wait.unclosed_ns = 0;
    t->wait.is_preempted = is_preempted;
    t->wait.looked = SM_NOT_LOOKED;
    if (t->process->is_sampled && !t->wait.is_run_late) /* else the wait has been told, from what was before that */
        ended(t, at_ns, t->wait.in_ns);
    t->wait.is_run_late = 0;
    t->wait.is_preempted = is_preempted_now;
    t->wait.looked = looked_now;
}

void sm_switched(sm_thread *t, uint64_t at_ns, uint32_t cpu, int is_out, int is_preempted) {
    t->wait.switches++;
    if (!is_out && at_ns < t->wait.came_ns) {
        t->wait.unclosed_ns = at_ns;
        t->wait.is_run_late = 1;
        return;
    }
    if (!is_out) {
        came_onto(t, at_ns, cpu);
        if (t->wait.out_ns && t->wait.out_ns <= at_ns && t->process->is_sampled)
            ended(t, t->wait.out_ns, at_ns);
        if (!t->wait.out_ns || t->wait.out_ns <= at_ns) {
            if (t->wait.out_ns || t->wait.in_ns < at_ns) {
                t->wait.unclosed_ns = t->wait.out_ns ? 0 : t->wait.in_ns;
                t->wait.is_run_late = 0;
            }
            t->wait.in_ns = at_ns;
            t->wait.out_ns = 0;
        }
        return;
    }
    if (t->wait.out_ns == at_ns) /* told twice: it was followed twice */
        return;
    if (at_ns < t->wait.in_ns && t->wait.in_ns == t->wait.came_ns) {
        left_late(t, at_ns, is_preempted);
        return;
    }
    if (t->wait.in_ns && t->wait.in_ns < at_ns && !t->wait.out_ns)
        t->time.ran_ns += at_ns - t->wait.in_ns;
    t->wait.is_preempted = is_preempted;
    t->wait.looked = SM_NOT_LOOKED;
    t->wait.out_ns = at_ns;
}

/* The thread ends, on a CPU if it has not left that. */
void sm_switched_last(sm_thread *t, uint64_t at_ns) {
    if (t->wait.in_ns && t->wait.in_ns < at_ns && !t->wait.out_ns)
        t->time.ran_ns += at_ns - t->wait.in_ns;
    t->wait.in_ns = 0;
}

/* A thread that is followed, and of which no switch is known. If it waits, its switches may be all before it was
 * followed, and the next one ends a wait that began by now at the latest. */
void sm_waits_found(sm_thread *t) {
    char text[256];
    if (!sm.has_switches || t->wait.in_ns || t->wait.out_ns)
        return;
    const char *at = sm_stat(text, sizeof text, t->process->pid, t->tid);
    if (!at || !strchr("SDTt", at[1]))
        return;
    t->wait.is_preempted = 0;
    t->wait.looked = SM_NOT_LOOKED;
    t->wait.out_ns = sm.now_ns;
}

/* Switches are missing: what goes on may have ended long ago. */
void sm_waits_lost(void) {
    for (sm_process *p = sm_processes(); p; p = p->next) {
        p->asked_from_ns = sm.now_ns;
        p->next_ask_ns = 0;
        for (sm_thread *t = p->threads; t; t = t->next) {
            t->wait.out_ns = t->wait.in_ns = t->wait.unclosed_ns = t->copied.asked_ns = 0;
            t->time.is_counted = 0;
        }
    }
}

/* --- Looks --- */

/* Whether a signal or a debugger has stopped the process: all of its threads then, whatever call they are in. */
static int is_stopped(const sm_process *p) {
    char text[256];
    const char *at = sm_stat(text, sizeof text, p->pid, p->pid);
    return at && (at[1] == 'T' || at[1] == 't');
}

static void look(sm_thread *t, int stopped) {
    t->wait.looked = sm_look_at(t, &t->wait.look);
    t->wait.look.waker = LT_NONE;
    if (stopped && t->wait.looked == SM_LOOKED) {
        t->wait.look.system_call = STOPPED;
        t->wait.look.file = LT_NO_FILE;
    }
    if (t->wait.looked != SM_UNREADABLE)
        return;
    static int is_said;
    if (!t->end_ns && !is_said++)
        sm_problem("waits_unreadable", t->process->pid, "stacks and reasons of waits",
                   "allow it: sysctl kernel.yama.ptrace_scope=0, or let the program keep the recorder's user",
                   "the system does not let us see where process %d waits", t->process->pid);
}

/* Where no switches are told: `dispatches` is how often the thread has come onto a CPU. */
static void look_again(sm_thread *t, int stopped) {
    uint64_t delay_ns, dispatches = 0;
    sm_ran_ns(t->process->pid, t->tid, &delay_ns, &dispatches);
    if (t->wait.out_ns && dispatches == t->wait.dispatches)
        return;
    if (t->wait.out_ns)
        row(t, &t->wait.look, sm.now_ns - t->wait.out_ns, 1, 0);
    t->wait.out_ns = 0;
    t->wait.dispatches = dispatches;
    if (look_budget_ns)
        look(t, stopped);
    if (look_budget_ns && t->wait.looked == SM_LOOKED)
        t->wait.look.at_ns = t->wait.out_ns = sm.now_ns;
}

/* Of those that have waited since `before_ns` or longer. */
static void look_round(sm_process *p, uint64_t before_ns) {
    int stopped = -1; /* asked when there is a thread to look at */
    for (sm_thread *t = p->threads; t && look_budget_ns; t = t->next) {
        int is_waiting = t->wait.out_ns && !t->wait.is_preempted && t->wait.looked == SM_NOT_LOOKED;
        if (t->end_ns || (sm.has_switches && (!is_waiting || t->wait.out_ns > before_ns)))
            continue;
        uint64_t before = sm_clock(CLOCK_THREAD_CPUTIME_ID);
        stopped = stopped < 0 ? is_stopped(p) : stopped;
        if (sm.has_switches)
            look(t, stopped);
        else
            look_again(t, stopped);
        uint64_t took = sm_clock(CLOCK_THREAD_CPUTIME_ID) - before;
        look_budget_ns -= took < look_budget_ns ? took : look_budget_ns;
    }
}

void sm_waits_tick(void) {
    static uint64_t last_ns, next_ns;
    uint64_t passed = last_ns ? sm.now_ns - last_ns : SM_TICK_NS;
    last_ns = sm.now_ns;
    look_budget_ns += passed / LOOK_SHARE;
    if (look_budget_ns > LOOK_MOST_NS)
        look_budget_ns = LOOK_MOST_NS;
    if (!sm.has_switches && sm.now_ns < next_ns)
        return;
    next_ns = sm.now_ns + ROUND_NS;
    /* Long waits first: where there are many short ones, these use up what looks may cost. */
    for (int is_second = !sm.has_switches; is_second < 2; is_second++)
        for (sm_process *p = sm_processes(); p; p = p->next)
            if (p->is_sampled && !p->end_ns)
                look_round(p, is_second ? UINT64_MAX : sm.now_ns - LONG_NS);
}

/* --- Once a second, and at the end --- */

static void tell_part(sm_thread *t, uint64_t until_ns) {
    if (!t->wait.out_ns || t->wait.out_ns >= until_ns)
        return;
    sm_look none = {t->wait.out_ns, LT_NONE, t->wait.is_preempted ? -1 : -2, LT_NO_FILE, LT_NONE};
    t->wait.look.at_ns = t->wait.out_ns;
    row(t, t->wait.looked == SM_LOOKED ? &t->wait.look : &none, until_ns - t->wait.out_ns, 1,
        LT_UNFINISHED | (sm.has_switches ? LT_EXACT : 0u) | (t->wait.is_preempted ? LT_PREEMPTED : 0u));
    t->wait.out_ns = until_ns;
}

void sm_waits_each_second(int is_last) {
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (sm_thread *t = p->is_sampled ? p->threads : NULL; t; t = t->next) {
            tell_pool(t, &t->wait.shorts, 0);
            tell_pool(t, &t->wait.preempted, LT_PREEMPTED);
            if (!t->end_ns && (is_last || t->wait.out_ns + SM_SECOND_NS <= sm.now_ns))
                tell_part(t, sm.now_ns);
        }
}

/* All waits that began before this are told, once the pools are. */
uint64_t sm_waits_oldest(void) {
    uint64_t oldest = sm.now_ns;
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (const sm_thread *t = p->is_sampled ? p->threads : NULL; t; t = t->next)
            if (t->wait.out_ns && t->wait.out_ns < oldest)
                oldest = t->wait.out_ns;
    return oldest;
}

void sm_waits_end(sm_thread *t) {
    tell_pool(t, &t->wait.shorts, 0);
    tell_pool(t, &t->wait.preempted, LT_PREEMPTED);
    if (t->wait.out_ns && t->end_ns > t->wait.out_ns && !sm.has_switches)
        row(t, &t->wait.look, t->end_ns - t->wait.out_ns, 1, 0);
}
