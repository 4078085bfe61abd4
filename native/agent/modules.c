/* The calls of the modules of a network. `module(x)` reaches the function `__call__` of its class through the C slot of
 * the type, and the slot calls the function by its vectorcall field (PEP 590). That field is the hook: the function
 * stays the same object with the same code, so compilers of a framework, inspect and tracebacks see nothing, and every
 * call is left whatever exception ends it. Everything here runs with the GIL held. No Python header: the functions
 * are found by name, and the field is trusted only if it holds the value that it should. */
#define _GNU_SOURCE
#include "modules.h"

#include "python.h"
#include "requests.h"
#include "stand_ins.h"
#include "stack.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_TABLE 1024u
#define LS_RUNS 5

typedef struct {
    const void *module; /* NULL: free, GONE: was in use */
    char *text;         /* path, class and first call */
    uint64_t generation;
    uint32_t id; /* of `text` in the process of that generation */
} known_module;

#define GONE ((const void *)1)
static known_module *known;
static uint32_t mask, used;

/* A Python function that takes a module, and whose calls are spans. A module is known once for each of them: by its
 * address and this much more, less than objects lie apart. */
typedef struct {
    ls_function_hook hook;
    void *resolver;
    uintptr_t key;
    int active;
    void *after; /* called with the first argument behind every so many calls that ended well */
    uint32_t every, count;
    int is_span; /* else `resolver` is called before each call, and `after` behind each, however it ends */
} called;
static called calls, base_calls, generations = {.key = 8};
static called runs[LS_RUNS]; /* of what is no module: sessions */
#define NEVER_KNOWN 4        /* a key of calls that are no spans */
static void *raised;

static const void *key_of(const called *by, const void *module) { return (const char *)module + by->key; }

static uint32_t place_of(const void *module) {
    return (uint32_t)(((uint64_t)(uintptr_t)module >> 4) * 0x9e3779b97f4a7c15u >> 32);
}

static known_module *find(const void *module) {
    for (uint32_t i = place_of(module); known; i++) {
        known_module *m = &known[i & mask];
        if (m->module == module)
            return m;
        if (!m->module)
            break;
    }
    return NULL;
}

static int grow(void) {
    uint32_t living = 0;
    for (uint32_t i = 0; known && i <= mask; i++)
        living += known[i].text != NULL;
    uint32_t size = FIRST_TABLE;
    while (size < 4 * living)
        size *= 2;
    known_module *larger = calloc(size, sizeof *larger);
    if (!larger)
        return -1;
    for (uint32_t i = 0; known && i <= mask; i++) {
        if (!known[i].text)
            continue;
        uint32_t to = place_of(known[i].module);
        while (larger[to & (size - 1)].module)
            to++;
        larger[to & (size - 1)] = known[i];
    }
    free(known);
    known = larger;
    mask = size - 1;
    used = living;
    return 0;
}

/* From now on calls of `module` are spans called `text`. Called from Python with the GIL held. */
LS_EXPORT int ls_module_learn(const void *module, const char *text) {
    char *copy = strdup(text);
    if (!copy)
        return -1;
    known_module *m = find(module);
    if (!m) {
        if ((!known || 2 * used > mask) && grow()) {
            free(copy);
            return -1;
        }
        uint32_t at = place_of(module);
        while (known[at & mask].module)
            at++;
        m = &known[at & mask];
        used++;
    }
    free(m->text);
    *m = (known_module){.module = module, .text = copy};
    return 0;
}

/* The module is gone; another object may get its address. The callback of a weak reference, GIL held. */
LS_EXPORT void ls_module_forget(const void *module, const void *reference) {
    (void)reference;
    const called *all[] = {&calls, &generations};
    for (int i = 0; i < 2; i++) {
        known_module *m = find(key_of(all[i], module));
        if (!m)
            continue;
        free(m->text);
        *m = (known_module){.module = GONE};
    }
}

/* The number of the text of a module; 0: nobody could tell what it is. */
static uint32_t name_of(known_module *m) {
    if (!m)
        return 0;
    uint64_t generation = LS_LOAD(ls.wiped->generation);
    if (LS_UNLIKELY(m->generation != generation)) {
        ls_cached_name name;
        ls_name_find(m->text, &name);
        m->id = name.id;
        m->generation = generation;
    }
    return m->id;
}

/* The same of what is called, by its address; 0: it is not known. GIL held. */
uint32_t ls_module_name(const void *module) { return name_of(find(module)); }

static ls_context *enter(ls_thread *t, uint32_t name) {
    ls_context *c = name ? ls_next_slot(t) : NULL;
    if (!c)
        return NULL;
    /* What the code of an operator calls is in that operator. */
    uint32_t around = t->modules + (t->custom != NULL);
    c->around = (uint16_t)(around < UINT16_MAX ? around : UINT16_MAX);
    ls_open_slot(t, c, name, LF_MODULE);
    c->line = around ? 0 : ls_request_here();
    t->module = name;
    t->modules++;
    return c;
}

static void write_failure(ls_thread *t, uint64_t now) {
    uint32_t name = t->raised_as;
    t->raised_as = 0;
    if (!ls_ring_has_room(t, LS_ANY_SPAN)) {
        ls_ring_lose(t, 0);
        return;
    }
    lf_record *r = ls_ring_next(t);
    *r = (lf_record){.start = now, .end = t->failed, .name = name, .module = LF_MARK_RAISED, .kind = LF_MARK};
    ls_ring_publish(t);
}

static void write_call(ls_thread *t, const ls_context *c) {
    uint64_t now = ls_ticks();
    if (LS_UNLIKELY(t->raised_as))
        write_failure(t, now); /* at the time at which the call ends: that tells whose it is */
    if (!ls_ring_has_room(t, LS_ANY_SPAN)) {
        ls_ring_lose(t, 0);
        return;
    }
    lf_record *r = ls_span_record(t, c, now);
    r->seq = c->around;
    r->module = c->name;
    if (LS_UNLIKELY(c->line)) { /* the track of its request */
        r->flags |= LF_FLAG_EXTRA;
        ls_extra(t, LF_EXTRA_SUBMITTED, c->start, c->line);
    }
    ls_ring_publish(t);
}

/* Where calls do not end in the order in which they began, what is still open tells which module it is. */
static void look_for_module(ls_thread *t) {
    const lf_open *open = t->ring->h.open;
    t->module = t->modules = 0;
    t->module_object = NULL;
    for (uint32_t depth = 0; depth < t->depth; depth++)
        if (open[depth].kind == LF_MODULE && !(LS_LOAD(open[depth].state) & 1)) {
            t->module = open[depth].name;
            t->modules++;
        }
}

static void leave(ls_context *c, uint64_t serial, const void *outer) {
    ls_thread *t = ls_this_thread;
    if (!ls.wiped || t != c->owner || !ls_thread_is_current(t) || c->serial != serial)
        return; /* the process has forked inside the call */
    write_call(t, c);
    t->out_of_order |= c->depth + 1u != t->depth;
    ls_close_here(t, c);
    if (LS_UNLIKELY(t->out_of_order)) {
        look_for_module(t);
        t->out_of_order = t->depth != 0;
        return;
    }
    t->module = c->module;
    t->module_object = outer;
    t->modules--;
}

/* What is known of a module that is called, learned now at its first call. 0: an exception of the program's is set. */
static int look_up(const called *by, ls_thread **t, const void *module, known_module **m) {
    *t = ls_thread_here();
    *m = *t ? find(key_of(by, module)) : NULL;
    if (*t && LS_UNLIKELY(!*m)) {
        if (!ls_python_call(by->resolver, module, (*t)->module_object))
            return 0;
        *t = ls_thread_here(); /* Python code has run: it may have forked */
        *m = find(key_of(by, module));
    }
    return 1;
}

/* Whether the function of a base class is called by that of its own class, whose call is a span already. */
static int is_part_of_call(const ls_thread *t, const called *by, const void *module) {
    if (by != &base_calls || !t->modules || module != t->module_object)
        return 0;
    uint32_t depth = t->depth;
    while (depth-- > 0 && t->contexts[depth].kind != LF_MODULE)
        ;
    return depth < t->depth && !t->contexts[depth].args;
}

/* The exception that is set ends a call of a module: this is what it says. Called from Python, GIL held. */
LS_EXPORT void ls_module_raised(const char *text) {
    ls_thread *t = ls_this_thread;
    if (!ls.wiped || !ls_thread_is_current(t))
        return;
    ls_cached_name name;
    ls_name_find(text, &name);
    t->raised_as = name.id;
}

static void *call_recorded(const called *by, void *callable, void *const *arguments, size_t count, void *keywords) {
    ls_thread *t = NULL;
    known_module *m = NULL;
    if (by->active && ls_argument_count(count) && !look_up(by, &t, arguments[0], &m))
        return NULL;
    ls_context *c = t && !is_part_of_call(t, by, arguments[0]) ? enter(t, name_of(m)) : NULL;
    if (!c)
        return by->hook.original(callable, arguments, count, keywords);
    c->args = by == &base_calls;
    const void *outer = t->module_object;
    t->module_object = arguments[0];
    uint64_t serial = c->serial;
    int is_outermost = !c->around;
    if (is_outermost)
        t->failed = t->raised_as = 0;
    void *result = by->hook.original(callable, arguments, count, keywords);
    if (LS_UNLIKELY(!result) && is_outermost && raised)
        ls_python_tell_error(raised);
    leave(c, serial, outer);
    return result;
}

/* Tell those who asked for it that a call is over. */
static void *told(called *by, const void *first, void *result) {
    if (!result && !by->is_span)
        ls_python_tell_failure(by->after, first);
    if (!result || ++by->count < by->every)
        return result;
    by->count = 0;
    if (ls_python_call(by->after, first, NULL))
        return result;
    ls_python_release(result); /* an exception of the program's is set */
    return NULL;
}

/* Where only a window is recorded, a call may be the step at which it opens. */
static void *call_watched(const called *by, void *callable, void *const *arguments, size_t count, void *keywords) {
    int seen = by->active && ls_argument_count(count) ? ls_window_sees_calls() : LS_CALLS_UNSEEN;
    ls_thread *t = NULL;
    known_module *m = NULL;
    if (seen == LS_CALLS_COUNTED && !look_up(by, &t, arguments[0], &m))
        return NULL;
    int is_step = t ? ls_window_call_begins(t, name_of(m), m ? m->text : NULL) : 0;
    int is_recorded = seen != LS_CALLS_UNSEEN && ls_window_is_open();
    void *result = is_recorded ? call_recorded(by, callable, arguments, count, keywords)
                               : by->hook.original(callable, arguments, count, keywords);
    if (t && t == ls_this_thread && ls_thread_is_current(t))
        ls_window_call_ended(t, is_step);
    return result;
}

static void *call(const called *by, void *callable, void *const *arguments, size_t count, void *keywords) {
    if (LS_UNLIKELY(LS_LOAD(ls.watching)))
        return call_watched(by, callable, arguments, count, keywords);
    return call_recorded(by, callable, arguments, count, keywords);
}

static void *call_module(void *callable, void *const *arguments, size_t count, void *keywords) {
    return call(&calls, callable, arguments, count, keywords);
}

static void *call_base(void *callable, void *const *arguments, size_t count, void *keywords) {
    return call(&base_calls, callable, arguments, count, keywords);
}

static void *call_generate(void *callable, void *const *arguments, size_t count, void *keywords) {
    return call(&generations, callable, arguments, count, keywords);
}

static void *call_run(int which, void *function, void *const *arguments, ssize_t count, void *keywords) {
    called *by = &runs[which];
    void *result = call(by, function, arguments, (size_t)count, keywords);
    return (by->active || !by->is_span) && count > 0 ? told(by, arguments[0], result) : result;
}

static void *call_first_run(void *function, void *const *arguments, ssize_t count, void *keywords) {
    return call_run(0, function, arguments, count, keywords);
}

static void *call_second_run(void *function, void *const *arguments, ssize_t count, void *keywords) {
    return call_run(1, function, arguments, count, keywords);
}

static void *call_third_run(void *function, void *const *arguments, ssize_t count, void *keywords) {
    return call_run(2, function, arguments, count, keywords);
}

static void *call_fourth_run(void *function, void *const *arguments, ssize_t count, void *keywords) {
    return call_run(3, function, arguments, count, keywords);
}

static void *call_fifth_run(void *function, void *const *arguments, ssize_t count, void *keywords) {
    return call_run(4, function, arguments, count, keywords);
}

static const ls_stand_in_handler run_handlers[LS_RUNS] = {call_first_run, call_second_run, call_third_run, call_fourth_run,
                                                          call_fifth_run};

static void *original_run(void *function, void *const *arguments, size_t count, void *keywords) {
    return ls_call_python(function, arguments, (ssize_t)count, keywords);
}

static int start(called *by, void *function, void *resolve, ls_vectorcall ours) {
    if (!ls.page || !ls.wiped)
        return -3;
    if (!ls_function_is_hooked(&by->hook, ours) && ls_hook_function(&by->hook, function, resolve, ours))
        return -1;
    if (by->resolver != resolve)
        ls_python_keep(resolve);
    by->resolver = resolve;
    by->active = 1;
    return 0;
}

/* Record calls of modules: `function` is the `__call__` of the class of all modules, `resolve(module, outer)` learns a
 * module that is called for the first time, `outer` being the one whose call it runs in, or absent. Both are kept for
 * good: calls go on while the interpreter takes itself apart.
 * 0: recording; -1: this Python is not understood; -3: ls_prepare was not called or failed. GIL held. */
LS_EXPORT int ls_modules_start(void *function, void *resolve) { return start(&calls, function, resolve, call_module); }

/* The same where modules of some classes are called by another function, `function`, that of their base class; for the
 * others it is called in theirs. */
LS_EXPORT int ls_base_modules_start(void *function, void *resolve) {
    return start(&base_calls, function, resolve, call_base);
}

/* The same for a method that calls a module again and again, as one that generates text does; `resolve` learns the
 * module's address + 8. */
LS_EXPORT int ls_generations_start(void *function, void *resolve) {
    return start(&generations, function, resolve, call_generate);
}

/* What stands for method number `which` (below LS_RUNS) of objects that are no modules, and is called in its place: an
 * interpreter may go into a function without a look at its vectorcall field. `resolve` is as above, but what it does not
 * learn is asked about at each call, and is no span. `after(object)` is called behind every `every` calls that ended
 * well. Where `every` is 0, calls are no spans: `resolve` is called before each, and `after` behind each, also where an
 * exception ends it. A new reference; NULL: this Python is not understood, or ls_prepare was not called or failed. GIL held. */
LS_EXPORT void *ls_run_stand_in(int which, void *function, void *resolve, void *after, int every) {
    called *by = &runs[which];
    if (!ls.page || !ls.wiped || !ls_python_is_understood())
        return NULL;
    void *ours = ls_stand_for_function(function, run_handlers[which]);
    if (!ours)
        return NULL;
    ls_python_keep(resolve);
    ls_python_keep(after);
    by->resolver = resolve;
    by->after = after;
    by->every = (uint32_t)every;
    by->is_span = every > 0;
    by->key = by->is_span ? 0 : NEVER_KNOWN;
    by->hook.original = original_run;
    by->active = 1;
    return ours;
}

/* `tell(class, value)` is asked for the text of an exception that ends an outermost call, and gives it to
 * ls_module_raised. It is kept for good. GIL held. */
LS_EXPORT void ls_modules_tell_errors(void *tell) {
    ls_python_keep(tell);
    raised = tell;
}

/* Calls that begin from now on are not recorded; those that are open still are. GIL held. */
LS_EXPORT void ls_modules_stop(void) {
    calls.active = base_calls.active = generations.active = 0;
    ls_unhook_function(&calls.hook, call_module);
    ls_unhook_function(&base_calls.hook, call_base);
    ls_unhook_function(&generations.hook, call_generate);
}

/* Runs that begin from now on are recorded, or not. GIL held. */
LS_EXPORT void ls_runs_record(int is_wanted) {
    for (int which = 0; which < LS_RUNS; which++)
        runs[which].active = is_wanted && runs[which].resolver;
}
