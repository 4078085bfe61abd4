#define _GNU_SOURCE
#include "python.h"

#include <dlfcn.h>
#include <stdint.h>

/* In a PyTypeObject of CPython 3.8 and later: where its instances have their vectorcall field. */
enum { OFFSET_OF_VECTORCALL_OFFSET = 56 };

static void *(*call_with)(void *callable, ...);
static void (*decrease)(void *object), (*increase)(void *object);
static int (*error_is)(void *class);
static void (*clear_error)(void);
static void **class_exception;
/* Python 3.11 and later; before, tracers and profilers of the program's own see the functions that we call. */
static void *(*thread_state)(void);
static void (*enter_tracing)(void *thread_state), (*leave_tracing)(void *thread_state);
static void *(*current_frame)(void);
static void *(*code_of_frame)(void *frame);
static int (*line_of_frame)(void *frame);

/* Have calls of the Python function `function` go to `ours`. The function stays the same object with the same code.
 * It is kept for good. -1: this Python is not understood. */
int ls_hook_function(ls_function_hook *hook, void *function, ls_vectorcall ours) {
    const char *type = dlsym(RTLD_DEFAULT, "PyFunction_Type");
    void *expected = dlsym(RTLD_DEFAULT, "_PyFunction_Vectorcall");
    *(void **)&call_with = dlsym(RTLD_DEFAULT, "PyObject_CallFunctionObjArgs");
    *(void **)&decrease = dlsym(RTLD_DEFAULT, "Py_DecRef");
    *(void **)&increase = dlsym(RTLD_DEFAULT, "Py_IncRef");
    *(void **)&error_is = dlsym(RTLD_DEFAULT, "PyErr_ExceptionMatches");
    *(void **)&clear_error = dlsym(RTLD_DEFAULT, "PyErr_Clear");
    class_exception = dlsym(RTLD_DEFAULT, "PyExc_Exception");
    *(void **)&thread_state = dlsym(RTLD_DEFAULT, "PyThreadState_Get");
    *(void **)&leave_tracing = dlsym(RTLD_DEFAULT, "PyThreadState_LeaveTracing");
    *(void **)&enter_tracing = thread_state && leave_tracing ? dlsym(RTLD_DEFAULT, "PyThreadState_EnterTracing") : NULL;
    *(void **)&current_frame = dlsym(RTLD_DEFAULT, "PyEval_GetFrame");
    *(void **)&code_of_frame = dlsym(RTLD_DEFAULT, "PyFrame_GetCode");
    *(void **)&line_of_frame = dlsym(RTLD_DEFAULT, "PyFrame_GetLineNumber");
    if (!type || !expected || !call_with || !decrease || !increase || !error_is || !clear_error || !class_exception)
        return -1;
    if (((void **)function)[1] != (const void *)type)
        return -1;
    intptr_t offset = *(const intptr_t *)(type + OFFSET_OF_VECTORCALL_OFFSET);
    if (offset <= 0 || offset > 512 || offset % 8)
        return -1;
    ls_vectorcall *found = (ls_vectorcall *)((char *)function + offset);
    if (*(void **)found != expected)
        return -1;
    increase(function);
    hook->original = *found;
    hook->field = found;
    *found = ours;
    return 0;
}

/* Undo it, unless somebody else has hooked the function after us. */
void ls_unhook_function(ls_function_hook *hook, ls_vectorcall ours) {
    if (ls_function_is_hooked(hook, ours))
        *hook->field = hook->original;
}

/* Call a function of ours that returns nothing, hidden from tracers and profilers of the program; `second` may be
 * absent. 1: done, or it failed and that is forgotten. 0: an exception that ends programs is set, KeyboardInterrupt
 * for example: it came from a signal handler that ran meanwhile, and is the program's. */
int ls_python_call(void *callable, const void *first, const void *second) {
    void *state = enter_tracing ? thread_state() : NULL;
    if (state)
        enter_tracing(state);
    void *answer = call_with(callable, first, second, NULL);
    if (state)
        leave_tracing(state);
    if (answer)
        decrease(answer);
    else if (error_is(*class_exception))
        clear_error();
    else
        return 0;
    return 1;
}

/* The code and the line that the interpreter is at: of whoever called us. NULL: not known. The code is borrowed. */
const void *ls_calling_line(int *line) {
    void *frame = current_frame && code_of_frame && line_of_frame ? current_frame() : NULL;
    if (!frame)
        return NULL;
    void *code = code_of_frame(frame);
    *line = line_of_frame(frame);
    if (code)
        decrease(code); /* the frame holds it */
    return code;
}

/* Keep an object for as long as the process lives, so that its address stays its own. */
void ls_python_keep(const void *object) { increase((void *)object); }
