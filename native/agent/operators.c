/* The operators of PyTorch, by global RecordFunction callbacks: all threads, beside any profiler of
 * the program's own. No torch header: the functions are found by name, the offsets of two members
 * come from the probe, the callback's layout was checked by it. */
#define _GNU_SOURCE
#include "agent.h"
#include "../record_function.h"
#include "stack.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

enum { SCOPE_BACKWARD = 1, SCOPE_BUILD_FEATURE = 5, SCOPE_USER = 7, SCOPES = 10 };

static const char *(*name_of)(const void *record_function);
static bool (*is_async)(const void *record_function);
static uint64_t (*add_callback)(callback);
static void (*remove_callback)(uint64_t handle);
static uint64_t handles[3];

/* The Itanium vtable of a class with a virtual destructor: offset to top, type, two destructors. A context
 * belongs to its thread for good, so destroying one does nothing. */
static void destroy(void *context) { (void)context; }
void *const ls_context_vtable[4] = {NULL, NULL, (void *)destroy, (void *)destroy};

/* Whether the string at `text` still is the one in the cache. Word by word: a word that starts at a
 * multiple of its size never reaches into a page that the string is not on, and a shorter string differs
 * before the word behind its end. A sanitizer is right that the last word may hold bytes of others. */
typedef uint64_t __attribute__((may_alias)) word_of_text;

__attribute__((no_sanitize_address)) static inline int same_text(const char *text, const ls_cached_name *known) {
    if ((uintptr_t)text % 8)
        return !strcmp(known->copy, text);
    const word_of_text *a = (const word_of_text *)text, *b = (const word_of_text *)known->copy;
    uint32_t length = known->length;
    for (; length >= 8; length -= 8)
        if (*a++ != *b++)
            return 0;
    return !length || !((*a ^ *b) << (64 - 8 * length));
}

static inline const ls_cached_name *find_name(ls_thread *t, const char *text) {
    uintptr_t bits = (uintptr_t)text;
    ls_cached_name *known = &t->cache[((bits >> 4) ^ (bits >> 13)) % LS_CACHE];
    if (LS_UNLIKELY(known->pointer != text) || LS_UNLIKELY(!same_text(text, known)))
        ls_name_find(text, known);
    return known;
}

static inline void **begin(void **result, const void *record_function, uint32_t kind) {
    *result = NULL;
    ls_thread *t = ls_thread_here();
    ls_context *c = t ? ls_next_slot(t) : NULL;
    if (LS_UNLIKELY(!c))
        return result;
    const ls_cached_name *name = find_name(t, name_of(record_function));
    if (kind == LS_RANGE || name->kind == LS_BACKWARD)
        kind = name->kind;
    if (LS_UNLIKELY(kind == LS_OPTIMIZER))
        t->optimizers[c->depth] = 0;
    ls_open_slot(t, c, name->id, kind);
    if (LS_UNLIKELY(t->line != 0) && kind == LS_RANGE) {
        c->line = t->line;
        t->line = 0;
    }
    *result = c;
    return result;
}

static void **begin_function(void **result, const void *f) { return begin(result, f, LS_FUNCTION); }
static void **begin_backward(void **result, const void *f) { return begin(result, f, LS_BACKWARD); }
static void **begin_range(void **result, const void *f) { return begin(result, f, LS_RANGE); }

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
    if (LS_UNLIKELY(!ls_ring_has_room(t, 5))) {
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
    if (LS_UNLIKELY(forward || !here || optimizer || c->line)) {
        r->flags |= LS_FLAG_EXTRA;
        if (forward)
            ls_extra(t, LS_EXTRA_FORWARD_THREAD, forward, 0);
        if (!here)
            ls_extra(t, LS_EXTRA_ELSEWHERE, c->track, c->serial);
        if (optimizer)
            ls_extra(t, LS_EXTRA_OPTIMIZER, optimizer, 0);
        if (c->line)
            ls_extra(t, LS_EXTRA_LINE, c->line, 0);
    }
    ls_ring_publish(t);
    if (LS_UNLIKELY(t->written % 1024 < 5)) /* the probe may have answered in the meantime */
        take_offsets();
}

static void end(const void *record_function, void *context) {
    const ls_context *c = context;
    if (!c || LS_UNLIKELY(!ls.wiped || !ls_thread_is_current(c->owner)))
        return; /* not recorded, or begun in the process that forked this one */
    uint64_t now = ls_ticks();
    ls_thread *t = ls_thread_here();
    int here = ls_is_here(t, c);
    if (t)
        write_span(t, record_function, c, now, here);
    ls_close(t, c, here);
}

/* Say which optimizer instance the innermost open optimizer step of this thread belongs to; numbers
 * start at 1. Called from the framework's own hook at the end of the step. */
LS_EXPORT void ls_note_optimizer(uint32_t instance) {
    ls_thread *t = ls_this_thread;
    if (!ls.wiped || !ls_thread_is_current(t))
        return;
    const ls_open *open = t->ring->h.open;
    for (uint32_t depth = t->depth; depth-- > 0;)
        if (open[depth].kind == LS_OPTIMIZER && !(LS_LOAD(open[depth].state) & 1)) {
            t->optimizers[depth] = instance;
            return;
        }
}

static uint64_t add_for(void **(*start)(void **, const void *), int scope) {
    callback c = {.start = start, .end = end, .sampling_probability = 1.0};
    if (scope >= 0)
        c.scopes[scope] = true;
    for (int i = 0; scope < 0 && i < SCOPES; i++)
        c.scopes[i] = i != SCOPE_BACKWARD && i != SCOPE_USER && i != SCOPE_BUILD_FEATURE;
    return add_callback(c);
}

static int start(void) {
    if (!ls.page || !ls.wiped)
        return -3;
    if (handles[0])
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
    dlclose(torch); /* the program has its own reference; ours would only outlive ls_operators_stop */
    if (!name_of || !is_async || !add_callback || !remove_callback)
        return -2;
    take_offsets();
    if (ls_thread_is_current(ls_this_thread))
        ls_this_thread->announced = 0; /* it had no number of torch's yet, if a range came first */
    handles[0] = add_for(begin_function, -1);
    handles[1] = add_for(begin_backward, SCOPE_BACKWARD);
    handles[2] = add_for(begin_range, SCOPE_USER);
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
    for (int i = 0; i < 3; i++) {
        if (handles[i])
            remove_callback(handles[i]);
        handles[i] = 0;
    }
    ls_unlock_beginning();
}
