/* The memory of NumPy's arrays: the imports by which its extension module asks the C library lead to ours. Small blocks
 * are left out: NumPy keeps a store of them, and has them for much beside the data of arrays. */
#define _GNU_SOURCE
#include "allocations.h"

#include "agent.h"
#include "loaded_file.h"

#include <dlfcn.h>

/* The store of NumPy has blocks below this (NBUCKETS of numpy/_core/src/multiarray/alloc.c). */
#define LEAST_BYTES 1024u

static ls_redirections imports;
static void *(*allocate)(size_t bytes);
static void *(*allocate_zeros)(size_t count, size_t bytes);
static void *(*resize)(void *address, size_t bytes);
static void (*give_back)(void *address);
static size_t (*usable_bytes)(void *address);

static int is_on(void) { return LS_LOAD(imports.is_on); }

static int is_large(void *address) { return address && is_on() && usable_bytes(address) >= LEAST_BYTES; }

static void *tell(void *address, size_t bytes) {
    if (address && bytes >= LEAST_BYTES && is_on())
        ls_allocation(address, bytes, LF_BY_NUMPY);
    return address;
}

static void *allocate_and_tell(size_t bytes) { return tell(allocate(bytes), bytes); }

static void *allocate_zeros_and_tell(size_t count, size_t bytes) {
    return tell(allocate_zeros(count, bytes), count * bytes); /* an overflow was refused */
}

static void *resize_and_tell(void *address, size_t bytes) {
    size_t before = is_large(address) ? usable_bytes(address) : 0;
    if (before)
        ls_release(address);
    void *resized = resize(address, bytes);
    if (!resized && bytes) /* it is still there */
        tell(address, before);
    return tell(resized, bytes);
}

static void tell_and_give_back(void *address) {
    if (is_large(address))
        ls_release(address);
    give_back(address);
}

static const ls_redirection WANTED[] = {
    {"malloc", (void *)allocate_and_tell, (void **)&allocate},
    {"calloc", (void *)allocate_zeros_and_tell, (void **)&allocate_zeros},
    {"realloc", (void *)resize_and_tell, (void **)&resize},
    {"free", (void *)tell_and_give_back, (void **)&give_back},
};
static ls_redirections imports = {.wanted = WANTED, .count = sizeof WANTED / sizeof *WANTED};

/* An address in the extension module; NULL: it is not loaded. */
static const void *inside_of(const char *extension) {
    void *loaded = dlopen(extension, RTLD_NOW | RTLD_NOLOAD);
    const void *inside = loaded ? dlsym(loaded, "PyInit__multiarray_umath") : NULL;
    if (loaded)
        dlclose(loaded); /* Python has a reference of its own */
    return inside;
}

/* Start recording the arrays of NumPy, whose extension module `extension` is loaded from this file; `folder`: as
 * ls_torch_memory_start has it. 0: recording; else why not, in two texts. */
LS_EXPORT int ls_numpy_memory_start(const char *extension, const char *folder, const char *why[2]) {
    void *usable = dlsym(RTLD_DEFAULT, "malloc_usable_size");
    why[0] = "the allocator has no";
    why[1] = "malloc_usable_size";
    /* An allocator that was loaded before the C library's may lack it. */
    if (!ls_is_one_file(usable, dlsym(RTLD_DEFAULT, "free")))
        return -1;
    *(void **)&usable_bytes = usable;
    const void *inside = inside_of(extension);
    why[0] = "it is not loaded:";
    why[1] = "NumPy";
    return inside ? ls_allocator_start(&imports, inside, folder, why) : -1;
}

LS_EXPORT void ls_numpy_memory_stop(void) { ls_allocator_stop(&imports); }
