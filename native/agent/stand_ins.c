/* Objects in C that stand for an object of Python: a function whose calls are watched, a generator whose values are
 * waited for. Whoever asks one gets the answer of what it stands for: its class, its signature, its code, all
 * attributes, to read and to set; so `inspect`, `functools.wraps`, `copy` and `pickle` work as they do without us. What
 * is left is `type(it)`, which has the same name, and `is`. Everything here runs with the GIL held. */
#define _GNU_SOURCE
#include "stand_ins.h"

#include "python.h"

#include <dlfcn.h>
#include <stddef.h>

/* PyMethodDef, PyMemberDef, PyType_Slot and PyType_Spec. */
typedef struct {
    const char *name;
    void *function;
    int flags;
    const char *text;
} method;
typedef struct {
    const char *name;
    int type;
    ssize_t offset;
    int flags;
    const char *text;
} member;
typedef struct {
    const char *name;
    void *get, *set;
    const char *text;
    void *closure;
} property;
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
typedef int (*visitor)(void *object, void *argument);

typedef struct {
    ssize_t references;
    void *type;
    ls_vectorcall vectorcall;
    void *original, *weak_references;
    ls_stand_in_handler handler;
} stand_in;

enum { SIZE = 19, READ_ONLY = 1, ONE_ARGUMENT = 8 }; /* of members, and of a method */
enum { HAS_VECTORCALL = 1 << 11, HAS_GC = 1 << 14, IS_METHOD = 1 << 17, HAS_VERSION = 1 << 18 };
enum { CALL = 50, CLEAR = 51, DEALLOC = 52, BIND = 54, GET = 58, HASH = 59, ITER = 62, NEXT = 63, METHODS = 64, NEW = 65,
       REPR = 66, COMPARE = 67, SET = 69, TRAVERSE = 71, MEMBERS = 72, PROPERTIES = 73 };

static void *(*make_type)(type_spec *), *(*make_object)(void *type, ssize_t items);
static void *(*make_method)(void *function, void *self), *(*call_with)(void *, void *arguments, void *keywords);
static void *(*generic_attribute)(void *object, void *name), *(*attribute)(void *object, void *name);
static void *(*attribute_called)(void *object, const char *name), *(*text_of)(void *object);
static int (*set_attribute)(void *object, void *name, void *value), (*is_other)(void *name, const char *text);
static void *(*compare)(void *a, void *b, int how);
static ssize_t (*hash_of)(void *object);
static void (*increase)(void *object), (*clear_error)(void), (*untrack)(void *object), (*release_memory)(void *object);
static void (*clear_weak_references)(void *object);
static void *vectorcall_of_type, *self_iter, *function_type, *generator_type, *none;

static const struct {
    const char *name;
    void **into;
} NEEDED[] = {
    {"PyType_FromSpec", (void **)&make_type},
    {"PyType_GenericAlloc", (void **)&make_object},
    {"PyMethod_New", (void **)&make_method},
    {"PyObject_Call", (void **)&call_with},
    {"PyObject_GenericGetAttr", (void **)&generic_attribute},
    {"PyObject_GetAttr", (void **)&attribute},
    {"PyObject_GetAttrString", (void **)&attribute_called},
    {"PyObject_Repr", (void **)&text_of},
    {"PyObject_SetAttr", (void **)&set_attribute},
    {"PyUnicode_CompareWithASCIIString", (void **)&is_other},
    {"PyObject_RichCompare", (void **)&compare},
    {"PyObject_Hash", (void **)&hash_of},
    {"Py_IncRef", (void **)&increase},
    {"PyErr_Clear", (void **)&clear_error},
    {"PyObject_GC_UnTrack", (void **)&untrack},
    {"PyObject_GC_Del", (void **)&release_memory},
    {"PyObject_ClearWeakRefs", (void **)&clear_weak_references},
    {"PyVectorcall_Call", &vectorcall_of_type},
    {"PyObject_SelfIter", &self_iter},
    {"PyFunction_Type", &function_type},
    {"PyGen_Type", &generator_type},
    {"_Py_NoneStruct", &none},
};

static void *type_of_functions, *type_of_generators; /* ours */

static int is_ours(const void *object) {
    const void *type = ls_type_of(object);
    return type == type_of_functions || type == type_of_generators;
}

static void *behind(void *object) { return is_ours(object) ? ((stand_in *)object)->original : object; }

/* --- What it answers --------------------------------------------------------------------------------------------- */

/* What leads to a call has to lead to ours. */
static int is_of_calls(void *name) {
    static const char *const NAMES[] = {"__call__", "__get__", "__next__", "__iter__", "__reduce_ex__"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (!is_other(name, NAMES[i]))
            return 1;
    return 0;
}

static void *get(stand_in *self, void *name) {
    return is_of_calls(name) ? generic_attribute(self, name) : attribute(self->original, name);
}

/* For who asks the type, as `help` does. */
static void *get_text(stand_in *self, void *closure) {
    (void)closure;
    return attribute_called(self->original, "__doc__");
}

static int set(stand_in *self, void *name, void *value) { return set_attribute(self->original, name, value); }

static void *show(stand_in *self) { return text_of(self->original); }

static ssize_t hash(stand_in *self) { return hash_of(self->original); }

static void *compare_both(void *a, void *b, int how) { return compare(behind(a), behind(b), how); }

/* A function is copied, and kept in a file, by its name. */
static void *reduce(stand_in *self, void *protocol) {
    (void)protocol;
    return attribute_called(self->original, "__qualname__");
}

/* A generator is not. */
static void *refuse(stand_in *self, void *protocol) {
    void *reduces = attribute_called(self->original, "__reduce_ex__");
    void *answer = reduces ? ls_call_python(reduces, &protocol, 1, NULL) : NULL;
    if (reduces)
        ls_python_release(reduces);
    return answer;
}

/* Whoever calls the type wants another function, or what is said about generators. */
static void *make_other(void *type, void *arguments, void *keywords) {
    return call_with(type == type_of_functions ? function_type : generator_type, arguments, keywords);
}

/* --- What it does ------------------------------------------------------------------------------------------------ */

static void *call(void *self, void *const *arguments, size_t count, void *keywords) {
    const stand_in *s = self;
    return s->handler(s->original, arguments, (ssize_t)ls_argument_count(count), keywords);
}

static void *bind(void *self, void *object, void *type) {
    (void)type;
    if (object && object != none)
        return make_method(self, object);
    increase(self);
    return self;
}

static void *next(stand_in *self) { return self->handler(self->original, NULL, 0, NULL); }

/* --- Its life ---------------------------------------------------------------------------------------------------- */

static int traverse(stand_in *self, visitor visit, void *argument) {
    int stops = visit(self->type, argument);
    return stops || !self->original ? stops : visit(self->original, argument);
}

static int forget(stand_in *self) {
    void *original = self->original;
    increase(none);
    self->original = none; /* what comes now is asked of None */
    ls_python_release(original);
    return 0;
}

static void end(stand_in *self) {
    void *type = self->type;
    untrack(self);
    if (self->weak_references)
        clear_weak_references(self);
    ls_python_release(self->original);
    release_memory(self);
    ls_python_release(type);
}

static member members_of_functions[] = {
    {"__vectorcalloffset__", SIZE, offsetof(stand_in, vectorcall), READ_ONLY, NULL},
    {"__weaklistoffset__", SIZE, offsetof(stand_in, weak_references), READ_ONLY, NULL},
    {0},
};
static member members_of_generators[] = {
    {"__weaklistoffset__", SIZE, offsetof(stand_in, weak_references), READ_ONLY, NULL},
    {0},
};
static method methods_of_functions[] = {{"__reduce_ex__", (void *)reduce, ONE_ARGUMENT, NULL}, {0}};
static method methods_of_generators[] = {{"__reduce_ex__", (void *)refuse, ONE_ARGUMENT, NULL}, {0}};
static property properties[] = {{"__doc__", (void *)get_text, NULL, NULL, NULL}, {0}};

#define OF_BOTH                                                                                                 \
    {DEALLOC, (void *)end}, {TRAVERSE, (void *)traverse}, {CLEAR, (void *)forget}, {GET, (void *)get},          \
        {SET, (void *)set}, {REPR, (void *)show}, {HASH, (void *)hash}, {COMPARE, (void *)compare_both},        \
        {NEW, (void *)make_other}, {PROPERTIES, properties}

/* The names are those of the types that they stand for; slots that are NULL here are what was looked up. */
static type_slot slots_of_functions[] = {
    {CALL, NULL}, OF_BOTH, {BIND, (void *)bind}, {METHODS, methods_of_functions}, {MEMBERS, members_of_functions}, {0},
};
static type_slot slots_of_generators[] = {
    {ITER, NULL}, OF_BOTH, {NEXT, (void *)next}, {METHODS, methods_of_generators}, {MEMBERS, members_of_generators}, {0},
};
static type_spec functions = {"builtins.function", sizeof(stand_in), 0,
                              HAS_VERSION | HAS_GC | HAS_VECTORCALL | IS_METHOD, slots_of_functions};
static type_spec generators = {"builtins.generator", sizeof(stand_in), 0, HAS_VERSION | HAS_GC, slots_of_generators};

/* A type of Python's own has no module in its name, and one from a specification has to have it. */
static void *make_type_like_builtin(type_spec *spec) {
    char *type = make_type(spec);
    if (type)
        *(const char **)(type + OFFSET_OF_TYPE_NAME) += sizeof "builtins." - 1;
    return type;
}

static int has_python; /* both types are there */

static int find_python(void) {
    for (size_t i = 0; i < sizeof NEEDED / sizeof *NEEDED; i++)
        if (!(*NEEDED[i].into = dlsym(RTLD_DEFAULT, NEEDED[i].name)))
            return -1;
    if (ls_find_references())
        return -1;
    slots_of_functions[0].function = vectorcall_of_type;
    slots_of_generators[0].function = self_iter;
    if (!type_of_functions)
        type_of_functions = make_type_like_builtin(&functions);
    if (type_of_functions && !type_of_generators)
        type_of_generators = make_type_like_builtin(&generators);
    if (type_of_generators)
        return 0;
    clear_error();
    return -1;
}

static void *make(void *type, void *original, ls_stand_in_handler handler) {
    stand_in *self = make_object(type, 0);
    if (!self) {
        clear_error();
        return NULL;
    }
    increase(original);
    self->vectorcall = call;
    self->original = original;
    self->handler = handler;
    return self;
}

/* What stands for a function: whoever calls it calls `handler` with the function and the arguments. A new reference;
 * NULL without an exception: this Python is not understood. */
void *ls_stand_for_function(void *function, ls_stand_in_handler handler) {
    has_python = has_python || !find_python();
    return has_python ? make(type_of_functions, function, handler) : NULL;
}

/* The same for a generator: `handler` is asked for the next value, without arguments. NULL: it is none. Only after the
 * other one. */
void *ls_stand_for_generator(void *generator, ls_stand_in_handler handler) {
    if (!has_python || ls_type_of(generator) != generator_type)
        return NULL;
    return make(type_of_generators, generator, handler);
}
