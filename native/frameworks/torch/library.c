/* The door into a program in C++ that uses PyTorch: without Python nothing imports torch, so its library is looked for
 * among those that are loaded. `layerscope run` has the agent loaded into a program that is linked with it
 * (native/preload); into others the agent comes when oneDNN, ITT or NVTX is first used (autostart.c).
 *
 * Nothing of the program tells later that the probe has answered, so this waits for it, once: some milliseconds where
 * the answer is known, about 0.15 s where this build is tried out for the first time. */
#define _GNU_SOURCE
#include "torch.h"

#include "../loaded_library.h"

#define PATIENCE_MS 3000

/* The path of the libtorch_cpu.so of a process without Python into `path` (PATH_MAX bytes); empty: there is none, or
 * Python's own door sees to it. */
void ls_torch_find(char *path) { ls_loaded_library("libtorch_cpu.so", path); }

/* Record its operators, if the probe says that they can be. */
void ls_torch_begin(const ls_framework_request *request) {
    const struct timespec moment = {.tv_nsec = 1000000};
    (void)request;
    for (int i = 0; i < PATIENCE_MS && ls.page; i++) {
        if (__atomic_load_n(&ls.page->probe, __ATOMIC_ACQUIRE) != LF_PROBE_PENDING)
            break;
        nanosleep(&moment, NULL);
    }
    ls_torch_start();
}
