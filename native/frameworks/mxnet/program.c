/* The door into a program in C or C++ that uses MXNet. It is open before the first operator where `layerscope run` has
 * loaded the agent (native/preload): the library is there from the start, or is found as soon as the program looks up a
 * function in it. Into other programs the agent comes when oneDNN is first used (autostart.c). */
#define _GNU_SOURCE
#include "program.h"

#include "../loaded_library.h"
#include "mxnet.h"

#include <dlfcn.h>
#include <limits.h>

void ls_mxnet_program_find(char *path) { ls_loaded_library("libmxnet.so", path); }

/* Its code and reason: ingest/small_tables.py. */
static const char LATE[] = "begun_late\nit may have used MXNet before the agent came, with its first use of oneDNN";

/* Record its operators from now on. */
void ls_mxnet_program_begins(const ls_framework_request *request) {
    char path[PATH_MAX];
    ls_mxnet_program_find(path);
    void *library = *path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (!library)
        return;
    if (!ls_mxnet_start(path, request->with_calls)) {
        ls_mxnet_profiler_calls(library);
        if (request->is_late)
            ls_mark(LATE, LF_MARK_PROBLEM, 0);
    }
    dlclose(library); /* the program has its own reference */
}
