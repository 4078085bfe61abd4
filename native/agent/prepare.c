/* Where recording begins in a process: the rings, and all that follows them where processes and threads begin. */
#define _GNU_SOURCE
#include "client.h"

static void process_begins(int is_forked) {
    ls_windows_begin(is_forked);
    ls_names_begin();
}

static const ls_occasions occasions = {process_begins, ls_sampling_thread_begins, ls_nested_abandon};

/* Begin recording in this process: `name` of the session's abstract socket, `library_path` the
 * library of the framework that is about to be loaded; empty: none yet, a later call may name one. 0, or minus an
 * errno. */
LS_EXPORT int ls_prepare(const char *name, const char *library_path, int use_tsc) {
    return ls_rings_prepare(name, library_path, use_tsc, &occasions);
}
