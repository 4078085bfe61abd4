/* What MXNet's storage holds of each device, as a counter: it tells its own profiler of each allocation and each release,
 * whether that runs or not. */
#define _GNU_SOURCE
#include "mxnet.h"

#include <stdio.h>

enum { CPU = 1, GPU = 2, CPU_PINNED = 3, CPU_SHARED = 5, TYPES = 6, NUMBERS = 16 };

/* The beginning of a Storage::Handle. */
typedef struct {
    void *memory;
    uint64_t bytes;
    int32_t device_type, device_number;
} storage_handle;

void (*ls_mxnet_own_allocated)(void *, const void *);
void (*ls_mxnet_own_freed)(void *, const void *);

static _Atomic int64_t held[TYPES][NUMBERS];
static char texts[TYPES][NUMBERS][64]; /* the names of the counters */

void ls_mxnet_memory_begin(void) {
    static const char *const NAMES[TYPES] = {[CPU] = "cpu", [GPU] = "gpu", [CPU_PINNED] = "cpu_pinned",
                                             [CPU_SHARED] = "cpu_shared"};
    for (uint32_t type = 0; type < TYPES; type++)
        for (uint32_t number = 0; NAMES[type] && number < NUMBERS; number++)
            snprintf(texts[type][number], sizeof **texts, "memory_bytes of %s(%u)\nMXNet", NAMES[type], number);
}

static void count(const storage_handle *handle, int64_t sign) {
    uint32_t type = (uint32_t)handle->device_type, number = (uint32_t)handle->device_number;
    if (!handle->bytes || type >= TYPES || number >= NUMBERS || !*texts[type][number])
        return;
    int64_t change = sign * (int64_t)handle->bytes;
    int64_t before = atomic_load(&held[type][number]), now;
    do {
        /* What was allocated before we came may be freed now: then at least that much was held. */
        now = before + change > 0 ? before + change : 0;
    } while (!atomic_compare_exchange_weak(&held[type][number], &before, now));
    if (ls.wiped && ls_mxnet_is_recorded)
        ls_counter(texts[type][number], now);
}

/* DeviceStorageProfiler::OnAlloc and OnFree(const Storage::Handle &) */
void ls_mxnet_allocated(void *profiler, const void *handle) {
    ls_mxnet_own_allocated(profiler, handle);
    count(handle, 1);
}

void ls_mxnet_freed(void *profiler, const void *handle) {
    count(handle, -1);
    ls_mxnet_own_freed(profiler, handle);
}
