/* The layer api of MXNet: calls of its C interface, and in them what they submit to the engine. */
#define _GNU_SOURCE
#include "mxnet.h"

#include "../../agent/client.h"
#include "../../agent/python_line.h"

#include <string.h>

#define CALLS 0xfffffffeu /* the domain of the spans of calls: no program has as many of its own */

void (*ls_mxnet_own_enter_api)(const char *);
void (*ls_mxnet_own_exit_api)(void);
void (*ls_mxnet_own_wait)(void *, void *);
void (*ls_mxnet_own_push)(void *, void *, uint64_t, uint64_t, uint64_t);

static void begin_call(const char *name) {
    ls_thread *t;
    ls_context *c = ls_range_slot(name, &t);
    if (!c) {
        ls_range_missed();
        ls_nested_skip(CALLS);
        return;
    }
    ls_open_slot(t, c, ls_cached_text(t, name)->id, LF_CALL);
    c->domain = CALLS;
}

/* Whether it runs a backward pass. By the third letter alone most calls are something else. */
static int is_backward(const char *name) {
    static const char autograd[] = "MXAutogradBackward", executor[] = "MXExecutorBackward";
    if (name[0] != 'M' || name[1] != 'X' || (name[2] != 'A' && name[2] != 'E'))
        return 0;
    return !strncmp(name, autograd, sizeof autograd - 1) || !strncmp(name, executor, sizeof executor - 1);
}

/* Whether it executes operators, and returns when they are submitted: MXNet 2 does so by functions of its own registry,
 * too. */
static int is_invoke(const char *name) {
    static const char imperative[] = "MXImperativeInvoke", cached[] = "MXInvokeCachedOp", function[] = "MXNetFuncCall";
    if (name[0] != 'M' || name[1] != 'X' || (name[2] != 'I' && name[2] != 'N'))
        return 0;
    return !strncmp(name, imperative, sizeof imperative - 1) || !strncmp(name, cached, sizeof cached - 1)
        || !strncmp(name, function, sizeof function - 1);
}

/* mxnet::on_enter_api */
void ls_mxnet_enter_api(const char *name) {
    ls_mxnet_own_enter_api(name);
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    if (!t)
        return;
    t->api_depth++;
    if (!t->backward_depth && is_backward(name))
        t->backward_depth = t->api_depth;
    if (!t->invoke_depth && is_invoke(name))
        t->invoke_depth = t->api_depth;
    if (ls_mxnet_records_calls)
        begin_call(name);
}

/* mxnet::on_exit_api: whether the call returns or an exception ends it. */
void ls_mxnet_exit_api(void) {
    ls_thread *t = ls_this_thread;
    if (ls.wiped && ls_thread_is_current(t) && t->api_depth) {
        ls_mxnet_abandon(t);
        if (ls_mxnet_records_calls)
            ls_nested_end(CALLS);
        if (t->backward_depth == t->api_depth)
            t->backward_depth = 0;
        if (t->invoke_depth == t->api_depth)
            t->invoke_depth = 0;
        t->api_depth--;
    }
    ls_mxnet_own_exit_api();
}

/* ThreadedEngine::Push: every operator of an engine with threads goes through it. */
void ls_mxnet_push(void *engine, void *operator, uint64_t device, uint64_t priority, uint64_t profiling) {
    const ls_context *c = ls_mxnet_records_calls ? ls_mxnet_begin(ls_mxnet_name_of(operator), LF_SUBMIT) : NULL;
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    uint64_t at = c && c->owner ? c->start : ls_ticks();
    if (t && t->submitted)
        at = t->submitted;
    int is_passed_on = t && t->submitted && !t->custom; /* by an operator that does not run Python */
    uint32_t line = is_passed_on ? t->submitted_line : ls_python_line();
    ls_mxnet_submission what = {.at = at, .line = line};
    if (t) {
        ls_mxnet_custom_submits(ls_mxnet_name_of(operator), at);
        what.track = t->submitted ? t->submitted_track : t->track;
        const ls_mxnet_uses uses = ls_mxnet_uses_of(operator);
        what.module = ls_mxnet_note_uses(t, ls_mxnet_name_of(operator), &uses);
        what.custom = t->custom;
        what.in = ls_mxnet_window_of(t);
    }
    const ls_ending ending = {.sequence = ls_mxnet_submit(operator, what)};
    ls_mxnet_own_push(engine, operator, device, priority, profiling);
    ls_operator_finish(c, &ending);
}

/* ThreadedEngine::WaitForVar: until the operators are done that write this variable. The call says which is the last. */
void ls_mxnet_wait(void *engine, void *variable) {
    ls_thread *t = ls.wiped && ls_mxnet_records_calls ? ls_thread_here() : NULL;
    ls_context *c = t ? ls_nested_find(t, CALLS) : NULL;
    const char *awaited = c && !c->args ? ls_mxnet_writer_of(variable) : NULL;
    if (awaited) {
        char json[LF_NAME_LIMIT] = "";
        ls_arguments_text(json, "awaited", awaited, strlen(awaited));
        c->args = ls_arguments_id(json);
    }
    ls_mxnet_own_wait(engine, variable);
}
