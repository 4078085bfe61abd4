/* Records of one moment: counters, marks, names of threads. */
#define _GNU_SOURCE
#include "text_cache.h"

void ls_moment(uint8_t kind, const char *text, uint64_t value, uint32_t what, int32_t scope) {
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    if (!t)
        return;
    uint64_t now = ls_ticks();
    const uint32_t name = ls_cached_text(t, text)->id;
    int may_be_lost = kind != LF_MARK || what <= LF_MARK_STEP;
    if (!ls_ring_has_room(t, may_be_lost ? LS_ANY_SPAN : 1)) {
        ls_ring_lose(t, 0);
        return;
    }
    lf_record *r = ls_ring_next(t);
    *r = (lf_record){.start = now, .end = value, .name = name, .seq = scope, .module = what, .kind = kind};
    ls_ring_publish(t);
}

/* What the program calls a thread of its own. */
void ls_thread_name(int32_t tid, const char *name) { ls_moment(LF_MARK, name, 0, LF_MARK_NAMED, tid); }
