/* The door into a program in C++ that uses PyTorch: without Python nothing imports torch, so its library is looked for
 * among those that are loaded. `layerscope run` has the agent loaded into a program that is linked with it
 * (native/preload); into others the agent comes when oneDNN, ITT or NVTX is first used (autostart.c).
 *
 * Nothing of the program tells later that the probe has answered, so this waits for it, once: some milliseconds where
 * the answer is known, about 0.15 s where this build is tried out for the first time. */
#define _GNU_SOURCE
#include "torch.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 3000
static const char NAME[] = "/libtorch_cpu.so";

static int is_torch(struct dl_phdr_info *info, size_t size, void *of) {
    (void)size;
    size_t length = info->dlpi_name ? strlen(info->dlpi_name) : 0;
    if (length < sizeof NAME - 1 || strcmp(info->dlpi_name + length - (sizeof NAME - 1), NAME))
        return 0;
    return realpath(info->dlpi_name, of) != NULL;
}

/* The path of the libtorch_cpu.so of a process without Python into `path` (PATH_MAX bytes); empty: there is none, or
 * Python's own door sees to it. */
void ls_torch_find(char *path) {
    *path = 0;
    if (!dlsym(RTLD_DEFAULT, "Py_IsInitialized") && !dl_iterate_phdr(is_torch, path))
        *path = 0;
}

/* Record its operators, if the probe says that they can be. */
void ls_torch_begin(void) {
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < PATIENCE_MS && ls.page; i++) {
        if (__atomic_load_n(&ls.page->probe, __ATOMIC_ACQUIRE) != LF_PROBE_PENDING)
            break;
        nanosleep(&moment, NULL);
    }
    ls_torch_start();
}
