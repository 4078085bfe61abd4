/* Objects of Python as stand-ins and their handlers need them, with the GIL held. */
#define _GNU_SOURCE
#include "stand_ins.h"

#include <dlfcn.h>

static void *(*call)(void *callable, void *const *arguments, size_t count, void *keywords);
static void (*decrease)(void *object);

/* Before the others; -1: this Python is not understood. */
int ls_find_references(void) {
    *(void **)&call = dlsym(RTLD_DEFAULT, "PyObject_Vectorcall");
    *(void **)&decrease = dlsym(RTLD_DEFAULT, "Py_DecRef");
    return call && decrease ? 0 : -1;
}

void *ls_type_of(const void *object) { return ((void *const *)object)[1]; }

void *ls_call_python(void *function, void *const *arguments, ssize_t count, void *keywords) {
    return call(function, arguments, (size_t)count, keywords);
}

void ls_python_release(void *object) { decrease(object); }
