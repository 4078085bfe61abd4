/* Which Python this process has, and whether the frames of it can be read (native/stacks/python_frames.c). */
#define _GNU_SOURCE
#include "sampling.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

ls_interpreter ls_python;

/* Threads call it when they are sampled: what has it must not be unloaded. */
static void keep_loaded(void *function) {
    Dl_info of;
    if (dladdr(function, &of) && of.dli_fname)
        dlopen(of.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

/* Whether the numbers of python_frames.c hold here: by them, this thread's state is found among those of all threads;
 * of a thread that Python does not know, the main thread's. */
static int is_as_expected(uint32_t version, ls_scratch *s) {
    uint64_t state = (uint64_t)(uintptr_t)ls_python.thread_state();
    int32_t tid = state ? (int32_t)syscall(SYS_gettid) : getpid();
    uint64_t found = lu_python_thread(version, ls_python.runtime, tid, ls_read_here, s);
    return found && (!state || found == state);
}

static uint32_t version_of(ls_scratch *s) {
    const unsigned long *told = dlsym(RTLD_DEFAULT, "Py_Version"); /* since 3.11: as PY_VERSION_HEX */
    if (!told || !ls_python.runtime || dlsym(RTLD_DEFAULT, "_Py_NegativeRefcount"))
        return LF_PYTHON_UNKNOWN; /* the last is there in builds that count all references, as those with Py_DEBUG */
    if (lu_python_refusal(*told, ls_python.runtime, ls_read_here, s))
        return LF_PYTHON_UNKNOWN;
    uint32_t version = *told >> 16 & 0xff;
    return is_as_expected(version, s) ? version : LF_PYTHON_UNKNOWN;
}

/* Look for Python in this process; called once, outside of handlers. */
void ls_interpreter_find(ls_scratch *s) {
    *(void **)&ls_python.thread_state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
    *(void **)&ls_python.is_initialized = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    ls_python.eval = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "_PyEval_EvalFrameDefault");
    ls_python.runtime = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "_PyRuntime");
    ls_python.version = LF_PYTHON_NONE;
    if (!ls_python.thread_state)
        return;
    keep_loaded(*(void **)&ls_python.thread_state);
    ls_python.version = version_of(s);
}
