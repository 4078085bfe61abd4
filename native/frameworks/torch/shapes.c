/* The shapes of an operator's inputs: a library that was compiled for this build of torch (shapes.cpp)
 * gives their hash and their text, and each text is written once, as a name. */
#define _GNU_SOURCE
#include "torch.h"

#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>

#define VERSION 1u
/* A program whose shapes are new all the time must leave room for the names of operators. */
#define MOST_SHAPES 100000u
/* For those beyond: known to be unknown, which the tables can count. */
#define UNKNOWN "{\"shapes\": null, \"dtypes\": null}"

/* Code and reason of a problem (ingest/small_tables.py). */
#define FULL "shapes_full\nit has more than 100,000 different shapes of inputs: those of later ones are not known"

uint64_t (*ls_shapes_hash_of)(const void *record_function);
int ls_shapes_are_on;
static uint32_t (*text_of)(const void *record_function, char *into, uint32_t bytes);

/* Use the library at `path`; torch is loaded. 0: done; -1: it does not load here, or is another version's. */
LS_EXPORT int ls_shapes_use(const char *path) {
    if (ls_shapes_hash_of)
        return 0; /* one that an operator may be calling stays */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    uint32_t (*version)(void) = NULL;
    uint64_t (*hash)(const void *) = NULL;
    if (library) {
        *(void **)&version = dlsym(library, "ls_shapes_version");
        *(void **)&hash = dlsym(library, "ls_shapes_hash");
        *(void **)&text_of = dlsym(library, "ls_shapes_text");
    }
    if (!version || version() != VERSION || !hash || !text_of) {
        if (library)
            dlclose(library);
        return -1;
    }
    ls_shapes_hash_of = hash;
    ls_shapes_are_on = 1;
    return 0;
}

/* Whether the next ls_torch_start goes without shapes: to measure what they cost. */
LS_EXPORT void ls_shapes_pause(int pause) { ls_shapes_are_on = ls_shapes_hash_of && !pause; }

/* The name of `text`; beyond the limit that of UNKNOWN, and the first time a mark that says so. */
static uint32_t limited(const char *text) {
    ls_cached_name name;
    if (ls_name_known(text, &name))
        return name.id;
    uint32_t before = atomic_fetch_add(&ls.wiped->shapes, 1);
    if (before == MOST_SHAPES)
        ls_mark(FULL, LF_MARK_PROBLEM, 0);
    if (before >= MOST_SHAPES) {
        atomic_store(&ls.wiped->shapes, MOST_SHAPES + 1);
        text = UNKNOWN;
    }
    ls_name_find(text, &name);
    return name.id;
}

/* The name of the shapes with this hash, which this thread does not know yet. */
uint32_t ls_shapes_learn(ls_thread *t, const void *record_function, uint64_t hash) {
    char text[LF_NAME_LIMIT];
    uint32_t id = text_of(record_function, text, sizeof text) ? limited(text) : 0;
    if (!t->shapes) {
        size_t bytes = sizeof *t->shapes << LS_SHAPES_BITS;
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return id;
        t->shapes = memory;
    }
    t->shapes[hash >> (64u - LS_SHAPES_BITS)] = (ls_known_shapes){hash, id};
    return id;
}
