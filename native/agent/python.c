/* CPython as the agent sees it: hooks of Python functions, calls of ours, the line that is running. */
#define _GNU_SOURCE
#include "python.h"
#include "stand_ins.h"

#include "agent.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* In a PyTypeObject of CPython 3.8 and later: where its instances have their vectorcall field. */
enum { OFFSET_OF_VECTORCALL_OFFSET = 56 };

static void *(*call_with)(void *callable, ...);
static void (*decrease)(void *object), (*increase)(void *object);
static void *(*function_of_method)(void *method);
static void (*set_vectorcall)(void *function, ls_vectorcall call);
static int (*error_is)(void *class);
static void (*clear_error)(void);
static void **class_exception;
/* Python 3.11 and later; before, tracers and profilers of the program's own see the functions that we call. */
static void *(*thread_state)(void);
static void (*enter_tracing)(void *thread_state), (*leave_tracing)(void *thread_state);
static void (*fetch_error)(void **kind, void **value, void **traceback), (*restore_error)(void *, void *, void *);
static void *none;
static void *set_compiler, *no_compiler;
static void *(*attribute)(void *object, const char *name);
static const char *(*text_of)(void *unicode);
static void *(*current_frame)(void);
static void *(*code_of_frame)(void *frame);
static int (*line_of_frame)(void *frame);

static int look_up(void) {
    *(void **)&call_with = dlsym(RTLD_DEFAULT, "PyObject_CallFunctionObjArgs");
    *(void **)&decrease = dlsym(RTLD_DEFAULT, "Py_DecRef");
    *(void **)&increase = dlsym(RTLD_DEFAULT, "Py_IncRef");
    *(void **)&error_is = dlsym(RTLD_DEFAULT, "PyErr_ExceptionMatches");
    *(void **)&clear_error = dlsym(RTLD_DEFAULT, "PyErr_Clear");
    none = dlsym(RTLD_DEFAULT, "_Py_NoneStruct");
    class_exception = dlsym(RTLD_DEFAULT, "PyExc_Exception");
    *(void **)&fetch_error = dlsym(RTLD_DEFAULT, "PyErr_Fetch");
    *(void **)&restore_error = dlsym(RTLD_DEFAULT, "PyErr_Restore");
    *(void **)&function_of_method = dlsym(RTLD_DEFAULT, "PyMethod_Function");
    *(void **)&set_vectorcall = dlsym(RTLD_DEFAULT, "PyFunction_SetVectorcall");
    *(void **)&thread_state = dlsym(RTLD_DEFAULT, "PyThreadState_Get");
    *(void **)&leave_tracing = dlsym(RTLD_DEFAULT, "PyThreadState_LeaveTracing");
    *(void **)&enter_tracing = thread_state && leave_tracing ? dlsym(RTLD_DEFAULT, "PyThreadState_EnterTracing") : NULL;
    *(void **)&attribute = dlsym(RTLD_DEFAULT, "PyObject_GetAttrString");
    *(void **)&text_of = dlsym(RTLD_DEFAULT, "PyUnicode_AsUTF8");
    *(void **)&current_frame = dlsym(RTLD_DEFAULT, "PyEval_GetFrame");
    *(void **)&code_of_frame = dlsym(RTLD_DEFAULT, "PyFrame_GetCode");
    *(void **)&line_of_frame = dlsym(RTLD_DEFAULT, "PyFrame_GetLineNumber");
    if (!call_with || !decrease || !increase || !error_is || !clear_error || !class_exception)
        return -1;
    return fetch_error && restore_error && function_of_method ? 0 : -1;
}

static int is_of(const void *object, const void *type) { return type && ((void *const *)object)[1] == type; }

/* Where a function has its vectorcall field; NULL: it is no function, or this Python is not understood. */
static ls_vectorcall *field_of(void *function) {
    const char *type = dlsym(RTLD_DEFAULT, "PyFunction_Type");
    if (!is_of(function, type))
        return NULL;
    intptr_t offset = *(const intptr_t *)(type + OFFSET_OF_VECTORCALL_OFFSET);
    return offset > 0 && offset <= 512 && offset % 8 == 0 ? (ls_vectorcall *)((char *)function + offset) : NULL;
}

static void set_field(const ls_function_hook *hook, ls_vectorcall call) {
    if (set_vectorcall) /* Python 3.12 and later: callers that have specialised on the function must know */
        set_vectorcall(hook->function, call);
    else
        *hook->field = call;
}

/* Have calls of the Python function `function` go to `ours`. The function stays the same object with the same code.
 * It is kept for good. `like` is a function or a method of ours: a function that nobody has hooked has the same value
 * in its field, and that is a function of Python itself. -1: this is not so, or this Python is not understood. */
int ls_hook_function(ls_function_hook *hook, void *function, void *like, ls_vectorcall ours) {
    if (look_up())
        return -1;
    if (is_of(like, dlsym(RTLD_DEFAULT, "PyMethod_Type")))
        like = function_of_method(like);
    ls_vectorcall *found = field_of(function), *usual = field_of(like);
    Dl_info here, python;
    if (!found || !usual || *found != *usual)
        return -1;
    if (!dladdr(*(void **)found, &here) || !dladdr(*(void **)&call_with, &python) || here.dli_fbase != python.dli_fbase)
        return -1;
    increase(function);
    hook->function = function;
    hook->original = *found;
    hook->field = found;
    set_field(hook, ours);
    return ls_function_is_hooked(hook, ours) ? 0 : -1;
}

/* Undo it, unless somebody else has hooked the function after us. */
void ls_unhook_function(ls_function_hook *hook, ls_vectorcall ours) {
    if (ls_function_is_hooked(hook, ours))
        set_field(hook, hook->original);
}

/* A compiler looks at every frame that Python runs in its reach, and ours are none of its business. `set` is what
 * sets the compiler of a thread and returns the one before, `none` stands for no compiler. Both are kept for good. */
LS_EXPORT void ls_python_set_compiler(void *set, void *none) {
    increase(set);
    increase(none);
    no_compiler = none;
    set_compiler = set;
}

static void put_back(void *compiler) {
    void *error[3];
    fetch_error(&error[0], &error[1], &error[2]);
    void *answer = call_with(set_compiler, compiler, NULL);
    if (answer)
        decrease(answer);
    decrease(compiler);
    restore_error(error[0], error[1], error[2]);
}

/* Whether a part of a traceback is about code of ours. */
static int is_of_ours(void *traceback) {
    static const char *const WAY[] = {"tb_frame", "f_code", "co_filename"};
    void *found = traceback;
    increase(found);
    for (size_t i = 0; i < sizeof WAY / sizeof *WAY && found; i++) {
        void *next = attribute(found, WAY[i]);
        decrease(found);
        found = next;
    }
    const char *file = found ? text_of(found) : NULL;
    int is_ours = file && strstr(file, "/layerscope/capture/");
    if (found)
        decrease(found);
    if (!file)
        clear_error();
    return is_ours;
}

/* A traceback, which is handed over, without what it begins with of ours; NULL: nothing is left. */
static void *without_ours(void *traceback) {
    while (traceback && attribute && text_of && is_of_ours(traceback)) {
        void *next = attribute(traceback, "tb_next");
        decrease(traceback);
        traceback = next == none ? NULL : next;
        if (next == none)
            decrease(next);
        if (!next)
            clear_error();
    }
    return traceback;
}

/* Ask a function of ours, hidden from tracers, profilers and compilers, with the arguments before the first one that is
 * absent. 1: done, and `answer` is what it returned, or it could not be called and that is forgotten. 0: an exception is
 * set; our functions keep their own to themselves, so it came from a signal handler that ran meanwhile, and is the
 * program's. */
int ls_python_ask(void *callable, const void *const given[LS_ASKED], void **answer) {
    void *state = enter_tracing ? thread_state() : NULL;
    void *compiler = set_compiler ? call_with(set_compiler, no_compiler, NULL) : NULL;
    if (set_compiler && !compiler)
        clear_error();
    if (state)
        enter_tracing(state);
    *answer = call_with(callable, given[0], given[1], given[2], given[3], NULL);
    if (state)
        leave_tracing(state);
    if (compiler)
        put_back(compiler);
    if (*answer)
        return 1;
    void *error[3];
    fetch_error(&error[0], &error[1], &error[2]);
    int was_inside = error[2] != NULL; /* it has a traceback */
    restore_error(error[0], error[1], without_ours(error[2]));
    if (was_inside || !error_is(*class_exception))
        return 0;
    clear_error();
    return 1;
}

/* The same of a function that returns nothing; `second` may be absent. */
int ls_python_call(void *callable, const void *first, const void *second) {
    const void *given[LS_ASKED] = {first, second};
    void *answer = NULL;
    int is_done = ls_python_ask(callable, given, &answer);
    if (answer)
        decrease(answer);
    return is_done;
}

/* Call a function of ours while `error`, which was fetched, is kept; NULL for `first`: the exception itself. What a
 * signal handler of the program raises meanwhile takes its place. */
static void call_beside(void *error[3], void *callable, const void *first) {
    if (ls_python_call(callable, first ? first : error[0], first ? NULL : error[1])) {
        restore_error(error[0], error[1], error[2]);
        return;
    }
    for (int i = 0; i < 3; i++)
        if (error[i])
            decrease(error[i]);
}

/* Call a function of ours with the class and, if it has one, the value of the exception that is set, and that stays
 * set. */
void ls_python_tell_error(void *callable) {
    void *error[3];
    fetch_error(&error[0], &error[1], &error[2]);
    if (error[0])
        call_beside(error, callable, NULL);
}

/* Call a function of ours with an object in whose call an exception was raised, and that stays set. */
void ls_python_tell_failure(void *callable, const void *object) {
    void *error[3];
    fetch_error(&error[0], &error[1], &error[2]);
    call_beside(error, callable, object);
}

static void *call_hidden(void *function, void *const *arguments, ssize_t count, void *keywords) {
    void *state = enter_tracing ? thread_state() : NULL;
    if (state)
        enter_tracing(state);
    void *answer = ls_call_python(function, arguments, count, keywords);
    if (state)
        leave_tracing(state);
    return answer;
}

/* What calls a function of ours hidden from tracers and profilers. A new reference; NULL: this Python is not
 * understood. GIL held. */
LS_EXPORT void *ls_python_hidden(void *function) {
    return ls_python_is_understood() ? ls_stand_for_function(function, call_hidden) : NULL;
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

/* Whether what the functions here need was found. */
int ls_python_is_understood(void) { return look_up() == 0; }
