/* Preloaded into a program that is linked with a framework, or names one in its file (capture/preloading.py): loads the
 * agent, which lies beside this file, and opens its door. The agent itself is never preloaded: what is shows its
 * functions to every library of the program, and names such as `Initialize` may be theirs. This file shows none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char AGENT[] = "liblayerscope-agent.so";

/* Take `own` out of LD_PRELOAD, where it is the last; whether it was. What the program starts is not to have it, and
 * what the program sees of its environment is what it was given. */
static int leave(const char *own) {
    char *preloaded = secure_getenv("LD_PRELOAD");
    size_t have = preloaded ? strlen(preloaded) : 0, ours = strlen(own);
    if (have < ours || strcmp(preloaded + have - ours, own))
        return 0;
    if (have == ours)
        unsetenv("LD_PRELOAD");
    else if (preloaded[have - ours - 1] == ':')
        preloaded[have - ours - 1] = 0;
    else
        return 0;
    return 1;
}

__attribute__((constructor)) static void begin(void) {
    Dl_info us;
    char path[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)begin, &us) || !us.dli_fname || !leave(us.dli_fname))
        return;
    const char *file = strrchr(us.dli_fname, '/');
    int length = file ? (int)(file + 1 - us.dli_fname) : 0;
    if (snprintf(path, sizeof path, "%.*s%s", length, us.dli_fname, AGENT) >= (int)sizeof path)
        return;
    void *agent = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*open)(void) = NULL;
    if (agent)
        *(void **)&open = dlsym(agent, "ls_door_preloaded");
    if (open)
        open();
}
