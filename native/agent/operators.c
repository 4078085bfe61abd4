/* The operators of PyTorch, by global RecordFunction callbacks: all threads, beside any profiler of
 * the program's own. No torch header: the functions are found by name, the offsets of two members
 * come from the probe, the callback's layout was checked by it. */
#define _GNU_SOURCE
#include "agent.h"
#include "../record_function.h"
#include "stack.h"
#include "text_cache.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#define LISTENED_TO 64
enum { SCOPE_BACKWARD = 1, SCOPE_BUILD_FEATURE = 5, SCOPE_USER = 7, SCOPES = 10 };

static const char *(*name_of)(const void *record_function);
static bool (*is_async)(const void *record_function);
static int (*uncaught_exceptions)(void); /* of C++ on this thread; NULL: the library does not know */
static uint64_t (*add_callback)(callback);
static void (*remove_callback)(uint64_t handle);
static uint64_t handles[4]; /* operators, backward functions, ranges; operators now and then */

/* The Itanium vtable of a class with a virtual destructor: offset to top, type, two destructors. A context
 * belongs to its thread for good, so destroying one does nothing. */
static void destroy(void *context) { (void)context; }
void *const ls_context_vtable[4] = {NULL, NULL, (void *)destroy, (void *)destroy};

static inline void **begin(void **result, const void *record_function, uint32_t kind, int with_shapes) {
    *result = NULL;
    uint32_t asks = LS_LOAD(ls.watching);
    if (LS_UNLIKELY(asks) && kind != LS_RANGE)
        asks = LS_LOAD(ls.attention) | (LS_LOAD(*ls.said) ^ LS_LOAD(ls.heard));
    uint16_t around = LS_IS_NO_STEP;
    if (LS_UNLIKELY(asks)) {
        if (!ls_window_admits(name_of(record_function), kind, (void **)result))
            return result;
        around = *result ? ((const ls_context *)*result)->around : around;
    }
    ls_thread *t = ls_thread_here();
    ls_context *c = t ? ls_next_slot(t) : NULL;
    if (LS_UNLIKELY(!c))
        return result;
    const ls_cached_name *name = ls_cached_text(t, name_of(record_function));
    if (kind == LS_RANGE || name->kind == LS_BACKWARD)
        kind = name->kind;
    if (LS_UNLIKELY(kind == LS_OPTIMIZER))
        t->optimizers[c->depth] = 0;
    uint32_t args = with_shapes ? ls_shapes_of(t, record_function) : 0;
    ls_open_slot(t, c, name->id, kind);
    c->args = args;
    c->around = around;
    if (LS_UNLIKELY(t->line != 0) && kind == LS_RANGE) {
        c->line = t->line;
        t->line = 0;
    }
    *result = c;
    return result;
}

static void **begin_function(void **result, const void *f) { return begin(result, f, LS_FUNCTION, 0); }
static void **begin_backward(void **result, const void *f) { return begin(result, f, LS_BACKWARD, 0); }
static void **begin_range(void **result, const void *f) { return begin(result, f, LS_RANGE, 0); }
static void **begin_shaped_function(void **result, const void *f) { return begin(result, f, LS_FUNCTION, 1); }
static void **begin_shaped_backward(void **result, const void *f) { return begin(result, f, LS_BACKWARD, 1); }
static void **begin_shaped_range(void **result, const void *f) { return begin(result, f, LS_RANGE, 1); }

static inline uint64_t member(const void *record_function, int32_t offset) {
    uint64_t value;
    memcpy(&value, (const char *)record_function + offset, sizeof value);
    return value;
}

static void take_offsets(void) {
    LS_STORE(ls.sequence_offset, LS_LOAD(ls.page->sequence_offset));
    LS_STORE(ls.forward_thread_offset, LS_LOAD(ls.page->forward_thread_offset));
}

static inline void write_span(ls_thread *t, const void *record_function, const ls_context *c, uint64_t now, int here) {
    if (LS_UNLIKELY(!ls_ring_has_room(t, LS_ANY_SPAN))) {
        ls_ring_lose(t, 0);
        return;
    }
    uint64_t forward = 0;
    int32_t offset = LS_LOAD(ls.forward_thread_offset);
    if (c->kind == LS_BACKWARD && offset > 0)
        forward = member(record_function, offset);
    offset = LS_LOAD(ls.sequence_offset);
    int64_t seq = offset > 0 ? (int64_t)member(record_function, offset) : -1;
    uint32_t optimizer = LS_UNLIKELY(c->kind == LS_OPTIMIZER) && here ? t->optimizers[c->depth] : 0;
    ls_record *r = ls_span_record(t, c, now);
    r->seq = seq >= 0 && seq <= INT32_MAX ? (int32_t)seq : -1;
    /* Only user-scope ranges (collectives, remote calls) are ever marked asynchronous. */
    int async = c->kind >= LS_RANGE && is_async(record_function);
    r->flags = (uint8_t)((async ? LS_FLAG_ASYNC : 0) | (here ? 0 : LS_FLAG_ELSEWHERE));
    if (LS_UNLIKELY(forward || !here || optimizer || c->line || c->args)) {
        r->flags |= LS_FLAG_EXTRA;
        if (forward)
            ls_extra(t, LS_EXTRA_FORWARD_THREAD, forward, 0);
        if (!here)
            ls_extra(t, LS_EXTRA_ELSEWHERE, c->track, c->serial);
        if (optimizer)
            ls_extra(t, LS_EXTRA_OPTIMIZER, optimizer, 0);
        if (c->line)
            ls_extra(t, LS_EXTRA_LINE, c->line, 0);
        if (c->args)
            ls_extra(t, LS_EXTRA_ARGS, c->args, 0);
    }
    ls_ring_publish(t);
    if (LS_UNLIKELY(t->written % 1024 < LS_ANY_SPAN)) /* the probe may have answered in the meantime */
        take_offsets();
}

/* An operator inside a module has ended. The innermost one that ended by an exception is kept until another ends well:
 * then somebody has caught it. */
static void note_failure(ls_thread *t, const ls_context *c) {
    if (!uncaught_exceptions || !uncaught_exceptions()) {
        t->failed = 0;
    } else if (!t->failed || t->failed_since < c->start) {
        t->failed = c->name;
        t->failed_since = c->start;
    }
}

static void end(const void *record_function, void *context) {
    const ls_context *c = context;
    if (!c || LS_UNLIKELY(!ls.wiped || !ls_thread_is_current(c->owner))) {
        if (c && !c->owner)
            ls_window_ended_silently(c);
        return; /* not recorded, or begun in the process that forked this one */
    }
    uint64_t now = ls_ticks();
    ls_thread *t = ls_thread_here();
    int here = ls_is_here(t, c);
    if (t)
        write_span(t, record_function, c, now, here);
    if (here && t->modules)
        note_failure(t, c);
    if (LS_UNLIKELY(c->around != LS_IS_NO_STEP))
        ls_window_ended(c->owner, c->around);
    ls_close(t, c, here);
}

/* Say which optimizer instance the innermost open optimizer step of this thread belongs to; numbers
 * start at 1. Called from the framework's own hook at the end of the step. */
LS_EXPORT void ls_note_optimizer(uint32_t instance) {
    ls_thread *t = ls_this_thread;
    if (!ls.wiped || !ls_thread_is_current(t))
        return;
    LS_STORE(t->noted, instance);
    const ls_open *open = t->ring->h.open;
    for (uint32_t depth = t->depth; depth-- > 0;)
        if (open[depth].kind == LS_OPTIMIZER && !(LS_LOAD(open[depth].state) & 1)) {
            t->optimizers[depth] = instance;
            return;
        }
}

static uint64_t add_for(void **(*start)(void **, const void *), int scope, double probability) {
    callback c = {.start = start, .end = end, .sampling_probability = probability, .needs_inputs = ls_shapes_are_on};
    if (scope >= 0)
        c.scopes[scope] = true;
    for (int i = 0; scope < 0 && i < SCOPES; i++)
        c.scopes[i] = i != SCOPE_BACKWARD && i != SCOPE_USER && i != SCOPE_BUILD_FEATURE;
    return add_callback(c);
}

static void add_functions(void) {
    handles[0] = add_for(ls_shapes_are_on ? begin_shaped_function : begin_function, -1, 1.0);
    handles[1] = add_for(ls_shapes_are_on ? begin_shaped_backward : begin_backward, SCOPE_BACKWARD, 1.0);
}

static void leave_out(int i) {
    if (handles[i])
        remove_callback(handles[i]);
    handles[i] = 0;
}

/* Outside of a window that somebody else opens: torch calls us for one operator of LISTENED_TO, and for the others it
 * does not even make a RecordFunction. */
static void **begin_listening(void **result, const void *f) {
    (void)f;
    *result = NULL;
    ls_window_listens();
    return result;
}

/* One of LS_ATTEND_NONE...; and whether a thread forks and sees to it afterwards. */
static _Atomic int wanted = LS_ATTEND_ALL, forking;

static void attend(int which) {
    if (handles[2] && which == LS_ATTEND_ALL && !handles[0])
        add_functions();
    if (handles[2] && which == LS_ATTEND_SOME && !handles[3])
        handles[3] = add_for(begin_listening, -1, 1.0 / LISTENED_TO);
    if (which != LS_ATTEND_ALL) {
        leave_out(0);
        leave_out(1);
    }
    if (which != LS_ATTEND_SOME)
        leave_out(3);
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

/* Around a fork: nobody else is changing what torch calls. */
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

static int start(void) {
    if (!ls.page || !ls.wiped)
        return -3;
    if (handles[2])
        return 0;
    int32_t probe = __atomic_load_n(&ls.page->probe, __ATOMIC_ACQUIRE);
    if (probe != LS_PROBE_GOOD)
        return probe == LS_PROBE_PENDING ? 1 : -1;
    void *torch = dlopen(ls.page->library, RTLD_NOW | RTLD_NOLOAD);
    if (!torch)
        return -2;
    *(void **)&name_of = dlsym(torch, "_ZNK2at14RecordFunction4nameEv");
    *(void **)&is_async = dlsym(torch, "_ZNK2at14RecordFunction7isAsyncEv");
    *(void **)&add_callback = dlsym(torch, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    *(void **)&remove_callback = dlsym(torch, "_ZN2at14removeCallbackEm");
    *(void **)&ls_framework_thread_id = dlsym(torch, "_ZN2at14RecordFunction15currentThreadIdEv");
    *(void **)&ls_framework_backward = dlsym(torch, "_ZN5torch8autograd25get_current_graph_task_idEv");
    ls_onednn_find(torch);
    *(void **)&uncaught_exceptions = dlsym(torch, "_ZSt19uncaught_exceptionsv");
    dlclose(torch); /* the program has its own reference; ours would only outlive ls_operators_stop */
    if (!name_of || !is_async || !add_callback || !remove_callback)
        return -2;
    take_offsets();
    if (ls_thread_is_current(ls_this_thread))
        ls_this_thread->announced = 0; /* it had no number of torch's yet, if a range came first */
    add_functions();
    handles[2] = add_for(ls_shapes_are_on ? begin_shaped_range : begin_range, SCOPE_USER, 1.0);
    ls.page->callbacks = 3;
    return 0;
}

/* Start recording. 0: recording; 1: the probe has not answered yet, ask again; -1: it refused this
 * library; -2: the library lacks a function; -3: ls_prepare was not called or failed. */
LS_EXPORT int ls_operators_start(void) {
    ls_lock_beginning(); /* two threads that import, and both find the answer there */
    int code = start();
    ls_unlock_beginning();
    return code;
}

/* Stop recording: operators that begin from now on are not recorded; those that are open still are. */
LS_EXPORT void ls_operators_stop(void) {
    ls_lock_beginning();
    for (int i = 0; i < 4; i++)
        leave_out(i);
    ls_unlock_beginning();
}
