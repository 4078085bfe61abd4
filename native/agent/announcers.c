/* The adapters that announce spans, for windows.c: where a window closes they announce fewer, where it opens all. */
#define _GNU_SOURCE
#include "announcers.h"

#include <sched.h>

#define MOST_ANNOUNCERS 8u

static const ls_announcer *announcers[MOST_ANNOUNCERS];
/* One of LS_ATTEND_NONE...; and whether a thread forks and sees to it afterwards. */
static _Atomic int wanted = LS_ATTEND_ALL, forking;

_Atomic int ls_primitives_stopped;

void ls_operators_announce(const ls_announcer *announcer) {
    uint32_t i = 0;
    while (i < MOST_ANNOUNCERS && announcers[i] && announcers[i] != announcer)
        i++;
    if (i < MOST_ANNOUNCERS)
        announcers[i] = announcer;
}

static void attend(int which) {
    for (uint32_t i = 0; i < MOST_ANNOUNCERS && announcers[i]; i++)
        announcers[i]->attend(which);
}

/* While recording is started: which operators and backward functions are looked at, beside the ranges. Does not wait
 * for a thread that forks: that one may wait for the GIL, and whoever called us may have it. */
void ls_operators_attend(int which) {
    atomic_store(&wanted, which);
    while (!ls_try_to_lock_beginning()) {
        if (atomic_load(&forking))
            return;
        sched_yield();
    }
    attend(atomic_load(&wanted));
    ls_unlock_beginning();
}

int ls_operators_attended(void) { return atomic_load(&wanted); }

/* Around a fork: nobody else is changing what frameworks call. */
void ls_operators_fork(void) {
    ls_lock_beginning();
    atomic_store(&forking, 1);
}

/* It is over; `which`: what is looked at now, -1: what was wanted last. */
void ls_operators_forked(int which) {
    atomic_store(&forking, 0);
    if (which >= 0)
        atomic_store(&wanted, which);
    attend(atomic_load(&wanted));
    ls_unlock_beginning();
}

/* Stop recording: operators that begin from now on are not recorded, nor is what they ask of libraries; those that are
 * open still are. */
LS_EXPORT void ls_operators_stop(void) {
    ls_lock_beginning();
    atomic_store(&ls_primitives_stopped, 1);
    for (uint32_t i = 0; i < MOST_ANNOUNCERS && announcers[i]; i++)
        announcers[i]->leave();
    ls_unlock_beginning();
}

/* Primitives are recorded again; operators are as soon as the adapter of their framework starts. */
LS_EXPORT void ls_primitives_start(void) { atomic_store(&ls_primitives_stopped, 0); }
