/* The little of CPython that the agent touches, without its headers: functions are found by name, and a field is
 * trusted only if it holds the value that it should. Everything here runs with the GIL held. */
#ifndef LAYERSCOPE_PYTHON_H
#define LAYERSCOPE_PYTHON_H

#include <stddef.h>

/* How a function is called (PEP 590). */
typedef void *(*ls_vectorcall)(void *callable, void *const *arguments, size_t count, void *keywords);

/* A Python function whose calls go through us. `original` stays valid when the hook is gone: a call may be in it. */
typedef struct {
    void *function;
    ls_vectorcall original, *field;
} ls_function_hook;

/* Without PY_VECTORCALL_ARGUMENTS_OFFSET, which is not part of the count. */
static inline size_t ls_argument_count(size_t count) { return count & ~((size_t)1 << 63); }

static inline int ls_function_is_hooked(const ls_function_hook *hook, ls_vectorcall ours) {
    return hook->field && *hook->field == ours;
}

int ls_hook_function(ls_function_hook *hook, void *function, void *like, ls_vectorcall ours);
void ls_unhook_function(ls_function_hook *hook, ls_vectorcall ours);
#define LS_ASKED 4 /* arguments */
int ls_python_ask(void *callable, const void *const given[LS_ASKED], void **answer);
int ls_python_call(void *callable, const void *first, const void *second);
void ls_python_tell_error(void *callable);
void ls_python_tell_failure(void *callable, const void *object);
const void *ls_calling_line(int *line);
void ls_python_keep(const void *object);
int ls_python_is_understood(void);

#endif
