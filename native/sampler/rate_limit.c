/* Events that cost the program something each time: when they come too often, the rest of the second goes without. */
#define _GNU_SOURCE
#include "rate_limit.h"

#include "perf_event.h"
#include "recording.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#define SECOND_NS 1000000000ull

/* 0, or minus an errno: `fd` is not among them. */
int sm_rate_limit_keep(sm_rate_limit *l, int fd) {
    if (l->used == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        int *larger = realloc(l->fds, room * sizeof *larger);
        if (!larger)
            return -ENOMEM;
        l->fds = larger, l->room = room;
    }
    l->fds[l->used++] = fd;
    return 0;
}

/* What a thread has begun is paused with it. */
static void set_paused(sm_rate_limit *l, int is_paused) {
    for (size_t i = 0; i < l->used; i++)
        sm_perf_event_pause(l->fds[i], is_paused);
}

static void pause_all(sm_rate_limit *l, int is_paused) {
    l->is_paused = is_paused;
    set_paused(l, is_paused);
}

/* A pause that somebody else wants: it may not end the other one. */
void sm_rate_limit_pause(sm_rate_limit *l, int is_paused) {
    if (!l->is_paused)
        set_paused(l, is_paused);
}

/* Every round. */
void sm_rate_limit_tick(sm_rate_limit *l) {
    if (sm.now_ns < l->second_ns + SECOND_NS)
        return;
    l->second_ns = sm.now_ns;
    l->in_second = 0;
    if (l->is_paused)
        pause_all(l, 0);
}

void sm_rate_limit_new_period(const sm_rate_limit *l, uint64_t period_ns) {
    for (size_t i = 0; i < l->used; i++)
        ioctl(l->fds[i], PERF_EVENT_IOC_PERIOD, &period_ns);
}

/* One more has come. */
void sm_rate_limit_count(sm_rate_limit *l) {
    if (++l->in_second > l->most && !l->is_paused)
        pause_all(l, 1);
}
