/* What a program records by itself, through `layerscope.profiler`: ranges, counters and marks. */
#define _GNU_SOURCE
#include "stack.h"
#include "windows.h"

/* Whether a range called `text` is recorded, where only windows are: its thread, else NULL. `around`: whether it is a
 * step. */
ls_thread *ls_range_watched(const char *text, uint16_t *around) {
    if (ls_window_is_mark(text)) {
        *around = LS_IS_STEP;
        ls_window_step_begins();
    }
    ls_window_hear();
    const ls_thread *t = ls_thread_is_current(ls_this_thread) ? ls_this_thread : NULL;
    return ls_window_records(t) ? ls_thread_here() : NULL;
}

/* Open a range (LF_TASK, LF_FRAME or LF_EVENT) called `text`: its name, and in a second line its domain. It may
 * end on another thread, and before a range that was opened after it. 0: `handle` is what ls_range_end takes. */
LS_EXPORT int ls_range_begin(const char *text, int kind, uint64_t handle[2]) {
    ls_thread *t;
    ls_context *c = ls_range_slot(text, &t);
    handle[0] = 0;
    if (!c) {
        ls_range_missed();
        return -1;
    }
    ls_cached_name name;
    ls_name_find(text, &name);
    c = ls_crossing_slot(t, c);
    ls_open_crossing(t, c, name.id, (uint32_t)kind);
    handle[0] = (uint64_t)(uintptr_t)c;
    handle[1] = c->serial;
    return 0;
}

/* The arguments of an open range that was begun on this thread: a JSON object, which names its domain too. */
LS_EXPORT void ls_range_describe(const uint64_t handle[2], const char *json) {
    ls_context *c = (ls_context *)(uintptr_t)handle[0];
    if (!c || !ls.wiped || c->owner != ls_this_thread || !ls_thread_is_current(c->owner) || c->serial != handle[1])
        return;
    ls_cached_name name;
    ls_name_find_arguments(json, &name);
    c->args = name.id;
}

static int end_range(const uint64_t handle[2], int was_moment) {
    const ls_context *c = (const ls_context *)(uintptr_t)handle[0];
    if (!c || !ls.wiped || !ls_thread_is_current(c->owner))
        return -1;
    if (c->serial != handle[1] || LS_LOAD(c->owner->ring->h.open[c->depth].state) != c->serial << 1)
        return -1;
    uint64_t end = was_moment ? c->start : ls_ticks();
    ls_thread *t = ls_thread_here();
    int here = ls_is_here(t, c);
    if (t)
        ls_write_range(t, c, end, here);
    if (c->around != LS_IS_NO_STEP)
        ls_window_ended(c->owner, c->around);
    if (here) /* so that a second end finds it over */
        LS_STORE(t->ring->h.open[c->depth].state, c->serial << 1 | 1);
    ls_close(t, c, here);
    return 0;
}

/* End it. -1: it was not recorded, has ended already, or was begun in the process that forked this one. */
LS_EXPORT int ls_range_end(const uint64_t handle[2]) { return end_range(handle, 0); }

/* It was over as it began. */
int ls_range_was_moment(const uint64_t handle[2]) { return end_range(handle, 1); }

/* The counter called `text` (and its domain in a second line) has this value now. */
LS_EXPORT void ls_counter(const char *text, int64_t value) {
    if (!LS_LOAD(ls.watching) || ls_window_is_open())
        ls_moment(LF_COUNTER, text, (uint64_t)value, 0, 0);
}

/* Mark this moment; `what` is one of the LF_MARK_ values. */
LS_EXPORT void ls_mark(const char *text, uint32_t what, int32_t scope) {
    if (what > LF_MARK_STEP || !LS_LOAD(ls.watching) || ls_window_is_open())
        ls_moment(LF_MARK, text, 0, what, scope);
    if (what == LF_MARK_STEP && LS_LOAD(ls.watching))
        ls_window_marked();
}
