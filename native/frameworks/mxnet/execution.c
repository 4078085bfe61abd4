/* The operators of MXNet as its engine executes them: on the thread that does the work, each once, under the name that
 * the engine has for it, whether MXNet's own profiler runs or not. The engine calls these functions instead of its own
 * (start.c). */
#define _GNU_SOURCE
#include "mxnet.h"

#include "../../agent/python_line.h"

void (*ls_mxnet_own_execute)(void *, void *, ls_mxnet_stacked);
void (*ls_mxnet_own_push_naive)(void *, void *, uint64_t, const void *, const void *, uint64_t, uint64_t, const char *,
                                uint64_t);
void (*ls_mxnet_own_push_cached_naive)(void *, void *, uint64_t, uint64_t, uint64_t);
int (*ls_mxnet_own_bulk_size)(const void *);
void (*ls_mxnet_own_delete_naive)(void *, void *, uint64_t, void *);

static const ls_ending not_submitted = {.sequence = -1};

/* ThreadedEngine::ExecuteOprBlock(RunContext, OprBlock *, ...): the structures among the arguments are on the stack. */
void ls_mxnet_execute(void *engine, void *block, ls_mxnet_stacked rest) {
    const void *operator = ls_mxnet_operator_of(block);
    const ls_mxnet_submission submission = ls_mxnet_take(operator);
    const ls_mxnet_origin from = {submission.at, submission.module, submission.line, submission.in, submission.track};
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    ls_mxnet_origin before = {0};
    if (t)
        before = ls_mxnet_go_to(t, from);
    char text[LF_NAME_LIMIT];
    const char *name = ls_mxnet_custom_name(text, submission.custom, ls_mxnet_name_of(operator));
    const ls_context *c = ls_mxnet_begin_from(name, &from, submission.number);
    ls_mxnet_own_execute(engine, block, rest);
    if (t && t == ls_this_thread)
        ls_mxnet_go_to(t, before);
    const ls_ending ending = {
        .sequence = submission.number, .submitted = from.submitted, .submitted_track = from.track};
    ls_operator_finish(c, &ending);
}

/* An operator that is executed where it is submitted. */
static const ls_context *begin_here(const char *name, const ls_mxnet_uses *uses) {
    char text[LF_NAME_LIMIT];
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    if (!t)
        return NULL;
    const ls_mxnet_origin here = {.module = ls_mxnet_note_uses(t, name, uses), .line = ls_python_line()};
    const ls_context *c = ls_mxnet_begin_from(ls_mxnet_custom_name(text, t->custom, name), &here, -1);
    ls_mxnet_custom_submits(name, c && c->owner ? c->start : ls_ticks());
    return c;
}

/* NaiveEngine::PushAsync: it executes the operator at once. */
void ls_mxnet_push_naive(void *engine, void *function, uint64_t device, const void *reads, const void *writes,
                         uint64_t property, uint64_t priority, const char *name, uint64_t wait) {
    const ls_mxnet_uses uses = {.read = ls_mxnet_list_at(reads), .written = ls_mxnet_list_at(writes)};
    const ls_context *c = begin_here(name, &uses);
    ls_mxnet_own_push_naive(engine, function, device, reads, writes, property, priority, name, wait);
    ls_operator_finish(c, &not_submitted);
}

/* NaiveEngine::Push, of an operator that was made before. */
void ls_mxnet_push_cached_naive(void *engine, void *operator, uint64_t device, uint64_t priority, uint64_t profiling) {
    const ls_mxnet_uses uses = ls_mxnet_uses_of(operator);
    const ls_context *c = begin_here(ls_mxnet_name_of(operator), &uses);
    ls_mxnet_own_push_cached_naive(engine, operator, device, priority, profiling);
    ls_operator_finish(c, &not_submitted);
}

/* NaiveEngine::DeleteVariable */
void ls_mxnet_delete_naive(void *engine, void *function, uint64_t device, void *variable) {
    const void *const deleted = variable;
    const ls_mxnet_uses uses = {.written = {&deleted, 1}};
    const ls_context *c = begin_here("DeleteVariable", &uses);
    ls_mxnet_own_delete_naive(engine, function, device, variable);
    ls_operator_finish(c, &not_submitted);
}

static _Atomic int is_separate;

/* Whether each operator is executed alone while it is recorded, not several as one: what MXNet does while its own
 * profiler sums up. */
LS_EXPORT void ls_mxnet_separate(int is_wanted) { atomic_store(&is_separate, is_wanted); }

/* ThreadedEngine::bulk_size: how many operators may be executed as one. */
int ls_mxnet_bulk_size(const void *engine) {
    return atomic_load(&is_separate) ? 0 : ls_mxnet_own_bulk_size(engine);
}
