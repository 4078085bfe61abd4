/* Spans that a framework announces by itself: operators, backward functions, optimizer steps, waits for a loader. What
 * the adapters of frameworks (native/frameworks) call; inline, because an operator may take no longer than 0.1 us. */
#ifndef LAYERSCOPE_OPERATORS_H
#define LAYERSCOPE_OPERATORS_H

#include "announcers.h"
#include "stack.h"
#include "text_cache.h"

/* A span that begins: its slot is found, its name known, and it is not open yet. */
typedef struct {
    ls_thread *thread;
    ls_context *context;
    uint32_t name, kind;
    uint16_t around; /* what its end is to windows.c */
} ls_beginning;

/* What only the framework knows of a span that ends. */
typedef struct {
    uint64_t forward_thread; /* of a backward function: the thread of its forward operator, 0: not known */
    int64_t sequence;        /* what the two have in common, as a submission and what it submitted; -1: nothing */
    uint64_t submitted;      /* of what was submitted: when, 0: it was not */
    uint32_t submitted_track; /* and on which track, 0: not known */
    int is_async;
} ls_ending;

/* Exceptions of C++ on this thread; NULL: not known. */
extern int (*ls_uncaught_exceptions)(void);

/* Whether what runs on this thread was submitted on another one while windows were looked for. */
static inline uint32_t ls_was_submitted(void) { return ls_this_thread ? ls_this_thread->submitted_in : 0; }

/* Find the slot of a span called `text` of this kind; a span of kind LF_RANGE is what its name says. 0: it is not
 * recorded, and `*silent` is the context to end it with, NULL: none. */
static inline int ls_operator_slot(ls_beginning *b, const char *text, uint32_t kind, void **silent) {
    *silent = NULL;
    uint32_t asks = LS_LOAD(ls.watching);
    if (LS_UNLIKELY(asks) && kind != LF_RANGE)
        asks = LS_LOAD(ls.attention) | (LS_LOAD(*ls.said) ^ LS_LOAD(ls.heard)) | ls_was_submitted();
    b->around = LS_IS_NO_STEP;
    if (LS_UNLIKELY(asks)) {
        if (!ls_window_admits(text, kind, silent))
            return 0;
        b->around = *silent ? ((const ls_context *)*silent)->around : b->around;
    }
    b->thread = ls_thread_here();
    b->context = b->thread ? ls_next_slot(b->thread) : NULL;
    if (LS_UNLIKELY(!b->context))
        return 0;
    const ls_cached_name *name = ls_cached_text(b->thread, text);
    b->name = name->id;
    b->kind = kind == LF_RANGE || name->kind == LF_BACKWARD ? name->kind : kind;
    return 1;
}

/* Open it; `args`: the name that is the text of its arguments, 0: none. */
static inline ls_context *ls_operator_open(const ls_beginning *b, uint32_t args) {
    ls_thread *t = b->thread;
    ls_context *c = b->context;
    if (LS_UNLIKELY(b->kind == LF_OPTIMIZER))
        t->optimizers[c->depth] = 0;
    ls_open_slot(t, c, b->name, b->kind);
    c->args = args;
    c->around = b->around;
    if (LS_UNLIKELY(t->line != 0) && b->kind == LF_RANGE) {
        c->line = t->line;
        t->line = 0;
    }
    return c;
}

/* Whether the end of a span is to be recorded: not of one that was not, or that began in the process that forked this
 * one. */
static inline int ls_operator_was_recorded(const ls_context *c) {
    if (!c || LS_UNLIKELY(!ls.wiped || !ls_thread_is_current(c->owner))) {
        if (c && !c->owner)
            ls_window_ended_silently(c);
        return 0;
    }
    return 1;
}

static inline void ls_operator_write(ls_thread *t, const ls_context *c, uint64_t now, int here, const ls_ending *e) {
    uint32_t optimizer = LS_UNLIKELY(c->kind == LF_OPTIMIZER) && here ? t->optimizers[c->depth] : 0;
    lf_record *r = ls_span_record(t, c, now);
    r->seq = e->sequence >= 0 && e->sequence <= INT32_MAX ? (int32_t)e->sequence : -1;
    r->flags = (uint8_t)((e->is_async ? LF_FLAG_ASYNC : 0) | (here ? 0 : LF_FLAG_ELSEWHERE));
    if (LS_UNLIKELY(e->forward_thread || e->submitted || !here || optimizer || c->line || c->args)) {
        r->flags |= LF_FLAG_EXTRA;
        if (e->forward_thread)
            ls_extra(t, LF_EXTRA_FORWARD_THREAD, e->forward_thread, 0);
        if (e->submitted)
            ls_extra(t, LF_EXTRA_SUBMITTED, e->submitted, e->submitted_track)->module = c->line;
        if (!here)
            ls_extra(t, LF_EXTRA_ELSEWHERE, c->track, c->serial);
        if (optimizer)
            ls_extra(t, LF_EXTRA_OPTIMIZER, optimizer, 0);
        if (c->line && !e->submitted)
            ls_extra(t, LF_EXTRA_LINE, c->line, 0);
        if (c->args)
            ls_extra(t, LF_EXTRA_ARGS, c->args, 0);
    }
    ls_ring_publish(t);
}

/* An operator inside a module has ended. The innermost one that ended by an exception is kept until another ends well:
 * then somebody has caught it. */
static inline void ls_operator_note_failure(ls_thread *t, const ls_context *c) {
    if (!ls_uncaught_exceptions || !ls_uncaught_exceptions()) {
        t->failed = 0;
    } else if (!t->failed || t->failed_since < c->start) {
        t->failed = c->name;
        t->failed_since = c->start;
    }
}

/* A span is over whose record was written, or lost. */
static inline void ls_operator_close(ls_thread *t, const ls_context *c, int here) {
    if (here && t->modules)
        ls_operator_note_failure(t, c);
    if (LS_UNLIKELY(c->around != LS_IS_NO_STEP))
        ls_window_ended(c->owner, c->around);
    ls_close(t, c, here);
}

/* It is over, on whatever thread. */
static inline void ls_operator_finish(const ls_context *c, const ls_ending *ending) {
    if (!ls_operator_was_recorded(c))
        return;
    uint64_t now = ls_ticks();
    ls_thread *t = ls_thread_here();
    int here = ls_is_here(t, c);
    if (t && ls_ring_has_room(t, LS_ANY_SPAN))
        ls_operator_write(t, c, now, here, ending);
    else if (t)
        ls_ring_lose(t, 0);
    ls_operator_close(t, c, here);
}

/* operators.c: the same for those who need not be quick */
LS_EXPORT void ls_note_optimizer(uint32_t instance);
LS_EXPORT void *ls_operator_begins(const char *text, uint32_t kind);
LS_EXPORT void ls_operator_ends(void *context, int64_t sequence, uint64_t forward_thread);

#endif
