/* A thread that has called into a library of C does not hold the GIL, and may not call Python to ask where it is. But
 * its own frames stay as they are until it returns, and so does what they name: they are read as the sampler reads them.
 *
 * What is known of a place in code is kept. Memory of code that is gone is used again: so its names are compared too. */
#define _GNU_SOURCE
#include "python_line.h"

#include "location_table.h"
#include "sampling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PLACES 4096u /* a power of two; what is beyond three quarters of it has no line */
#define MOST_FRAMES 64    /* of the library, one in the other */
#define LINES_FIRST 32u   /* in a PyBytesObject: the first byte, behind the size */
#define LINES_SIZE 16u
#define LONGEST_LINE 200u /* bytes: the end of the path matters */
#define MOST_LIBRARIES 4u
#define FROZEN "<frozen " /* what Python has compiled into itself */

typedef struct {
    lu_python_frame frame;
    uint64_t generation;
    uint32_t line; /* the number of its name; 0: of the library, or without a line */
    enum { OF_LIBRARY, WITHOUT_FILE, OWN } kind;
} known_place;

/* A forked child finds it zeroed. */
typedef struct {
    _Atomic uint32_t lock;
    uint32_t used;
    known_place places[MOST_PLACES];
} known_places;

static known_places *known;
/* The folders of libraries. */
static char libraries[MOST_LIBRARIES][LS_TEXT_MOST];
static _Atomic uint32_t library_count;

/* Memory that is there: of this thread's own frames, and what they hold. */
static int read_own(void *of, uint64_t address, void *into, size_t bytes) {
    (void)of;
    memcpy(into, (const void *)(uintptr_t)address, bytes);
    return 0;
}

static int text_of(uint64_t object, char into[LS_TEXT_MOST]) {
    int bytes = lu_python_text(ls_python.version, object, read_own, NULL, into, LS_TEXT_MOST - 1);
    into[bytes > 0 ? bytes : 0] = 0;
    return bytes;
}

static void describe(known_place *k, const char *file) {
    uint64_t bytes;
    char text[LS_TEXT_MOST + 16];
    read_own(NULL, k->frame.lines + LINES_SIZE, &bytes, sizeof bytes);
    const uint8_t *table = (const uint8_t *)(uintptr_t)(k->frame.lines + LINES_FIRST);
    int line = ls_line_of_place(table, bytes, k->frame.first_line, k->frame.place);
    if (!line)
        return;
    int length = snprintf(text, sizeof text, "%s:%d", file, line);
    const char *end = text + length;
    ls_cached_name name;
    ls_name_find(length > (int)LONGEST_LINE ? end - LONGEST_LINE : text, &name);
    k->line = name.id;
}

static int is_of_library(const char *file) {
    for (uint32_t i = 0; i < atomic_load(&library_count); i++)
        if (!strncmp(file, libraries[i], strlen(libraries[i])))
            return 1;
    return 0;
}

static void learn(known_place *k, const lu_python_frame *frame) {
    char file[LS_TEXT_MOST];
    uint64_t file_object, name, lines;
    int32_t first_line;
    *k = (known_place){.frame = *frame, .generation = LS_LOAD(ls.wiped->generation)};
    if (lu_python_code(ls_python.version, frame->code, read_own, NULL, &file_object, &name, &lines, &first_line)
        || text_of(file_object, file) <= 0)
        return;
    if (is_of_library(file) || !strncmp(file, FROZEN, strlen(FROZEN)))
        return;
    k->kind = *file == '<' ? WITHOUT_FILE : OWN;
    describe(k, file);
}

static int is_same(const known_place *k, const lu_python_frame *f) {
    return k->frame.code == f->code && k->frame.place == f->place && k->frame.name == f->name
        && k->frame.lines == f->lines && k->frame.first_line == f->first_line;
}

/* What is known of where this frame is; NULL: there is no room for it. */
static const known_place *place_of(const lu_python_frame *f) {
    uint64_t hash = ((f->code >> 4) + f->place) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = hash >> 52;; i++) {
        known_place *k = &known->places[i % MOST_PLACES];
        int is_free = !k->frame.code;
        if (is_free && known->used++ >= MOST_PLACES / 4 * 3) {
            known->used--;
            return NULL;
        }
        if (is_free || (is_same(k, f) && k->generation != LS_LOAD(ls.wiped->generation)))
            learn(k, f);
        if (is_same(k, f))
            return k;
    }
}
_Static_assert(MOST_PLACES == 1u << (64 - 52), "places");

static void know_by(lu_python_frame *f) {
    lu_python_known_by(ls_python.version, (const uint8_t *)(uintptr_t)f->code, f);
}

/* Of code without a file, which a library may have made as it runs, the outermost counts. `way`: to be filled in. */
static uint32_t line_from(uint64_t frame, ls_way *way) {
    uint32_t line = 0, count = 0;
    lu_python_frame f;
    way->count = 0;
    for (int i = 0; frame && i < MOST_FRAMES; i++) {
        frame = lu_python_own_outwards(ls_python.version, frame, &f);
        if (!f.code)
            continue;
        know_by(&f);
        if (count < LS_WAY_FRAMES)
            way->codes[count] = f.code, way->places[count] = f.place;
        count++;
        const known_place *k = place_of(&f);
        if (k && k->kind == OWN && count <= LS_WAY_FRAMES)
            way->name = f.name, way->lines = f.lines, way->first_line = f.first_line, way->count = count;
        if (!k || k->kind == OWN)
            return way->line = k ? k->line : 0;
        line = k->kind == WITHOUT_FILE ? k->line : line;
    }
    return line;
}

static ls_way *way_of(ls_thread *t, uint64_t frame) {
    lu_python_frame f = {.place = 0};
    lu_python_own_outwards(ls_python.version, frame, &f);
    uint64_t hash = ((f.code >> 4) + f.place) * 0x9e3779b97f4a7c15u;
    return &t->ways[hash >> 60];
}
_Static_assert(LS_WAYS == 1u << (64 - 60), "ways");

/* Whether the thread has come this way before. The library's own code stays where it is; the program's may be gone, and
 * other code lie there. */
static int is_way(const ls_way *way, uint64_t frame) {
    lu_python_frame f = {.code = 0};
    for (uint32_t i = 0; i < way->count;) {
        if (!frame)
            return 0;
        frame = lu_python_own_outwards(ls_python.version, frame, &f);
        if (!f.code)
            continue;
        if (f.code != way->codes[i] || f.place != way->places[i])
            return 0;
        i++;
    }
    if (!way->count)
        return 0;
    know_by(&f);
    return f.name == way->name && f.lines == way->lines && f.first_line == way->first_line;
}

uint32_t ls_python_line(void) {
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    /* Where Python ends, it frees the states of the threads that still run in libraries. */
    int is_there = known && t && ls_python.is_initialized && ls_python.is_initialized();
    uint64_t here[2], state = is_there ? (uint64_t)(uintptr_t)ls_python.thread_state() : 0;
    if (!state || lu_python_here(ls_python.version, state, read_own, NULL, here) || !here[0])
        return 0; /* a thread that Python knows may run no code of it: those of a backward pass on a GPU */
    ls_way *way = way_of(t, here[0]);
    if (is_way(way, here[0]))
        return way->line;
    ls_lock(&known->lock);
    uint32_t line = line_from(here[0], way);
    ls_unlock(&known->lock);
    return line;
}

/* Where nothing is sampled nobody has looked for Python yet. */
static int is_python_known(void) {
    if (!ls_python.thread_state) {
        ls_scratch *scratch = calloc(1, sizeof *scratch);
        if (!scratch)
            return 0;
        scratch->pid = getpid();
        ls_interpreter_find(scratch);
        free(scratch);
    }
    return ls_python.version >= LF_PYTHON_3_11 && ls_python.version <= LF_PYTHON_3_14;
}

int ls_python_line_begin(const char *folder) {
    uint32_t count = atomic_load(&library_count);
    if (count && is_of_library(folder))
        return 0;
    if (strlen(folder) >= sizeof libraries[0] || count == MOST_LIBRARIES || !is_python_known())
        return -1;
    strcpy(libraries[count], folder);
    atomic_store(&library_count, count + 1);
    if (known)
        return 0;
    known = ls_wiped_memory(sizeof *known);
    return known ? 0 : -1;
}
