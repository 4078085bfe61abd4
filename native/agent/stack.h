/* The open spans of a thread: operators, modules and ranges lie on one stack, in the header of its ring. */
#ifndef LAYERSCOPE_STACK_H
#define LAYERSCOPE_STACK_H

#include "agent.h"

static inline void ls_set_depth(ls_thread *t, uint32_t depth) {
    const lf_open *open = t->ring->h.open;
    /* Acquire: whoever closed the slot from elsewhere is done with its context. */
    while (depth && __atomic_load_n(&open[depth - 1].state, __ATOMIC_ACQUIRE) & 1)
        depth--;
    t->depth = depth;
    __atomic_store_n(&t->ring->h.depth, depth, __ATOMIC_RELEASE);
}

/* The slot for the next span of this thread. NULL: too many are open, and one more is counted as lost. */
static inline ls_context *ls_next_slot(ls_thread *t) {
    uint64_t elsewhere = __atomic_load_n(&t->ring->h.elsewhere, __ATOMIC_ACQUIRE);
    if (LS_UNLIKELY(elsewhere != t->elsewhere)) {
        t->elsewhere = elsewhere;
        ls_set_depth(t, t->depth);
    }
    if (LS_UNLIKELY(t->depth >= LF_OPEN_SLOTS)) {
        ls_ring_lose(t, 1);
        return NULL;
    }
    return &t->contexts[t->depth]; /* its last span has ended: the slot would not be free otherwise */
}

static inline void ls_fill_slot(ls_thread *t, ls_context *c, uint32_t name, uint32_t kind) {
    c->name = name;
    c->track = t->track;
    c->kind = (uint8_t)kind;
    c->module = t->module;
    c->line = c->args = c->domain = 0;
    c->serial = ++t->serial;
    lf_open *o = &t->ring->h.open[c->depth];
    o->name = name;
    o->kind = kind;
    LS_STORE(o->state, c->serial << 1);
    c->start = o->start = ls_ticks();
}

static inline void ls_open_slot(ls_thread *t, ls_context *c, uint32_t name, uint32_t kind) {
    ls_fill_slot(t, c, name, kind);
    t->depth = c->depth + 1u;
    __atomic_store_n(&t->ring->h.depth, t->depth, __ATOMIC_RELEASE);
}

/* The span that another thread opened is over: its owner pops the slot at its next span, if there is one. */
static inline void ls_close_elsewhere(const ls_context *c) {
    lf_ring_header *h = &c->owner->ring->h;
    uint64_t open = c->serial << 1;
    if (!__atomic_compare_exchange_n(&h->open[c->depth].state, &open, open | 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return;
    __atomic_add_fetch(&h->elsewhere, 1, __ATOMIC_ACQ_REL);
    if (LS_UNLIKELY(__atomic_load_n(&c->owner->over, __ATOMIC_SEQ_CST)))
        ls_thread_recycle(c->owner);
}

static inline void ls_close_here(ls_thread *t, const ls_context *c) {
    if (c->depth + 1u == t->depth)
        ls_set_depth(t, c->depth);
    else if (LS_LOAD(t->ring->h.open[c->depth].state) == c->serial << 1)
        LS_STORE(t->ring->h.open[c->depth].state, c->serial << 1 | 1); /* out of order: popped with the one above it */
}

static inline void ls_close(ls_thread *t, const ls_context *c, int here) {
    if (here)
        ls_close_here(t, c);
    else
        ls_close_elsewhere(c);
}

static inline int ls_is_here(const ls_thread *t, const ls_context *c) {
    return t == c->owner && c->track == t->track; /* a thread's state is recycled, its track is not */
}

/* The next free record, filled with what the slot knows. */
static inline lf_record *ls_span_record(ls_thread *t, const ls_context *c, uint64_t now) {
    lf_record *r = ls_ring_next(t);
    __builtin_prefetch(r + 8, 1); /* the ring is larger than the caches near the core */
    r->start = c->start;
    r->end = now;
    r->name = c->name;
    r->seq = -1;
    r->module = c->module;
    r->depth = c->depth;
    r->kind = c->kind;
    r->flags = 0;
    return r;
}

static inline lf_record *ls_extra(ls_thread *t, uint32_t what, uint64_t first, uint64_t second) {
    lf_record *r = ls_ring_advance(t);
    *r = (lf_record){.start = first, .end = second, .name = what, .kind = LF_EXTRA};
    return r;
}

/* The slot of a range called `text` that begins now on this thread, still to be opened; `t` is its thread. NULL: it is
 * not recorded. */
static inline ls_context *ls_range_slot(const char *text, ls_thread **t) {
    uint16_t around = LS_IS_NO_STEP;
    if (LS_UNLIKELY(!ls.wiped))
        return NULL;
    *t = LS_UNLIKELY(LS_LOAD(ls.watching)) ? ls_range_watched(text, &around) : ls_thread_here();
    ls_context *c = *t ? ls_next_slot(*t) : NULL;
    if (LS_UNLIKELY(!c)) {
        if (around == LS_IS_STEP) /* nobody will hear of its end */
            ls_window_ended(ls_this_thread, LS_IS_STEP);
        return NULL;
    }
    c->around = around;
    return c;
}

/* A range began without being recorded, and is work of the program (primitives are none: they are the library's). */
static inline void ls_range_missed(void) {
    if (ls.wiped && LS_LOAD(ls.watching))
        ls_window_worked();
}

/* Spans that cross, each begun before the one before it ends, would climb to the top of the stack: from this depth on
 * one that may cross takes the place of one that is over, below those that are open. */
#define LS_CROSSING_DEPTH 32u

/* The slot for a span that may end in any order, instead of `c`, the one on top. */
static inline ls_context *ls_crossing_slot(ls_thread *t, ls_context *c) {
    for (uint32_t depth = 0; c->depth >= LS_CROSSING_DEPTH && depth < c->depth; depth++) {
        if (!(__atomic_load_n(&t->ring->h.open[depth].state, __ATOMIC_ACQUIRE) & 1))
            continue;
        t->contexts[depth].around = c->around;
        return &t->contexts[depth];
    }
    return c;
}

static inline void ls_open_crossing(ls_thread *t, ls_context *c, uint32_t name, uint32_t kind) {
    if (c->depth < t->depth)
        ls_fill_slot(t, c, name, kind);
    else
        ls_open_slot(t, c, name, kind);
}

/* The record of a range that ended at `now`; `here`: on its own thread. */
static inline void ls_write_range(ls_thread *t, const ls_context *c, uint64_t now, int here) {
    if (LS_UNLIKELY(!ls_ring_has_room(t, LS_ANY_SPAN))) {
        ls_ring_lose(t, 0);
        return;
    }
    lf_record *r = ls_span_record(t, c, now);
    if (!here || c->args) {
        r->flags = (uint8_t)(LF_FLAG_EXTRA | (here ? 0 : LF_FLAG_ELSEWHERE));
        if (!here)
            ls_extra(t, LF_EXTRA_ELSEWHERE, c->track, c->serial);
        if (c->args)
            ls_extra(t, LF_EXTRA_ARGS, c->args, 0);
    }
    ls_ring_publish(t);
}

#endif
