/* The operators of PyTorch, by global RecordFunction callbacks: all threads, beside any profiler of
 * the program's own. No torch header: the functions are found by name, the offsets of two members
 * come from the probe, the callback's layout was checked by it. */
#define _GNU_SOURCE
#include "torch.h"

#include "record_function.h"

#include <dlfcn.h>
#include <string.h>

#define LISTENED_TO 64
enum { SCOPE_BACKWARD = 1, SCOPE_BUILD_FEATURE = 5, SCOPE_USER = 7, SCOPES = 10 };
enum { FUNCTIONS, BACKWARD, RANGES, LISTENING, HANDLES };

static const char *(*name_of)(const void *record_function);
static bool (*is_async)(const void *record_function);
static uint64_t (*add_callback)(callback);
static void (*remove_callback)(uint64_t handle);
static uint64_t handles[HANDLES]; /* 0: we are not called for these */

static inline void **begin(void **result, const void *record_function, uint32_t kind, int with_shapes) {
    ls_beginning b;
    if (ls_operator_slot(&b, name_of(record_function), kind, result))
        *result = ls_operator_open(&b, with_shapes ? ls_shapes_of(b.thread, record_function) : 0);
    return result;
}

static void **begin_function(void **result, const void *f) { return begin(result, f, LF_FUNCTION, 0); }
static void **begin_backward(void **result, const void *f) { return begin(result, f, LF_BACKWARD, 0); }
static void **begin_range(void **result, const void *f) { return begin(result, f, LF_RANGE, 0); }
static void **begin_shaped_function(void **result, const void *f) { return begin(result, f, LF_FUNCTION, 1); }
static void **begin_shaped_backward(void **result, const void *f) { return begin(result, f, LF_BACKWARD, 1); }
static void **begin_shaped_range(void **result, const void *f) { return begin(result, f, LF_RANGE, 1); }

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
    ls_ending ending = {.sequence = -1};
    int32_t offset = LS_LOAD(ls.forward_thread_offset);
    if (c->kind == LF_BACKWARD && offset > 0)
        ending.forward_thread = member(record_function, offset);
    offset = LS_LOAD(ls.sequence_offset);
    if (offset > 0)
        ending.sequence = (int64_t)member(record_function, offset);
    /* Only user-scope ranges (collectives, remote calls) are ever marked asynchronous. */
    ending.is_async = c->kind >= LF_RANGE && is_async(record_function);
    ls_operator_write(t, c, now, here, &ending);
    if (LS_UNLIKELY(t->written % 1024 < LS_ANY_SPAN)) /* the probe may have answered in the meantime */
        take_offsets();
}

static void end(const void *record_function, void *context) {
    const ls_context *c = context;
    if (!ls_operator_was_recorded(c))
        return;
    uint64_t now = ls_ticks();
    ls_thread *t = ls_thread_here();
    int here = ls_is_here(t, c);
    if (t)
        write_span(t, record_function, c, now, here);
    ls_operator_close(t, c, here);
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
    handles[FUNCTIONS] = add_for(ls_shapes_are_on ? begin_shaped_function : begin_function, -1, 1.0);
    handles[BACKWARD] = add_for(ls_shapes_are_on ? begin_shaped_backward : begin_backward, SCOPE_BACKWARD, 1.0);
}

static void leave_out(int which) {
    if (handles[which])
        remove_callback(handles[which]);
    handles[which] = 0;
}

/* Outside of a window that somebody else opens: torch calls us for one operator of LISTENED_TO, and for the others it
 * does not even make a RecordFunction. */
static void **begin_listening(void **result, const void *f) {
    (void)f;
    *result = NULL;
    ls_window_listens();
    return result;
}

static void attend(int which) {
    if (handles[RANGES] && which == LS_ATTEND_ALL && !handles[FUNCTIONS])
        add_functions();
    if (handles[RANGES] && which == LS_ATTEND_SOME && !handles[LISTENING])
        handles[LISTENING] = add_for(begin_listening, -1, 1.0 / LISTENED_TO);
    if (which != LS_ATTEND_ALL) {
        leave_out(FUNCTIONS);
        leave_out(BACKWARD);
    }
    if (which != LS_ATTEND_SOME)
        leave_out(LISTENING);
}

static void leave(void) {
    for (int i = 0; i < HANDLES; i++)
        leave_out(i);
}

static const ls_announcer announcer = {attend, leave};

static int start(void) {
    if (!ls.page || !ls.wiped)
        return -3;
    if (handles[RANGES])
        return 0;
    int32_t probe = __atomic_load_n(&ls.page->probe, __ATOMIC_ACQUIRE);
    if (probe != LF_PROBE_GOOD)
        return probe == LF_PROBE_PENDING ? 1 : -1;
    void *torch = dlopen(ls.page->library, RTLD_NOW | RTLD_NOLOAD);
    if (!torch)
        return -2;
    *(void **)&name_of = dlsym(torch, "_ZNK2at14RecordFunction4nameEv");
    *(void **)&is_async = dlsym(torch, "_ZNK2at14RecordFunction7isAsyncEv");
    *(void **)&add_callback = dlsym(torch, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    *(void **)&remove_callback = dlsym(torch, "_ZN2at14removeCallbackEm");
    *(void **)&ls_framework_thread_id = dlsym(torch, "_ZN2at14RecordFunction15currentThreadIdEv");
    *(void **)&ls_framework_backward = dlsym(torch, "_ZN5torch8autograd25get_current_graph_task_idEv");
    *(void **)&ls_uncaught_exceptions = dlsym(torch, "_ZSt19uncaught_exceptionsv");
    ls_onednn_find(torch);
    dlclose(torch); /* the program has its own reference; ours would only outlive ls_operators_stop */
    if (!name_of || !is_async || !add_callback || !remove_callback)
        return -2;
    take_offsets();
    if (ls_thread_is_current(ls_this_thread))
        ls_this_thread->announced = 0; /* it had no number of torch's yet, if a range came first */
    ls_operators_announce(&announcer);
    if (ls_operators_attended() == LS_ATTEND_ALL)
        add_functions();
    handles[RANGES] = add_for(ls_shapes_are_on ? begin_shaped_range : begin_range, SCOPE_USER, 1.0);
    attend(ls_operators_attended());
    ls.page->callbacks = 3;
    return 0;
}

/* Start recording. 0: recording; 1: the probe has not answered yet, ask again; -1: it refused this
 * library; -2: the library lacks a function; -3: ls_prepare was not called or failed. */
LS_EXPORT int ls_torch_start(void) {
    ls_lock_beginning(); /* two threads that import, and both find the answer there */
    int code = start();
    ls_unlock_beginning();
    return code;
}
