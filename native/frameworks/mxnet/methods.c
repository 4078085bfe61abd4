/* Methods of MXNet's Python classes whose calls are spans: steps of optimizers, waits for batches. The program calls
 * them in Python, where an interpreter goes into a function without a look at its vectorcall field, the hook of
 * modules (native/agent/modules.c). So a callable in C takes the place of the function in its class: bound to instances
 * as a method is, and without a frame in a traceback. Everything here runs with the GIL held. */
#define _GNU_SOURCE
#include "mxnet.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/types.h>

/* PyMethodDef, PyType_Slot, PyType_Spec, and an object of the type below. */
typedef struct {
    const char *name;
    void *function;
    int flags;
    const char *text;
} method;
typedef struct {
    int number;
    void *function;
} type_slot;
typedef struct {
    const char *name;
    int size, item_size;
    unsigned flags;
    type_slot *slots;
} type_spec;
typedef struct {
    ssize_t references;
    void *type, *iterator;
} watched_iterator;

enum { FAST_WITH_KEYWORDS = 0x80 | 2, HAS_VERSION = 1 << 18 };
enum { DEALLOC = 52, GET_ATTRIBUTE = 58, ITER = 62, NEXT = 63 };
enum { OFFSET_OF_TYPE_NAME = 24 }; /* in a PyTypeObject */
#define MOST_OPTIMIZERS 16u

static void *(*make_function)(method *, void *self, void *module), *(*make_method)(void *function);
static void *(*make_type)(type_spec *), *(*make_object)(void *type, ssize_t items);
static void *(*attribute_called)(void *object, const char *name), *(*attribute)(void *object, void *name);
static void *(*next_of)(void *iterator);
static void (*clear_error)(void), (*release)(void *memory);
static void *generator_type, *self_iter, *iterator_type;

static const struct {
    const char *name;
    void **into;
} NEEDED[] = {
    {"PyCFunction_NewEx", (void **)&make_function}, {"PyInstanceMethod_New", (void **)&make_method},
    {"PyType_FromSpec", (void **)&make_type},       {"PyType_GenericAlloc", (void **)&make_object},
    {"PyObject_GetAttr", (void **)&attribute},      {"PyObject_GetAttrString", (void **)&attribute_called},
    {"PyErr_Clear", (void **)&clear_error},         {"PyIter_Next", (void **)&next_of},
    {"PyObject_Free", (void **)&release},           {"PyGen_Type", &generator_type},
    {"PyObject_SelfIter", &self_iter},
};

static int has_python; /* all of them are found */

static int look_up(void) {
    for (size_t i = 0; i < sizeof NEEDED / sizeof *NEEDED; i++)
        if (!(*NEEDED[i].into = dlsym(RTLD_DEFAULT, NEEDED[i].name)))
            return -1;
    return ls_mxnet_find_python();
}

static const char *class_of(const void *object) {
    return *(const char *const *)((const char *)ls_mxnet_type_of(object) + OFFSET_OF_TYPE_NAME);
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
        return ls_mxnet_call(function, arguments, count, keywords);
    char text[256];
    void *optimizer = attribute_called(arguments[0], "_optimizer");
    if (!optimizer)
        clear_error();
    snprintf(text, sizeof text, "Optimizer.update#%.100s.%.100s", class_of(arguments[0]),
             optimizer ? class_of(optimizer) : "step");
    if (optimizer)
        ls_mxnet_release(optimizer);
    void *span = ls_operator_begins(text, LF_RANGE);
    void *result = ls_mxnet_call(function, arguments, count, keywords);
    ls_note_optimizer(number_of(arguments[0]));
    ls_operator_ends(span, -1, 0);
    return result;
}

/* --- Waits for batches ------------------------------------------------------------------------------------------- */

static void *call_next(void *function, void *const *arguments, ssize_t count, void *keywords) {
    char text[256];
    snprintf(text, sizeof text, "%.200s.__next__", count > 0 ? class_of(arguments[0]) : "");
    void *span = ls_operator_begins(text, LF_LOADER);
    void *result = ls_mxnet_call(function, arguments, count, keywords);
    ls_operator_ends(span, -1, 0);
    return result;
}

static void *next_batch(watched_iterator *self) {
    void *span = ls_operator_begins("DataLoader.__next__", LF_LOADER);
    void *result = next_of(self->iterator);
    ls_operator_ends(span, -1, 0);
    return result;
}

static void *attribute_of_iterator(watched_iterator *self, void *name) { return attribute(self->iterator, name); }

static void end_iterator(watched_iterator *self) {
    void *type = self->type;
    ls_mxnet_release(self->iterator);
    release(self);
    ls_mxnet_release(type);
}

/* A loader is iterated. What its generator does between two batches is a wait: an iterator in C that has all attributes
 * of the generator, its class among them, stands for it. */
static void *call_iter(void *function, void *const *arguments, ssize_t count, void *keywords) {
    void *iterator = ls_mxnet_call(function, arguments, count, keywords);
    if (!iterator || ls_mxnet_type_of(iterator) != generator_type)
        return iterator;
    watched_iterator *self = make_object(iterator_type, 0);
    if (!self) {
        clear_error();
        return iterator;
    }
    self->iterator = iterator;
    return self;
}

static type_slot slots[] = {
    {DEALLOC, (void *)end_iterator}, {GET_ATTRIBUTE, (void *)attribute_of_iterator}, {NEXT, (void *)next_batch},
    {ITER, NULL},                    {0, NULL},
};
static type_spec spec = {"layerscope.generator", sizeof(watched_iterator), 0, HAS_VERSION, slots};
static method methods[] = {
    {"step", (void *)call_step, FAST_WITH_KEYWORDS, NULL},
    {"__next__", (void *)call_next, FAST_WITH_KEYWORDS, NULL},
    {"__iter__", (void *)call_iter, FAST_WITH_KEYWORDS, NULL},
    {"forward", (void *)ls_mxnet_custom_forward, FAST_WITH_KEYWORDS, NULL},
    {"backward", (void *)ls_mxnet_custom_backward, FAST_WITH_KEYWORDS, NULL},
    {"create_operator", (void *)ls_mxnet_custom_create, FAST_WITH_KEYWORDS, NULL},
    {"__init__", (void *)ls_mxnet_custom_create, FAST_WITH_KEYWORDS, NULL},
};

/* What takes the place of the method `function` in its class: `which` is 0 for a step of an optimizer, 1 for __next__
 * and 2 for __iter__ of what makes batches, 3 for forward and 4 for backward of a custom operator, 5 for what makes one,
 * 6 for __init__ of a store. A new reference; NULL without an exception: this Python is not understood. */
LS_EXPORT void *ls_mxnet_method(void *function, int which) {
    has_python = has_python || !look_up();
    if (!has_python)
        return NULL;
    slots[3].function = self_iter;
    if (!iterator_type && !(iterator_type = make_type(&spec))) {
        clear_error();
        return NULL;
    }
    void *ours = make_function(&methods[which], function, NULL);
    void *bound = ours ? make_method(ours) : NULL;
    if (ours)
        ls_mxnet_release(ours);
    if (!bound)
        clear_error();
    return bound;
}
