/* Operators that the program has written in Python. MXNet's engine executes `Custom`, which has a thread of MXNet's call
 * the program's code: that is the span "NAME::pure_python", of the backward pass "_backward_NAME::pure_python". What the
 * code submits is executed as "NAME::OPERATOR". These are the names that MXNet's own profiler gives.
 *
 * NAME is what the operator was registered as, which is learned when an object of it is made. */
#define _GNU_SOURCE
#include "mxnet.h"

#include "../../agent/python.h"

#include <stdio.h>
#include <string.h>

#define MOST_CLASSES 64u
#define MOST_NAMES 256u
#define MOST_NAME 200 /* bytes */
#define BACKWARD "_backward_"

/* Of an object of which nothing else is known. GIL held. A class that has gone may leave its address to another one,
 * which is then learned anew. */
typedef struct {
    const void *class;
    const char *name;
} known_class;

static known_class known[MOST_CLASSES];
/* What operators were registered as, each with "_backward_" before it. */
static char names[MOST_NAMES][sizeof BACKWARD + MOST_NAME];
static void *learner;

static const char *kept(const char *name) {
    char text[sizeof *names];
    snprintf(text, sizeof text, BACKWARD "%.*s", MOST_NAME, name);
    uint32_t i = 0;
    while (i < MOST_NAMES && *names[i] && strcmp(names[i], text))
        i++;
    if (i == MOST_NAMES)
        return NULL;
    memcpy(names[i], text, sizeof text);
    return names[i];
}

static void learn_class(const void *class, const char *name) {
    for (uint32_t i = 0; i < MOST_CLASSES; i++)
        if (!known[i].class || known[i].class == class) {
            known[i] = (known_class){class, name};
            return;
        }
}

/* `operator` is an object of a custom operator called `name`; `how` it is learned: LS_MXNET_MADE on this thread, or
 * another of these values. -1: there are too many names. */
LS_EXPORT int ls_mxnet_learn_custom(const void *operator, const char *name, int how) {
    const char *text = kept(name);
    if (!text)
        return -1;
    learn_class(ls_type_of(operator), text);
    ls_mxnet_custom_made(operator, text, how);
    return 0;
}

/* What an operator is called, with "_backward_" before it; NULL: not known. */
static const char *name_of(const void *operator) {
    const char *name = ls_mxnet_custom_called(operator);
    const void *class = ls_type_of(operator);
    for (uint32_t i = 0; !name && i < MOST_CLASSES && known[i].class; i++)
        if (known[i].class == class)
            name = known[i].name;
    return name;
}

static void *run(const char *name, int is_forward, void *function, void *const *arguments, ssize_t count,
                 void *keywords) {
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    const char *around = t ? t->custom : NULL;
    const void *self_around = t ? t->custom_self : NULL;
    char text[sizeof BACKWARD + MOST_NAME + 16];
    if (!t || !name || !ls_mxnet_is_recorded || self_around == arguments[0]) /* it calls its base class */
        return ls_call_python(function, arguments, count, keywords);
    snprintf(text, sizeof text, "%s::pure_python", name);
    t->custom = name;
    t->custom_self = arguments[0];
    const ls_mxnet_origin origin = ls_mxnet_custom_origin(arguments[0], is_forward);
    const ls_mxnet_origin before = ls_mxnet_go_to(t, origin);
    const ls_context *c = ls_mxnet_begin_from(text, &origin, -1);
    void *result = ls_call_python(function, arguments, count, keywords);
    const ls_ending ending = {.sequence = -1, .submitted = origin.submitted, .submitted_track = origin.track};
    ls_operator_finish(c, &ending);
    if (t == ls_this_thread) {
        ls_mxnet_go_to(t, before);
        t->custom = around;
        t->custom_self = self_around;
    }
    return result;
}

/* Operators that are made, stores, and classes that are registered are shown to `learn`, a function of Python that is
 * kept for good. */
LS_EXPORT void ls_mxnet_watch_custom(void *learn) {
    ls_python_keep(learn);
    ls_mxnet_origins_begin();
    learner = learn;
}

/* CustomOpProp.create_operator, of classes of the program, and KVStore.__init__. */
void *ls_mxnet_custom_create(void *function, void *const *arguments, ssize_t count, void *keywords) {
    void *made = ls_call_python(function, arguments, count, keywords);
    ls_mxnet_custom_makes();
    if (made && learner && count > 0 && !ls_python_call(learner, made, arguments[0])) {
        ls_python_release(made); /* an exception of the program's is set */
        return NULL;
    }
    return made;
}

/* What mxnet.operator.register returns is about to register a class. */
static void *decorate(void *function, void *const *arguments, ssize_t count, void *keywords) {
    if (learner && count > 0 && !ls_python_call(learner, function, arguments[0]))
        return NULL; /* an exception of the program's is set */
    return ls_call_python(function, arguments, count, keywords);
}

/* mxnet.operator.register */
void *ls_mxnet_custom_register(void *function, void *const *arguments, ssize_t count, void *keywords) {
    void *made = ls_call_python(function, arguments, count, keywords);
    void *ours = made ? ls_stand_for_function(made, decorate) : NULL;
    if (!ours)
        return made;
    ls_python_release(made);
    return ours;
}

/* CustomOp.forward and backward, of classes of the program. */
void *ls_mxnet_custom_forward(void *function, void *const *arguments, ssize_t count, void *keywords) {
    const char *name = count > 0 ? name_of(arguments[0]) : NULL;
    return run(name ? name + strlen(BACKWARD) : NULL, 1, function, arguments, count, keywords);
}

void *ls_mxnet_custom_backward(void *function, void *const *arguments, ssize_t count, void *keywords) {
    const char *name = count > 0 ? name_of(arguments[0]) : NULL;
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
