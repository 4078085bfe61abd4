/* What a program records by itself, through `layerscope.profiler`: ranges, counters and marks. */
#define _GNU_SOURCE
#include "stack.h"

/* Open a range (LS_TASK, LS_FRAME or LS_EVENT) called `text`: its name, and in a second line its domain. It may
 * end on another thread, and before a range that was opened after it. 0: `handle` is what ls_range_end takes. */
LS_EXPORT int ls_range_begin(const char *text, int kind, uint64_t handle[2]) {
    handle[0] = 0;
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    ls_context *c = t ? ls_next_slot(t) : NULL;
    if (!c)
        return -1;
    ls_cached_name name;
    ls_name_find(text, &name);
    ls_open_slot(t, c, name.id, (uint32_t)kind);
    handle[0] = (uint64_t)(uintptr_t)c;
    handle[1] = c->serial;
    return 0;
}

/* End it. -1: it was not recorded, has ended already, or was begun in the process that forked this one. */
LS_EXPORT int ls_range_end(const uint64_t handle[2]) {
    const ls_context *c = (const ls_context *)(uintptr_t)handle[0];
    if (!c || !ls.wiped || !ls_thread_is_current(c->owner))
        return -1;
    if (c->serial != handle[1] || LS_LOAD(c->owner->ring->h.open[c->depth].state) != c->serial << 1)
        return -1;
    uint64_t now = ls_ticks();
    ls_thread *t = ls_thread_here();
    int here = ls_is_here(t, c);
    if (t && ls_ring_has_room(t, 2)) {
        ls_record *r = ls_span_record(t, c, now);
        if (!here) {
            r->flags = LS_FLAG_ELSEWHERE | LS_FLAG_EXTRA;
            ls_extra(t, LS_EXTRA_ELSEWHERE, c->track, c->serial);
        }
        ls_ring_publish(t);
    } else if (t) {
        ls_ring_lose(t, 0);
    }
    if (here) /* so that a second end finds it over */
        LS_STORE(t->ring->h.open[c->depth].state, c->serial << 1 | 1);
    ls_close(t, c, here);
    return 0;
}

static void moment(uint8_t kind, const char *text, uint64_t value, uint32_t what, int32_t scope) {
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    if (!t)
        return;
    uint64_t now = ls_ticks();
    ls_cached_name name;
    ls_name_find(text, &name);
    if (!ls_ring_has_room(t, 1)) {
        ls_ring_lose(t, 0);
        return;
    }
    ls_record *r = ls_ring_next(t);
    *r = (ls_record){.start = now, .end = value, .name = name.id, .seq = scope, .module = what, .kind = kind};
    ls_ring_publish(t);
}

/* The counter called `text` (and its domain in a second line) has this value now. */
LS_EXPORT void ls_counter(const char *text, int64_t value) { moment(LS_COUNTER, text, (uint64_t)value, 0, 0); }

/* Mark this moment; `what` is one of the LS_MARK_ values. */
LS_EXPORT void ls_mark(const char *text, uint32_t what, int32_t scope) { moment(LS_MARK, text, 0, what, scope); }
