/* What the files about MXNet share. */
#ifndef LAYERSCOPE_MXNET_H
#define LAYERSCOPE_MXNET_H

#include "../../agent/stand_ins.h"
#include "../../agent/operators.h"
#include "../../agent/redirection.h"

#include <sys/types.h>

/* A build of MXNet. Where its engine keeps what is read of it: the operator of a block that is about to be executed,
 * and in the operator its name and its variables. The rest are functions that execute operators, NULL: they do so by another one; and what
 * is told of memory. */
typedef struct {
    const char *build_id;
    uint32_t operator_in_block, name_in_operator, read_in_operator, written_in_operator;
    const char *execute, *push_naive, *push_cached_naive, *delete_naive;
    const char *allocated, *freed;
} ls_mxnet_build;

/* What lies on the stack behind the arguments in registers: at least all arguments of any function that has it, which
 * differ in number and size between builds. */
typedef struct {
    uint64_t words[10];
} ls_mxnet_stacked;

/* builds.c */
const ls_mxnet_build *ls_mxnet_build_of(const char *build_id);
LS_EXPORT int ls_mxnet_knows(const char *build_id);

/* submissions.c: operators that were handed to the engine and are not executed yet */
typedef struct {
    uint64_t at;     /* when, ticks */
    uint32_t module; /* the name of the module that was open */
    uint32_t line;   /* the Python line that did it; 0: not known */
    const char *custom; /* the custom operator that did it; NULL: none */
    uint32_t in : 2; /* whether a window was open, as ls_thread has it */
    uint32_t track : 30; /* which did it; 0: not known */
    int32_t number;  /* -1: it is not known which submission it was */
} ls_mxnet_submission;
int ls_mxnet_submissions_begin(void);
int32_t ls_mxnet_submit(const void *operator, ls_mxnet_submission what);
ls_mxnet_submission ls_mxnet_take(const void *operator);

/* variables.c */
typedef struct {
    const void *const *all;
    uint32_t count;
} ls_mxnet_list;
typedef struct {
    ls_mxnet_list read, written;
} ls_mxnet_uses;
int ls_mxnet_variables_begin(void);
uint32_t ls_mxnet_note_uses(ls_thread *t, const char *text, const ls_mxnet_uses *uses);
const char *ls_mxnet_writer_of(const void *variable);

/* engine_operators.c */
typedef struct { /* where what a thread does was submitted */
    uint64_t submitted; /* when; 0: it was not, or it is not known */
    uint32_t module, line, in, track;
} ls_mxnet_origin;
extern ls_mxnet_build ls_mxnet_build_here;
extern _Atomic int ls_mxnet_is_recorded; /* its calls lead to us */
extern int ls_mxnet_records_calls;
uint32_t ls_mxnet_window_of(const ls_thread *t);
void *ls_mxnet_begin(const char *name, uint32_t kind);
ls_context *ls_mxnet_begin_from(const char *name, const ls_mxnet_origin *from, int32_t number);
void ls_mxnet_abandon(ls_thread *t);

/* What follows is inline, because it is done for each operator, more than once. */
static inline const char *ls_mxnet_at(const void *object, uint32_t offset) {
    return *(const char *const *)((const char *)object + offset);
}

/* The operator of a block that is about to be executed. */
static inline const void *ls_mxnet_operator_of(const void *block) {
    return ls_mxnet_at(block, ls_mxnet_build_here.operator_in_block);
}

/* The engine's name of an operator: a std::string as GCC had it before version 5, which is a pointer. */
static inline const char *ls_mxnet_name_of(const void *operator) {
    return ls_mxnet_at(operator, ls_mxnet_build_here.name_in_operator);
}

/* A std::vector of pointers. */
static inline ls_mxnet_list ls_mxnet_list_at(const void *vector) {
    const void *const *first = (const void *)ls_mxnet_at(vector, 0);
    const void *const *last = (const void *)ls_mxnet_at(vector, sizeof first);
    return (ls_mxnet_list){first, (uint32_t)(last - first)};
}

static inline ls_mxnet_uses ls_mxnet_uses_of(const void *operator) {
    const char *in = operator;
    return (ls_mxnet_uses){.read = ls_mxnet_list_at(in + ls_mxnet_build_here.read_in_operator),
                           .written = ls_mxnet_list_at(in + ls_mxnet_build_here.written_in_operator)};
}

/* What an operator does, and submits itself, belongs to where it comes from. Where the thread was before. */
static inline ls_mxnet_origin ls_mxnet_go_to(ls_thread *t, ls_mxnet_origin to) {
    ls_mxnet_origin before = {t->submitted, t->module, t->submitted_line, t->submitted_in, t->submitted_track};
    t->submitted = to.submitted;
    t->module = to.module;
    t->submitted_line = to.line;
    t->submitted_in = to.in;
    t->submitted_track = to.track;
    return before;
}

/* calls.c */
extern void (*ls_mxnet_own_wait)(void *engine, void *variable);
void ls_mxnet_wait(void *engine, void *variable);
extern void (*ls_mxnet_own_enter_api)(const char *name);
extern void (*ls_mxnet_own_exit_api)(void);
extern void (*ls_mxnet_own_push)(void *engine, void *operator, uint64_t device, uint64_t priority, uint64_t profiling);
void ls_mxnet_enter_api(const char *name);
void ls_mxnet_exit_api(void);
void ls_mxnet_push(void *engine, void *operator, uint64_t device, uint64_t priority, uint64_t profiling);

/* memory.c */
void ls_mxnet_memory_begin(void);
extern void (*ls_mxnet_own_allocated)(void *profiler, const void *handle);
extern void (*ls_mxnet_own_freed)(void *profiler, const void *handle);
void ls_mxnet_allocated(void *profiler, const void *handle);
void ls_mxnet_freed(void *profiler, const void *handle);

/* execution.c: what is called instead of MXNet's own functions, and where theirs are */
extern void (*ls_mxnet_own_execute)(void *engine, void *block, ls_mxnet_stacked rest);
extern void (*ls_mxnet_own_push_cached_naive)(void *engine, void *operator, uint64_t device, uint64_t priority,
                                              uint64_t profiling);
extern void (*ls_mxnet_own_delete_naive)(void *engine, void *function, uint64_t device, void *variable);
extern void (*ls_mxnet_own_push_naive)(void *engine, void *function, uint64_t device, const void *reads,
                                       const void *writes, uint64_t property, uint64_t priority, const char *name,
                                       uint64_t wait);
extern int (*ls_mxnet_own_bulk_size)(const void *engine);
int ls_mxnet_bulk_size(const void *engine);
LS_EXPORT void ls_mxnet_separate(int is_wanted);
void ls_mxnet_execute(void *engine, void *block, ls_mxnet_stacked rest);
void ls_mxnet_push_naive(void *engine, void *function, uint64_t device, const void *reads, const void *writes,
                         uint64_t property, uint64_t priority, const char *name, uint64_t wait);
void ls_mxnet_push_cached_naive(void *engine, void *operator, uint64_t device, uint64_t priority, uint64_t profiling);
void ls_mxnet_delete_naive(void *engine, void *function, uint64_t device, void *variable);

/* custom_origins.c. An object of a custom operator was there already, has just been made, or is given out again by what
 * makes them. */
enum { LS_MXNET_MET = 0, LS_MXNET_MADE = 1, LS_MXNET_MADE_AGAIN = 2 };
void ls_mxnet_origins_begin(void);
void ls_mxnet_custom_makes(void);
void ls_mxnet_custom_made(const void *operator, const char *name, int how);
void ls_mxnet_custom_submits(const char *name, uint64_t at);
const char *ls_mxnet_custom_called(const void *operator);
ls_mxnet_origin ls_mxnet_custom_origin(const void *operator, int is_forward);

/* custom_operators.c */
LS_EXPORT int ls_mxnet_learn_custom(const void *operator, const char *name, int how);
LS_EXPORT void ls_mxnet_watch_custom(void *learn);
void *ls_mxnet_custom_create(void *function, void *const *arguments, ssize_t count, void *keywords);
void *ls_mxnet_custom_forward(void *function, void *const *arguments, ssize_t count, void *keywords);
void *ls_mxnet_custom_backward(void *function, void *const *arguments, ssize_t count, void *keywords);
void *ls_mxnet_custom_register(void *function, void *const *arguments, ssize_t count, void *keywords);
const char *ls_mxnet_custom_name(char into[LF_NAME_LIMIT], const char *custom, const char *name);

/* start.c */
LS_EXPORT int ls_mxnet_start(const char *path, int with_calls);

#endif
