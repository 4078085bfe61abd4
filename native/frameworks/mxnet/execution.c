/* The operators of MXNet as its engine executes them: on the thread that does the work, each once, under the name that
 * the engine has for it, whether MXNet's own profiler runs or not. The engine calls these functions instead of its own
 * (start.c). No header of MXNet's: of its objects only the name of an operator is read, by the offsets of the build. */
#define _GNU_SOURCE
#include "mxnet.h"

#define NO_NAME "(no name)"

uint32_t ls_mxnet_operator_in_block, ls_mxnet_name_in_operator;
void (*ls_mxnet_own_execute)(void *, void *, ls_mxnet_stacked);
void (*ls_mxnet_own_push_naive)(void *, void *, uint64_t, const void *, const void *, uint64_t, uint64_t, const char *,
                                uint64_t);
void (*ls_mxnet_own_push_cached_naive)(void *, void *, uint64_t, uint64_t, uint64_t);
void (*ls_mxnet_own_delete_naive)(void *, void *, uint64_t, void *);

static const char *at(const void *object, uint32_t offset) {
    return *(const char *const *)((const char *)object + offset);
}

/* The engine's name of an operator: a std::string as GCC had it before version 5, which is a pointer. */
static const char *name_of(const void *operator) { return at(operator, ls_mxnet_name_in_operator); }

static void *begin(const char *name) {
    ls_beginning b;
    void *silent = NULL;
    if (!ls_operator_slot(&b, name && *name ? name : NO_NAME, LF_FUNCTION, &silent))
        return silent;
    return ls_operator_open(&b, 0);
}

/* ThreadedEngine::ExecuteOprBlock(RunContext, OprBlock *, ...): the structures among the arguments are on the stack. */
void ls_mxnet_execute(void *engine, void *block, ls_mxnet_stacked rest) {
    void *span = begin(name_of(at(block, ls_mxnet_operator_in_block)));
    ls_mxnet_own_execute(engine, block, rest);
    ls_operator_ends(span, -1, 0);
}

/* NaiveEngine::PushAsync: it executes the operator at once. */
void ls_mxnet_push_naive(void *engine, void *function, uint64_t device, const void *reads, const void *writes,
                         uint64_t property, uint64_t priority, const char *name, uint64_t wait) {
    void *span = begin(name);
    ls_mxnet_own_push_naive(engine, function, device, reads, writes, property, priority, name, wait);
    ls_operator_ends(span, -1, 0);
}

/* NaiveEngine::Push, of an operator that was made before. */
void ls_mxnet_push_cached_naive(void *engine, void *operator, uint64_t device, uint64_t priority, uint64_t profiling) {
    void *span = begin(name_of(operator));
    ls_mxnet_own_push_cached_naive(engine, operator, device, priority, profiling);
    ls_operator_ends(span, -1, 0);
}

/* NaiveEngine::DeleteVariable */
void ls_mxnet_delete_naive(void *engine, void *function, uint64_t device, void *variable) {
    void *span = begin("DeleteVariable");
    ls_mxnet_own_delete_naive(engine, function, device, variable);
    ls_operator_ends(span, -1, 0);
}
