/* Spans that a thread ends itself, the newest of a domain first: tasks of ITT, push and pop of NVTX. */
#define _GNU_SOURCE
#include "client.h"

/* A span of this domain begins and is not recorded (the window is closed, too many are open): its end must not be taken
 * for that of one around it. */
void ls_nested_skip(uint32_t domain) {
    ls_thread *t = ls_this_thread;
    if (!ls.wiped || !ls_thread_is_current(t))
        return; /* nothing of this thread is open */
    if (t->skips < LS_SKIPS)
        t->skipped[t->skips] = (ls_skip){domain, t->depth};
    t->skips++;
}

/* The innermost open span of this thread in `domain`; NULL: none. */
ls_context *ls_nested_find(ls_thread *t, uint32_t domain) {
    for (uint32_t depth = t->depth; depth-- > 0;) {
        ls_context *c = &t->contexts[depth];
        if (c->kind >= LF_TASK && c->domain == domain && LS_LOAD(t->ring->h.open[depth].state) == c->serial << 1)
            return c;
    }
    return NULL;
}

/* Whether what ends is one that was skipped: `c` was opened before it. */
static int was_skipped(ls_thread *t, uint32_t domain, const ls_context *c) {
    if (t->skips > LS_SKIPS) {
        t->skips--;
        return 1;
    }
    for (uint32_t i = t->skips; i-- > 0;) {
        if (t->skipped[i].domain != domain)
            continue;
        if (c && c->depth >= t->skipped[i].depth)
            return 0;
        for (t->skips--; i < t->skips; i++)
            t->skipped[i] = t->skipped[i + 1];
        return 1;
    }
    return 0;
}

static void end(ls_thread *t, ls_context *c, uint64_t now) {
    if (LS_UNLIKELY(c->args == LS_ARGUMENTS_LATER))
        c->args = ls_arguments_end(c);
    ls_write_range(t, c, now, 1);
    if (LS_UNLIKELY(c->around != LS_IS_NO_STEP))
        ls_window_ended(t, c->around);
    LS_STORE(t->ring->h.open[c->depth].state, c->serial << 1 | 1);
    ls_close_here(t, c);
}

/* The innermost span in `domain` is over; one that has no beginning is ignored. */
void ls_nested_end(uint32_t domain) {
    ls_thread *t = ls_this_thread;
    if (!ls.wiped || !ls_thread_is_current(t))
        return;
    uint64_t now = ls_ticks();
    ls_context *c = ls_nested_find(t, domain);
    if (LS_UNLIKELY(t->skips) && was_skipped(t, domain, c))
        return;
    if (c)
        end(t, c, now);
}

/* The thread ends inside of them: nobody else can end them. */
void ls_nested_abandon(ls_thread *t) {
    uint64_t now = ls_ticks();
    for (uint32_t depth = t->depth; depth-- > 0;) {
        ls_context *c = &t->contexts[depth];
        if (c->kind >= LF_TASK && c->domain && LS_LOAD(t->ring->h.open[depth].state) == c->serial << 1)
            end(t, c, now);
    }
}
