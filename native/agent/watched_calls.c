/* Functions whose calls a function of ours hears of before they begin. What stands for them answers as they do, is bound
 * to an object as they are, and is in no traceback. Everything here runs with the GIL held. */
#define _GNU_SOURCE
#include "python.h"
#include "stand_ins.h"

#include "agent.h"

#include <dlfcn.h>
#include <string.h>

#define WATCHED 4
#define MOST_ARGUMENTS 16

static void *hears[WATCHED], *none;
static ssize_t (*size_of)(void *tuple);

/* The second argument may be another one for it. */
static void *call(int which, void *function, void *const *arguments, ssize_t count, void *names) {
    ssize_t all = count + (names ? size_of(names) : 0);
    if (all > MOST_ARGUMENTS)
        return ls_call_python(function, arguments, count, names);
    const void *given[LS_ASKED] = {NULL};
    if (all)
        memcpy(given, arguments, (size_t)(all < LS_ASKED ? all : LS_ASKED) * sizeof *given);
    void *answer = NULL, *handed[MOST_ARGUMENTS];
    if (!ls_python_ask(hears[which], given, &answer))
        return NULL;
    if (all)
        memcpy(handed, arguments, (size_t)all * sizeof *handed);
    if (answer && answer != none && all > 1)
        handed[1] = answer;
    void *result = ls_call_python(function, handed, count, names);
    if (answer)
        ls_python_release(answer);
    return result;
}

static void *call_first(void *function, void *const *arguments, ssize_t count, void *names) {
    return call(0, function, arguments, count, names);
}

static void *call_second(void *function, void *const *arguments, ssize_t count, void *names) {
    return call(1, function, arguments, count, names);
}

static void *call_third(void *function, void *const *arguments, ssize_t count, void *names) {
    return call(2, function, arguments, count, names);
}

static void *call_fourth(void *function, void *const *arguments, ssize_t count, void *names) {
    return call(3, function, arguments, count, names);
}

static const ls_stand_in_handler handlers[WATCHED] = {call_first, call_second, call_third, call_fourth};

/* What stands for `function`. Number `which` (below WATCHED) of those who hear is `hear`, called with the first
 * LS_ASKED arguments; what it returns is handed on in the place of the second one, unless that is None. It is kept for
 * good. A new reference; NULL: this Python is not understood, or ls_prepare was not called or failed. */
LS_EXPORT void *ls_watched_call(int which, void *function, void *hear) {
    *(void **)&size_of = dlsym(RTLD_DEFAULT, "PyTuple_Size");
    none = dlsym(RTLD_DEFAULT, "_Py_NoneStruct");
    if (!ls.page || !ls.wiped || !ls_python_is_understood() || !size_of || !none)
        return NULL;
    void *ours = ls_stand_for_function(function, handlers[which]);
    if (ours && hears[which] != hear) {
        ls_python_keep(hear);
        hears[which] = hear;
    }
    return ours;
}
