/* Objects of Python as the rest of these files needs them, with the GIL held. */
#define _GNU_SOURCE
#include "mxnet.h"

#include <dlfcn.h>

static void *(*call)(void *callable, void *const *arguments, size_t count, void *keywords);
static void (*decrease)(void *object);

/* Before the others; -1: this Python is not understood. */
int ls_mxnet_find_python(void) {
    *(void **)&call = dlsym(RTLD_DEFAULT, "PyObject_Vectorcall");
    *(void **)&decrease = dlsym(RTLD_DEFAULT, "Py_DecRef");
    return call && decrease ? 0 : -1;
}

void *ls_mxnet_type_of(const void *object) { return ((void *const *)object)[1]; }

void *ls_mxnet_call(void *function, void *const *arguments, ssize_t count, void *keywords) {
    return call(function, arguments, (size_t)count, keywords);
}

void ls_mxnet_release(void *object) { decrease(object); }
