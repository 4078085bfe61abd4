/* What the files about MXNet share. */
#ifndef LAYERSCOPE_MXNET_H
#define LAYERSCOPE_MXNET_H

#include "../../agent/operators.h"
#include "../../agent/redirection.h"

/* A build of MXNet. Where its engine keeps what is read of it: the operator of a block that is about to be executed,
 * and in the operator its name. The rest are functions that execute operators; NULL: they do so by another one. */
typedef struct {
    const char *build_id;
    uint32_t operator_in_block, name_in_operator;
    const char *execute, *push_naive, *push_cached_naive, *delete_naive;
} ls_mxnet_build;

/* What lies on the stack behind the arguments in registers: at least all arguments of any function that has it, which
 * differ in number and size between builds. */
typedef struct {
    uint64_t words[16];
} ls_mxnet_stacked;

/* builds.c */
const ls_mxnet_build *ls_mxnet_build_of(const char *build_id);

/* execution.c: what is called instead of MXNet's own functions, and where theirs are */
extern uint32_t ls_mxnet_operator_in_block, ls_mxnet_name_in_operator;
extern void (*ls_mxnet_own_execute)(void *engine, void *block, ls_mxnet_stacked rest);
extern void (*ls_mxnet_own_push_cached_naive)(void *engine, void *operator, uint64_t device, uint64_t priority,
                                              uint64_t profiling);
extern void (*ls_mxnet_own_delete_naive)(void *engine, void *function, uint64_t device, void *variable);
extern void (*ls_mxnet_own_push_naive)(void *engine, void *function, uint64_t device, const void *reads,
                                       const void *writes, uint64_t property, uint64_t priority, const char *name,
                                       uint64_t wait);
void ls_mxnet_execute(void *engine, void *block, ls_mxnet_stacked rest);
void ls_mxnet_push_naive(void *engine, void *function, uint64_t device, const void *reads, const void *writes,
                         uint64_t property, uint64_t priority, const char *name, uint64_t wait);
void ls_mxnet_push_cached_naive(void *engine, void *operator, uint64_t device, uint64_t priority, uint64_t profiling);
void ls_mxnet_delete_naive(void *engine, void *function, uint64_t device, void *variable);

/* start.c */
LS_EXPORT int ls_mxnet_start(const char *path);

#endif
