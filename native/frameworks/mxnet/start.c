/* Where the recording of MXNet begins and ends: its engine's own calls are redirected to ours, and led back. A build
 * that nobody has looked at is left alone, and so is one whose calls lead elsewhere than they should. */
#define _GNU_SOURCE
#include "mxnet.h"

#include "../../agent/itt.h"
#include "../../agent/loaded_file.h"
#include "../../agent/python_line.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_FUNCTIONS 16u
static ls_redirection wanted[MOST_FUNCTIONS];
static ls_redirections redirections = {.wanted = wanted};
/* These stay while the program has stopped its profiler: what is allocated and freed meanwhile counts. */
static ls_redirection wanted_of_storage[2];
static ls_redirections of_storage = {.wanted = wanted_of_storage, .count = 2};

/* Which operators are recorded is decided at each of them. */
static void attend(int which) { (void)which; }

static void leave(void) {
    ls_mxnet_is_recorded = 0;
    ls_redirect_back(&redirections);
}

static const ls_announcer announcer = {attend, leave};

/* Its code and reason: ingest/small_tables.py. */
static int refuse(const char *what, const char *more) {
    char text[LF_NAME_LIMIT];
    snprintf(text, sizeof text, "build_refused\nthis build of MXNet is not understood: %s %s", what, more);
    ls_mark(text, LF_MARK_PROBLEM, 0);
    return -1;
}

static void read_build_id(const ls_loaded_file *f, void *into) { ls_build_id(f, into); }

static void want(const char *name, void *ours, void **original) {
    if (name)
        wanted[redirections.count++] = (ls_redirection){name, ours, original};
}

static void want_those_of(const ls_mxnet_build *build) {
    redirections.count = 0;
    want(build->execute, (void *)ls_mxnet_execute, (void **)&ls_mxnet_own_execute);
    want(build->push_naive, (void *)ls_mxnet_push_naive, (void **)&ls_mxnet_own_push_naive);
    want(build->push_cached_naive, (void *)ls_mxnet_push_cached_naive, (void **)&ls_mxnet_own_push_cached_naive);
    want("_ZN5mxnet6engine14ThreadedEngine4PushEPNS0_3OprENS_7ContextEib", (void *)ls_mxnet_push,
         (void **)&ls_mxnet_own_push);
    want("_ZN5mxnet6engine14ThreadedEngine10WaitForVarEPNS0_3VarE", (void *)ls_mxnet_wait, (void **)&ls_mxnet_own_wait);
    want("_ZN5mxnet12on_enter_apiEPKc", (void *)ls_mxnet_enter_api, (void **)&ls_mxnet_own_enter_api);
    want("_ZN5mxnet11on_exit_apiEv", (void *)ls_mxnet_exit_api, (void **)&ls_mxnet_own_exit_api);
    want("_ZNK5mxnet6engine14ThreadedEngine9bulk_sizeEv", (void *)ls_mxnet_bulk_size, (void **)&ls_mxnet_own_bulk_size);
    want(build->delete_naive, (void *)ls_mxnet_delete_naive, (void **)&ls_mxnet_own_delete_naive);
}

static int redirect(void *library) {
    char build_id[LS_BUILD_ID_BYTES] = "";
    const void *inside = dlsym(library, "MXGetVersion");
    if (!inside || !ls_file_around(inside, read_build_id, build_id))
        return refuse("it has no function", "MXGetVersion");
    const ls_mxnet_build *build = ls_mxnet_build_of(build_id);
    if (!build)
        return refuse("nobody has looked at the one with build-id", *build_id ? build_id : "(none)");
    ls_mxnet_build_here = *build;
    want_those_of(build);
    if (ls_mxnet_submissions_begin() || ls_mxnet_variables_begin())
        return refuse("there is no memory for", "its submissions");
    if (ls_redirect(&redirections, library))
        return refuse(redirections.why_not, redirections.which);
    if (of_storage.used)
        return 0;
    ls_mxnet_memory_begin();
    wanted_of_storage[0] = (ls_redirection){build->allocated, (void *)ls_mxnet_allocated, (void **)&ls_mxnet_own_allocated};
    wanted_of_storage[1] = (ls_redirection){build->freed, (void *)ls_mxnet_freed, (void **)&ls_mxnet_own_freed};
    if (!ls_redirect(&of_storage, library))
        return 0;
    ls_redirect_back(&redirections);
    return refuse(of_storage.why_not, of_storage.which);
}

/* Below the folder of the library is MXNet's own Python code. */
static void begin_lines(const char *path) {
    char folder[PATH_MAX];
    size_t length = strlen(path);
    const char *end = memrchr(path, '/', length);
    if (!end || length >= sizeof folder)
        return;
    memcpy(folder, path, length);
    folder[end + 1 - path] = 0;
    ls_python_line_begin(folder);
}

/* A server or the scheduler of a distributed store; a worker has a rank. */
static void note_role(void) {
    const char *role = getenv("DMLC_ROLE");
    if (role && (!strcmp(role, "server") || !strcmp(role, "scheduler")))
        ls_note_role(role);
}

static int start(const char *path) {
    if (!ls.page || !ls.wiped)
        return -3;
    if (redirections.used)
        return 0;
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return -2;
    int failed = redirect(library);
    if (!failed)
        ls_itt_offer(dlsym(library, "MXGetVersion"));
    dlclose(library); /* the program has its own reference */
    if (failed)
        return failed;
    ls_mxnet_is_recorded = 1;
    begin_lines(path);
    note_role();
    ls_operators_announce(&announcer);
    return 0;
}

/* Start recording the MXNet in the file at `path`, `with_calls` of its C interface or without. 0: recording;
 * -1: this build is not understood, and the recording says so; -2: it is not loaded; -3: ls_prepare was not called or failed. */
LS_EXPORT int ls_mxnet_start(const char *path, int with_calls) {
    ls_lock_beginning();
    ls_mxnet_records_calls = with_calls;
    int code = start(path);
    ls_unlock_beginning();
    return code;
}
