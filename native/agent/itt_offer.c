/* The way of ITT into a library that runs already, in a program whose environment does not name us: where the library
 * asks for the collector, before it first uses ITT, it gets our file for an answer. Its own call of getenv leads to us
 * until then; the environment is not changed, and a collector that it names stays. */
#define _GNU_SOURCE
#include "itt.h"
#include "sampling.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const char COLLECTOR[] = "INTEL_LIBITTNOTIFY64";
static _Atomic(const void *) offered_to;
static _Atomic int is_taken;

static char *answer(const char *name) {
    char *own = getenv(name);
    Dl_info us;
    if (own || strcmp(name, COLLECTOR) || !dladdr((void *)(uintptr_t)answer, &us))
        return own;
    return (char *)(uintptr_t)us.dli_fname;
}

/* Offer us to the library that has the address `inside`. */
void ls_itt_offer(const void *inside) {
    if (atomic_load(&offered_to) || atomic_load(&is_taken) || getenv(COLLECTOR))
        return;
    if (ls_import_replace(inside, "getenv", (void *)(uintptr_t)getenv, (void *)(uintptr_t)answer))
        atomic_store(&offered_to, inside);
}

/* A library has us for its collector. */
void ls_itt_taken(void) {
    atomic_store(&is_taken, 1);
    const void *inside = atomic_exchange(&offered_to, NULL);
    if (inside)
        ls_import_replace(inside, "getenv", (void *)(uintptr_t)answer, (void *)(uintptr_t)getenv);
}

/* Whether we were offered, and nothing has used ITT since. */
LS_EXPORT int ls_itt_is_offered(void) { return atomic_load(&offered_to) != NULL; }
