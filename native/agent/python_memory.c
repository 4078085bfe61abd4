/* How much memory Python has for its objects: it takes it in arenas, by an allocator that a program may replace
 * (PyObject_SetArenaAllocator). Ours has the one before it do it, and counts. */
#define _GNU_SOURCE
#include "python_memory.h"

#include "agent.h"

#include <dlfcn.h>
#include <stdatomic.h>

/* Of a block as Python counts them, where arenas were taken before we came: measured in a large program, 91. */
#define BLOCK_BYTES 90

typedef struct { /* PyObjectArenaAllocator */
    void *context;
    void *(*allocate)(void *context, size_t bytes);
    void (*release)(void *context, void *arena, size_t bytes);
} arena_allocator;

static arena_allocator before;
static _Atomic int64_t held = -1;

static void *allocate(void *context, size_t bytes) {
    void *arena = before.allocate(context, bytes);
    if (arena)
        atomic_fetch_add_explicit(&held, (int64_t)bytes, memory_order_relaxed);
    return arena;
}

static void release(void *context, void *arena, size_t bytes) {
    atomic_fetch_sub_explicit(&held, (int64_t)bytes, memory_order_relaxed);
    before.release(context, arena, bytes);
}

static int find(void (**get)(arena_allocator *), void (**set)(arena_allocator *)) {
    *(void **)get = dlsym(RTLD_DEFAULT, "PyObject_GetArenaAllocator");
    *(void **)set = dlsym(RTLD_DEFAULT, "PyObject_SetArenaAllocator");
    return *get && *set ? 0 : -1;
}

/* Count from now on; the caller has the GIL. */
LS_EXPORT void ls_python_memory_start(void) {
    void (*get)(arena_allocator *), (*set)(arena_allocator *);
    long (*blocks)(void);
    *(void **)&blocks = dlsym(RTLD_DEFAULT, "_Py_GetAllocatedBlocks");
    if (atomic_load(&held) >= 0 || !blocks || find(&get, &set))
        return;
    get(&before);
    atomic_store(&held, (int64_t)blocks() * BLOCK_BYTES);
    set(&(arena_allocator){before.context, allocate, release});
}

/* As it was, unless somebody has come after us; the caller has the GIL. */
LS_EXPORT void ls_python_memory_stop(void) {
    void (*get)(arena_allocator *), (*set)(arena_allocator *);
    arena_allocator now;
    if (atomic_load(&held) < 0 || find(&get, &set))
        return;
    get(&now);
    if (now.allocate != allocate)
        return;
    set(&before);
    atomic_store(&held, -1);
}

int64_t ls_python_memory_bytes(void) { return atomic_load_explicit(&held, memory_order_relaxed); }
