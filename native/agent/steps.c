/* What begins and ends steps, counted as it happens for windows.c: optimizers, loaders, marks, calls of modules and
 * what --step-mark names. The definitions are those of layerscope/ingest/rules. Nothing here runs without a window. */
#define _GNU_SOURCE
#include "python.h"

#include "windows.h"

#include <dlfcn.h>
#include <string.h>

#define MOST_OPTIMIZERS (sizeof((ls_thread *)0)->optimizer_names / sizeof(uint32_t))

int (*ls_framework_backward)(void);
static ls_asked_window *const asked = &ls_asked;
static ls_window_state *const w = &ls_window;

/* Which optimizer steps: the first one of all, or the first one that --step-mark names. */
enum { PLAIN = 0, MARKED = 1 };

/* --- Optimizers -------------------------------------------------------------------------------------------------- */

static void step_by(uint32_t rule) { ls_window_arrive(rule, ++w->count[rule]); }

/* The backward pass in which an optimizer stepped is over where something begins outside of it. */
static void leave_backward(const ls_thread *t) {
    int is_main = t->ring->h.tid == ls.page->pid;
    if (w->backward == -1 || (t != w->backward_thread && !is_main) || ls_framework_backward() == w->backward)
        return;
    LS_STORE(w->backward, -1);
    step_by(w->backward_rule);
}

static void end_step(const ls_thread *t, uint32_t rule) {
    int backward = ls_framework_backward ? ls_framework_backward() : -1;
    if (backward == -1) {
        step_by(rule);
    } else if (backward != w->backward) {
        leave_backward(t);
        LS_STORE(w->backward, backward);
        w->backward_rule = rule;
        w->backward_thread = t;
        ls_window_settle();
    }
}

/* The number of a name; if --step-mark gives it, that is noted. */
static uint32_t numbered(const char *text) {
    ls_cached_name name;
    ls_name_find(text, &name);
    if (!strcmp(text, asked->mark))
        LS_STORE(w->marked_name, name.id);
    return name.id;
}

static void optimizer_begins(ls_thread *t, const char *text) {
    uint32_t name = numbered(text);
    if (w->marked_name == name)
        LS_STORE(w->mark_kind, LF_OPTIMIZER);
    t->worked = 1;
    if (t->optimizers_open < MOST_OPTIMIZERS)
        t->optimizer_names[t->optimizers_open] = name;
    t->optimizers_open++;
    w->optimizers_open++;
}

/* Whether a call of an optimizer is one of those that end the steps; around an outermost one there is no other. */
static int is_of(ls_stepper *s, uint32_t name, uint32_t instance, int is_outermost) {
    if (!s->is_known || (instance && !s->instance)) {
        if (!is_outermost)
            return 0; /* whose steps count is for the one around it to say */
        *s = (ls_stepper){1, instance, name};
    }
    return s->instance ? s->instance == instance : s->name == name;
}

static void optimizer_ended(ls_thread *t) {
    if (!t->optimizers_open)
        return; /* begun on another thread, or in the process that forked this one */
    w->optimizers_open -= w->optimizers_open > 0;
    uint32_t instance = LS_LOAD(t->noted), around = --t->optimizers_open;
    LS_STORE(t->noted, 0);
    uint32_t name = around < MOST_OPTIMIZERS ? t->optimizer_names[around] : 0;
    for (uint32_t i = 0; i < around && i < MOST_OPTIMIZERS; i++)
        if (t->optimizer_names[i] == name)
            return; /* part of a call of the same optimizer */
    if (is_of(&w->optimizer[PLAIN], name, instance, !around))
        end_step(t, LF_RULE_OPTIMIZER);
    if (w->marked_name && name == w->marked_name && is_of(&w->optimizer[MARKED], name, instance, !around))
        end_step(t, LF_RULE_NAMED);
}

/* --- Loaders ----------------------------------------------------------------------------------------------------- */

static void wait_begins(ls_thread *t, const char *text) {
    int is_marked = !strcmp(text, asked->mark);
    t->worked = 1;
    LS_STORE(t->raised, 0);
    if (t->loaders_open++)
        return;
    if (is_marked)
        LS_STORE(w->mark_kind, LF_LOADER);
    if (!w->loader_track || is_marked > w->loader_is_marked) {
        w->loader_track = t->track;
        w->loader_is_marked = is_marked;
    }
    if (t->track != w->loader_track)
        return;
    ls_window_arrive(w->loader_is_marked ? LF_RULE_NAMED : LF_RULE_LOADER, w->count[LF_RULE_LOADER]);
    w->is_waiting = 1;
}

/* One that ends by StopIteration began no step. */
static void wait_ended(ls_thread *t) {
    if (!t->loaders_open || --t->loaders_open || t->track != w->loader_track)
        return;
    w->count[LF_RULE_LOADER] += !LS_LOAD(t->raised);
    w->is_waiting = 0;
}

/* --- Marks and what --step-mark names ---------------------------------------------------------------------------- */

static int is_work(uint32_t kind) {
    return (kind <= LF_LOADER && kind != LF_RANGE) || (kind >= LF_TASK && kind <= LF_EVENT);
}

static int has_worked(const ls_thread *t) {
    if (t->worked || w->has_worked)
        return 1;
    for (uint32_t depth = 0; depth < t->depth; depth++)
        if (is_work(t->contexts[depth].kind))
            return 1;
    uint64_t from = t->written > t->capacity ? t->written - t->capacity : 0;
    for (uint64_t i = t->written; i-- > from;) {
        const lf_record *r = &t->ring->records[i % t->capacity];
        if (is_work(r->kind))
            return 1;
        if (r->kind == LF_THREAD_BEGIN)
            return 0;
    }
    return 0;
}

/* The program has said that a step ends here. */
void ls_window_marked(void) {
    ls_thread *t = ls_thread_here();
    if (!t)
        return;
    ls_window_lock();
    if (!w->mark_track) {
        w->mark_track = t->track;
        w->count[LF_RULE_MARK] = has_worked(t); /* otherwise step 0 begins here */
        ls_window_arrive(LF_RULE_MARK, w->count[LF_RULE_MARK]);
    } else if (t->track == w->mark_track) {
        step_by(LF_RULE_MARK);
    }
    ls_window_unlock();
}

int ls_window_is_mark(const char *text) {
    size_t length = strlen(asked->mark);
    return length && !strncmp(text, asked->mark, length) && (!text[length] || text[length] == '\n');
}

/* Whether `line` is the FILE:LINE that --step-mark names, of which the folders may be left out. */
int ls_window_is_line(const char *line) {
    size_t length = strlen(line), marked = strlen(asked->mark);
    if (!marked || length < marked || strcmp(line + length - marked, asked->mark))
        return 0;
    return length == marked || line[length - marked - 1] == '/';
}

/* A step with an end of its own begins. While another thread is in the window, one outside of it changes nothing. */
static void arrive_with_end(ls_thread *t, uint32_t rule, int64_t number) {
    if (rule > w->rule || w->is_new_leader)
        w->running = 0;
    if (ls_window_contains(number)) {
        w->running++;
        t->step_in = rule;
    } else if (w->running) {
        return;
    }
    ls_window_arrive(rule, number);
}

/* A step from its start to its end, on whatever thread. */
static void step_begins(ls_thread *t, int kind) {
    if (t->steps_open++)
        return;
    LS_STORE(w->mark_kind, kind);
    if (kind == LF_FUNCTION && !w->named_track)
        w->named_track = t->track;
    if (kind == LF_FUNCTION && t->track != w->named_track)
        return;
    int64_t number = w->count[LF_RULE_NAMED]++;
    if (kind == LF_FUNCTION)
        ls_window_arrive(LF_RULE_NAMED, number);
    else
        arrive_with_end(t, LF_RULE_NAMED, number);
}

static void step_ended(ls_thread *t) {
    if (!t->steps_open || --t->steps_open || w->mark_kind == LF_FUNCTION)
        return;
    if (t->step_in == LF_RULE_NAMED && w->running)
        w->running--;
    t->step_in = 0;
    if (!w->running && !ls_window_contains(w->count[LF_RULE_NAMED]))
        ls_window_arrive(LF_RULE_NAMED, w->count[LF_RULE_NAMED]);
}

/* Of what the program records by itself (marks.c). */
void ls_window_step_begins(void) {
    ls_thread *t = ls_thread_here();
    if (!t)
        return;
    ls_window_lock();
    step_begins(t, LF_TASK);
    ls_window_unlock();
}

/* --- Spans of a framework (operators.h) --------------------------------------------------------------------------- */

static int what_begins(const char *text, uint32_t kind, int is_step_line) {
    if (kind == LF_OPTIMIZER && ls_name_is_step(text))
        return LS_IS_OPTIMIZER;
    if (kind == LF_LOADER)
        return LS_IS_WAIT;
    return asked->mark[0] && (is_step_line || !strcmp(text, asked->mark)) ? LS_IS_STEP : LS_IS_NO_STEP;
}

static void begins(ls_thread *t, int what, uint32_t kind, const char *text) {
    if (w->backward != -1 && kind != LF_RANGE)
        leave_backward(t);
    if (what == LS_IS_OPTIMIZER)
        optimizer_begins(t, text);
    else if (what == LS_IS_WAIT)
        wait_begins(t, text);
    else if (what == LS_IS_STEP)
        step_begins(t, (int)kind);
}

/* Something that began on the thread `t` has ended, on whatever thread, and is to the steps what `what` says. */
void ls_window_ended(ls_thread *t, int what) {
    if (!ls.wiped || !ls_thread_is_current(t))
        return;
    ls_window_lock();
    if (what == LS_IS_OPTIMIZER)
        optimizer_ended(t);
    else if (what == LS_IS_WAIT)
        wait_ended(t);
    else if (what == LS_IS_STEP)
        step_ended(t);
    ls_window_unlock();
    if (what == LS_IS_OPTIMIZER)
        ls_window_hear();
}

/* The same of a span that was not recorded: its context lies in the state of its thread. */
void ls_window_ended_silently(const ls_context *c) {
    const char *first = (const char *)(c - c->around);
    ls_window_ended((ls_thread *)(first - offsetof(ls_thread, silent)), c->around);
}

/* Something ran on this thread that was not recorded: the first mark of a step will not be the beginning of all. */
void ls_window_worked(void) {
    if (ls_thread_is_current(ls_this_thread))
        ls_this_thread->worked = 1;
    else
        LS_STORE(w->has_worked, 1);
}

/* Whether a span that begins now is recorded. If its end is to be seen, `*result` says what that is, for one that is
 * not recorded. */
int ls_window_admits(const char *text, uint32_t kind, void **result) {
    if (LS_UNLIKELY(!LS_LOAD(ls.wiped->generation)))
        ls_thread_here(); /* a forked child whose parent was outside of the window */
    ls_window_hear();
    ls_thread *t = ls_thread_is_current(ls_this_thread) ? ls_this_thread : NULL;
    int is_ending = LS_LOAD(w->backward) != -1; /* a step, with the backward pass that goes on */
    if (kind != LF_RANGE && !is_ending && !ls_window_names_operators()) {
        ls_window_worked();
        return ls_window_records(t);
    }
    uint32_t named = ls_name_kind(text);
    if (kind == LF_RANGE || named == LF_BACKWARD)
        kind = named;
    int is_line = kind >= LF_RANGE && t && t->line && t->line_is_step;
    int what = what_begins(text, kind, is_line);
    if (what || (is_ending && (kind == LF_FUNCTION || kind > LF_RANGE)))
        t = ls_thread_here();
    if (t && (what || is_ending)) {
        ls_window_lock();
        begins(t, what, kind, text);
        ls_window_unlock();
    }
    if (t && what)
        *result = &t->silent[what];
    if (ls_window_records(t))
        return 1;
    if (t) {
        t->line = 0;
        t->worked |= kind != LF_RANGE;
    }
    return 0;
}

/* --- Calls of modules (modules.c), with the GIL held ------------------------------------------------------------- */

/* What calls are to us now: nothing, spans, or perhaps steps. */
int ls_window_sees_calls(void) {
    ls_window_hear();
    int kind = LS_LOAD(w->mark_kind);
    int may_be_steps = asked->mark[0] && (kind == LS_KIND_UNKNOWN || kind == LF_MODULE);
    if (LS_LOAD(w->rule) <= LF_RULE_REQUEST || may_be_steps)
        return LS_CALLS_COUNTED;
    return LS_LOAD(w->is_open) ? LS_CALLS_RECORDED : LS_CALLS_UNSEEN;
}

/* The module that requests begin with: the first one that is called more than once. A decoder may be called several
 * times before its encoder is called again: then what was counted by it is taken back. */
static uint32_t leader(void) {
    for (uint32_t i = 0; i < w->leaders; i++)
        if (w->leader_calls[i] > 1)
            return i;
    return 0;
}

static void request_begins(ls_thread *t, uint32_t name) {
    uint32_t i = 0;
    while (i < w->leaders && w->leader_names[i] != name)
        i++;
    if (i == LS_MOST_LEADERS)
        return;
    w->leaders += i == w->leaders;
    w->leader_names[i] = name;
    w->leader_calls[i]++;
    if (i != leader())
        return;
    w->is_new_leader = i != w->leader;
    w->leader = i;
    w->leader_changes += w->is_new_leader;
    w->count[LF_RULE_REQUEST] = w->leader_calls[i];
    arrive_with_end(t, LF_RULE_REQUEST, w->leader_calls[i] - 1);
    w->is_new_leader = 0;
}

/* A module is called whose name has the number `name` and begins with its path, `text`. Whether that is a step of
 * --step-mark: `ls_window_call_ended` has to know. */
int ls_window_call_begins(ls_thread *t, uint32_t name, const char *text) {
    int is_outermost = !t->calls++, is_step = text && ls_window_is_mark(text);
    t->worked = 1;
    ls_window_lock();
    if (is_step)
        step_begins(t, LF_MODULE);
    else if (is_outermost && name && w->rule <= LF_RULE_REQUEST)
        request_begins(t, name);
    ls_window_unlock();
    return is_step;
}

void ls_window_call_ended(ls_thread *t, int is_step) {
    t->calls -= t->calls > 0;
    ls_window_lock();
    if (is_step)
        step_ended(t);
    if (!t->calls)
        ls_window_depart(LF_RULE_REQUEST, w->count[LF_RULE_REQUEST] - 1);
    if (!t->calls && t->step_in == LF_RULE_REQUEST) {
        t->step_in = 0;
        w->running -= w->rule == LF_RULE_REQUEST && w->running > 0;
        if (w->rule == LF_RULE_REQUEST && !w->running && !ls_window_contains(w->count[LF_RULE_REQUEST] - 1))
            ls_window_arrive(LF_RULE_REQUEST, w->count[LF_RULE_REQUEST] - 1);
    }
    ls_window_unlock();
}

/* --- Requests (requests.c) --------------------------------------------------------------------------------------- */

/* A request arrives: its number, -1: what is stronger says what a step is. `*is_in`: whether it is in the window, which
 * does not close before it is over. */
int64_t ls_window_request_begins(int *is_in) {
    *is_in = 0;
    if (!ls_thread_here())
        return -1;
    ls_window_hear();
    ls_window_lock();
    int64_t number = w->rule <= LF_RULE_SERVED ? w->count[LF_RULE_SERVED]++ : -1;
    if (number >= 0 && w->rule < LF_RULE_SERVED)
        w->running = 0;
    *is_in = number >= 0 && ls_window_contains(number);
    w->running += *is_in;
    if (number >= 0 && (*is_in || !w->running))
        ls_window_arrive(LF_RULE_SERVED, number);
    ls_window_unlock();
    return number;
}

/* It is over, on whatever thread. */
void ls_window_request_ended(int64_t number, int is_in) {
    if (number < 0 || !ls_thread_here())
        return;
    ls_window_lock();
    ls_window_depart(LF_RULE_SERVED, number);
    int64_t next = w->count[LF_RULE_SERVED];
    if (is_in && w->rule == LF_RULE_SERVED && w->running > 0 && !--w->running && !ls_window_contains(next))
        ls_window_arrive(LF_RULE_SERVED, next);
    ls_window_unlock();
}

/* --- How a range ends -------------------------------------------------------------------------------------------- */

static ls_function_hook hook;
static const void *none;

static void *call_exit(void *callable, void *const *arguments, size_t count, void *keywords) {
    ls_thread *t = ls.wiped && ls_argument_count(count) > 1 && arguments[1] != none ? ls_this_thread : NULL;
    if (t && ls_thread_is_current(t))
        LS_STORE(t->raised, 1);
    void *result = hook.original(callable, arguments, count, keywords);
    if (t && ls_thread_is_current(t))
        LS_STORE(t->raised, 0);
    return result;
}

/* See whether a wait for the loader ends by an exception: `function` is record_function.__exit__, `like` a function of
 * ours. 0: done; -1: this Python is not understood. GIL held. */
LS_EXPORT int ls_window_watch_exits(void *function, void *like) {
    none = dlsym(RTLD_DEFAULT, "_Py_NoneStruct");
    if (!none)
        return -1;
    return ls_function_is_hooked(&hook, call_exit) ? 0 : ls_hook_function(&hook, function, like, call_exit);
}
