/* Methods of MXNet's Python classes whose calls are spans: steps of optimizers, waits for batches. The program calls
 * them in Python, where an interpreter may go into a function without a look at its vectorcall field, the hook of
 * modules (native/agent/modules.c). So an object in C takes the place of the function in its class (stand_ins.c): bound to
 * instances as a method is, and without a frame in a traceback. Everything here runs with the GIL held. */
#define _GNU_SOURCE
#include "mxnet.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/types.h>

#define MOST_OPTIMIZERS 16u

static void *(*attribute_called)(void *object, const char *name);
static void *(*next_of)(void *iterator);
static void (*clear_error)(void);

static const char *class_of(const void *object) {
    return *(const char *const *)((const char *)ls_type_of(object) + OFFSET_OF_TYPE_NAME);
}

/* --- Steps of optimizers ----------------------------------------------------------------------------------------- */

/* The number of who steps an optimizer, from 1 on; 0: there are too many. */
static uint32_t number_of(const void *object) {
    static const void *known[MOST_OPTIMIZERS];
    for (uint32_t i = 0; i < MOST_OPTIMIZERS; i++) {
        if (!known[i])
            known[i] = object;
        if (known[i] == object)
            return i + 1;
    }
    return 0;
}

/* A Trainer or a Module, which holds its optimizer as `_optimizer`, has it make a step. */
static void *call_step(void *function, void *const *arguments, ssize_t count, void *keywords) {
    if (count < 1)
        return ls_call_python(function, arguments, count, keywords);
    char text[256];
    void *optimizer = attribute_called(arguments[0], "_optimizer");
    if (!optimizer)
        clear_error();
    snprintf(text, sizeof text, "Optimizer.update#%.100s.%.100s", class_of(arguments[0]),
             optimizer ? class_of(optimizer) : "step");
    if (optimizer)
        ls_python_release(optimizer);
    void *span = ls_operator_begins(text, LF_RANGE);
    void *result = ls_call_python(function, arguments, count, keywords);
    ls_note_optimizer(number_of(arguments[0]));
    ls_operator_ends(span, -1, 0);
    return result;
}

/* --- Waits for batches ------------------------------------------------------------------------------------------- */

/* A loader whose batches others make waits for them in an iterator that it asks itself: one wait, not two. */
static __thread int is_waiting;

static void *call_next(void *function, void *const *arguments, ssize_t count, void *keywords) {
    if (is_waiting || count < 1)
        return ls_call_python(function, arguments, count, keywords);
    char text[256];
    snprintf(text, sizeof text, "%.200s.__next__", class_of(arguments[0]));
    void *span = ls_operator_begins(text, LF_LOADER);
    void *result = ls_call_python(function, arguments, count, keywords);
    ls_operator_ends(span, -1, 0);
    return result;
}

/* The generator of a loader goes on to its next batch. */
static void *next_batch(void *generator, void *const *arguments, ssize_t count, void *keywords) {
    (void)arguments, (void)count, (void)keywords;
    int was_waiting = is_waiting;
    void *span = ls_operator_begins("DataLoader.__next__", LF_LOADER);
    is_waiting = 1;
    void *result = next_of(generator);
    is_waiting = was_waiting;
    ls_operator_ends(span, -1, 0);
    return result;
}

/* A loader is iterated. What its generator does between two batches is a wait. */
static void *call_iter(void *function, void *const *arguments, ssize_t count, void *keywords) {
    void *iterator = ls_call_python(function, arguments, count, keywords);
    void *ours = iterator ? ls_stand_for_generator(iterator, next_batch) : NULL;
    if (!ours)
        return iterator;
    ls_python_release(iterator);
    return ours;
}

/* --- All of them ------------------------------------------------------------------------------------------------- */

static const ls_stand_in_handler HANDLERS[] = {
    call_step,
    call_next,
    call_iter,
    ls_mxnet_custom_forward,
    ls_mxnet_custom_backward,
    ls_mxnet_custom_create,
    ls_mxnet_custom_create,
    ls_mxnet_custom_register,
};

static int look_up(void) {
    *(void **)&attribute_called = dlsym(RTLD_DEFAULT, "PyObject_GetAttrString");
    *(void **)&next_of = dlsym(RTLD_DEFAULT, "PyIter_Next");
    *(void **)&clear_error = dlsym(RTLD_DEFAULT, "PyErr_Clear");
    return attribute_called && next_of && clear_error ? 0 : -1;
}

/* What takes the place of the method `function` in its class: `which` is 0 for a step of an optimizer, 1 for __next__
 * and 2 for __iter__ of what makes batches, 3 for forward and 4 for backward of a custom operator, 5 for what makes one,
 * 6 for __init__ of a store, 7 for what registers custom operators. A new reference; NULL without an exception: this
 * Python is not understood. */
LS_EXPORT void *ls_mxnet_method(void *function, int which) {
    return look_up() ? NULL : ls_stand_for_function(function, HANDLERS[which]);
}
