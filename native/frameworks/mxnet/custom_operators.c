/* Operators that the program has written in Python. MXNet's engine executes `Custom`, which has a thread of MXNet's call
 * the program's code: that is the span "NAME::pure_python", of the backward pass "_backward_NAME::pure_python". What the
 * code submits is executed as "NAME::OPERATOR". These are the names that MXNet's own profiler gives.
 *
 * NAME is what the operator was registered as: the class of operators is learned when one is made. */
#define _GNU_SOURCE
#include "mxnet.h"

#include "../../agent/python.h"

#include <stdio.h>
#include <string.h>

#define MOST_CLASSES 64u
#define MOST_NAME 200 /* bytes */
#define BACKWARD "_backward_"

/* GIL held. A class that has gone may leave its address to another one, which is then learned anew. */
typedef struct {
    const void *class;
    char name[sizeof BACKWARD + MOST_NAME];
} known_class;

static known_class known[MOST_CLASSES];
static void *learner;

/* Operators of this class are called `name`. -1: there are too many. */
LS_EXPORT int ls_mxnet_learn_custom(const void *class, const char *name) {
    for (uint32_t i = 0; i < MOST_CLASSES; i++)
        if (!known[i].class || known[i].class == class) {
            known[i].class = class;
            snprintf(known[i].name, sizeof known[i].name, BACKWARD "%.*s", MOST_NAME, name);
            return 0;
        }
    return -1;
}

/* What an operator of this class is called, with "_backward_" before it; NULL: not known. */
static const char *name_of(const void *class) {
    for (uint32_t i = 0; i < MOST_CLASSES && known[i].class; i++)
        if (known[i].class == class)
            return known[i].name;
    return NULL;
}

static void *run(const char *name, int is_forward, void *function, void *const *arguments, ssize_t count,
                 void *keywords) {
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    const char *around = t ? t->custom : NULL;
    char text[sizeof BACKWARD + MOST_NAME + 16];
    if (!t || !name || !ls_mxnet_is_recorded)
        return ls_mxnet_call(function, arguments, count, keywords);
    snprintf(text, sizeof text, "%s::pure_python", name);
    t->custom = name;
    const ls_mxnet_origin origin = ls_mxnet_custom_origin(arguments[0], is_forward);
    const ls_mxnet_origin before = ls_mxnet_go_to(t, origin);
    ls_context *c = ls_mxnet_begin(text, LF_FUNCTION);
    if (c && c->owner)
        c->line = origin.line;
    void *result = ls_mxnet_call(function, arguments, count, keywords);
    const ls_ending ending = {.sequence = -1, .submitted = origin.submitted};
    ls_operator_finish(c, &ending);
    if (t == ls_this_thread) {
        ls_mxnet_go_to(t, before);
        t->custom = around;
    }
    return result;
}

/* Operators that are made, and stores, are shown to `learn`, a function of Python that is kept for good. */
LS_EXPORT void ls_mxnet_watch_custom(void *learn) {
    ls_python_keep(learn);
    ls_mxnet_origins_begin();
    learner = learn;
}

/* CustomOpProp.create_operator, of classes of the program, and KVStore.__init__. */
void *ls_mxnet_custom_create(void *function, void *const *arguments, ssize_t count, void *keywords) {
    void *made = ls_mxnet_call(function, arguments, count, keywords);
    if (made && learner && count > 0 && !ls_python_call(learner, made, arguments[0])) {
        ls_mxnet_release(made); /* an exception of the program's is set */
        return NULL;
    }
    if (made && name_of(ls_mxnet_type_of(made)))
        ls_mxnet_custom_made(made);
    return made;
}

/* CustomOp.forward and backward, of classes of the program. */
void *ls_mxnet_custom_forward(void *function, void *const *arguments, ssize_t count, void *keywords) {
    const char *name = count > 0 ? name_of(ls_mxnet_type_of(arguments[0])) : NULL;
    return run(name ? name + strlen(BACKWARD) : NULL, 1, function, arguments, count, keywords);
}

void *ls_mxnet_custom_backward(void *function, void *const *arguments, ssize_t count, void *keywords) {
    const char *name = count > 0 ? name_of(ls_mxnet_type_of(arguments[0])) : NULL;
    return run(name, 0, function, arguments, count, keywords);
}

/* What is executed under this name was submitted by the code of a custom operator, or NULL. While MXNet's own profiler
 * runs, it has that name already. */
const char *ls_mxnet_custom_name(char into[LF_NAME_LIMIT], const char *custom, const char *name) {
    size_t length = custom ? strlen(custom) : 0;
    if (!custom || !name || (!strncmp(name, custom, length) && !strncmp(name + length, "::", 2)))
        return name;
    snprintf(into, LF_NAME_LIMIT, "%s::%s", custom, name);
    return into;
}
