/* What the C library's allocator has in use, and free, and what Python has for its objects. Counters of a domain that no
 * program has, a few times a second, told by a thread that has just allocated. */
#define _GNU_SOURCE
#include "heap_statistics.h"

#include "agent.h"
#include "loaded_file.h"
#include "python_memory.h"

#include <dlfcn.h>
#include <malloc.h>

#define EVERY_NS 250000000u
/* Going through the free blocks of a heap takes time, more where they are many: so it is done that much more rarely. */
#define MOST_SHARE 200u

static _Atomic uint64_t next_ns;

/* Of glibc 2.33 and later, and if that is the allocator: another one may have been loaded before it. */
static struct mallinfo2 (*statistics(void))(void) {
    void *found = dlsym(RTLD_DEFAULT, "mallinfo2");
    if (!ls_is_one_file(found, dlsym(RTLD_DEFAULT, "malloc")))
        return NULL;
    struct mallinfo2 (*function)(void);
    *(void **)&function = found;
    return function;
}

void ls_heap_tell(void) {
    uint64_t now = ls_monotonic_ns(), due = atomic_load_explicit(&next_ns, memory_order_relaxed);
    /* One thread takes the turn; the time is set again behind it. */
    if (now < due || !atomic_compare_exchange_strong(&next_ns, &due, now + EVERY_NS))
        return;
    struct mallinfo2 (*of_heap)(void) = statistics();
    int64_t of_python = ls_python_memory_bytes();
    if (of_python >= 0)
        ls_counter("python_bytes\nlayerscope: malloc", of_python);
    if (!of_heap) {
        atomic_store(&next_ns, of_python < 0 ? UINT64_MAX : now + EVERY_NS);
        return;
    }
    struct mallinfo2 found = of_heap();
    uint64_t cost_ns = ls_monotonic_ns() - now;
    atomic_store(&next_ns, now + (cost_ns * MOST_SHARE > EVERY_NS ? cost_ns * MOST_SHARE : EVERY_NS));
    ls_counter("in_use_bytes\nlayerscope: malloc", (int64_t)(found.uordblks + found.hblkhd));
    ls_counter("free_bytes\nlayerscope: malloc", (int64_t)found.fordblks);
}
