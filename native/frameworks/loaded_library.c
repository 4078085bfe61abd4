/* Without Python nothing imports a framework, so its library is looked for among those that are loaded. */
#define _GNU_SOURCE
#include "loaded_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    char *path;
} wanted;

static int is_wanted(struct dl_phdr_info *info, size_t size, void *of) {
    const wanted *w = of;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    return slash && !strcmp(slash + 1, w->name) && realpath(info->dlpi_name, w->path);
}

/* The path of the loaded library whose file has this name into `path` (PATH_MAX bytes); empty: there is none, or Python's
 * own door sees to it. */
void ls_loaded_library(const char *name, char *path) {
    wanted w = {name, path};
    if (dlsym(RTLD_DEFAULT, "Py_IsInitialized") || !dl_iterate_phdr(is_wanted, &w))
        *path = 0;
}
