/* A thread that Python knows and that runs no Python code, as those of a backward pass on a GPU: it allocates a tensor's
 * memory. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

static void *torch;

static void *work(void *unused) {
    int (*ensure)(void);
    void (*release)(int), (*restore)(void *), (*give_back)(void *);
    void *(*save)(void), *(*allocate)(size_t);
    *(void **)&ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    *(void **)&release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
    *(void **)&save = dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
    *(void **)&restore = dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
    *(void **)&allocate = dlsym(torch, "_ZN3c109alloc_cpuEm");
    *(void **)&give_back = dlsym(torch, "_ZN3c108free_cpuEPv");
    int held = ensure();
    void *state = save();
    give_back(allocate(123456));
    restore(state);
    release(held);
    return unused;
}

int run(const char *library) {
    pthread_t thread;
    torch = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return !torch || pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL);
}
