/* Names to small numbers. The text of each name is written once into a shared segment, before its
 * first use; a table in private memory finds it again without a lock. */
#define _GNU_SOURCE
#include "../frameworks/names.h"
#include "agent.h"

#include <string.h>
#include <sys/mman.h>

#define FIRST_SEGMENT (256u << 10)
#define LARGEST_SEGMENT (16u << 20)
#define FIRST_TABLE (1u << 12)

typedef struct {
    _Atomic(const char *) text; /* published last; NULL: free */
    uint64_t hash;
    uint32_t id, kind, length;
} slot;

typedef struct {
    uint32_t mask, used;
    slot slots[];
} table;

static _Atomic(table *) current; /* older tables are left alone: a reader may still be in one */
void (*ls_name_learned)(const char *text);
static lf_names_header *segment;
static uint32_t segments, names;

static uint64_t hash_of(const char *text, uint32_t length) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ length;
    while (length >= 8) {
        uint64_t word;
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
        text += 8;
        length -= 8;
    }
    uint64_t rest = 0;
    memcpy(&rest, text, length);
    h = (h ^ rest) * 0xff51afd7ed558ccdu;
    return h ^ (h >> 29);
}

static slot *find(table *t, uint64_t hash, const char *text, uint32_t length) {
    for (uint64_t i = hash & t->mask;; i = (i + 1) & t->mask) {
        slot *s = &t->slots[i];
        const char *known = atomic_load_explicit(&s->text, memory_order_acquire);
        if (!known || (s->hash == hash && s->length == length && !memcmp(known, text, length)))
            return s;
    }
}

static table *new_table(uint32_t size) {
    size_t bytes = sizeof(table) + size * sizeof(slot);
    table *t = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (t == MAP_FAILED)
        return NULL;
    t->mask = size - 1;
    return t;
}

static table *grown(table *old) {
    table *t = new_table(old ? 2 * (old->mask + 1) : FIRST_TABLE);
    if (!t)
        return NULL;
    for (uint32_t i = 0; old && i <= old->mask; i++) {
        slot *from = &old->slots[i];
        if (!from->text)
            continue;
        slot *to = find(t, from->hash, from->text, from->length);
        to->hash = from->hash;
        to->id = from->id;
        to->kind = from->kind;
        to->length = from->length;
        to->text = from->text;
        t->used++;
    }
    atomic_store_explicit(&current, t, memory_order_release);
    return t;
}

static void fill_segment(void *memory, size_t bytes) {
    lf_names_header *h = memory;
    h->version = LF_LAYOUT_VERSION;
    h->segment = segments;
    h->capacity = (uint32_t)bytes - LF_NAMES_HEADER;
    h->process_start = ls.page->process_start;
    h->magic = LF_NAMES_MAGIC;
}

/* Room for an entry of `bytes` in the open segment, in a new one if it is full. */
static char *room(uint32_t bytes) {
    if (!segment || segment->used + bytes > segment->capacity) {
        uint32_t size = FIRST_SEGMENT << (segments < 6 ? segments : 6);
        if (size > LARGEST_SEGMENT)
            size = LARGEST_SEGMENT;
        lf_message message = {LF_MESSAGE_MAGIC, LF_SEND_NAMES, 0, segments, 0};
        lf_names_header *made = ls_new_shared("layerscope-names", size, message, fill_segment);
        if (!made)
            return NULL;
        /* A full segment stays mapped: the table points into it. A forked child starts anew. */
        madvise(made, size, MADV_DONTFORK);
        segments++;
        segment = made;
    }
    return (char *)segment + LF_NAMES_HEADER + segment->used;
}

/* Whether `text` fits `pattern`, in which `*` stands for any text. */
static int fits(const char *text, const char *pattern) {
    const char *star = NULL, *behind = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            behind = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++behind;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* What a span of a framework is, by the name that the framework itself gives it. */
uint32_t ls_name_kind(const char *text) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (fits(text, KINDS[i].pattern))
            return KINDS[i].kind;
    return LF_RANGE;
}

/* Whether it is one step of an optimizer. */
int ls_name_is_step(const char *text) {
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++)
        if (!strncmp(text, STEPS[i], strlen(STEPS[i])))
            return 1;
    return 0;
}

/* The numbers of the names of operators that do nothing but allocate; 0: it has not come. */
static _Atomic uint32_t allocators[sizeof ALLOCATORS / sizeof *ALLOCATORS];

static void note_allocator(const char *text, uint32_t id) {
    for (size_t i = 0; i < sizeof ALLOCATORS / sizeof *ALLOCATORS; i++)
        if (!strcmp(text, ALLOCATORS[i]))
            atomic_store_explicit(&allocators[i], id, memory_order_relaxed);
}

/* Whether who calls the operator of this name needs the memory that it allocates. */
int ls_name_only_allocates(uint32_t id) {
    for (size_t i = 0; i < sizeof ALLOCATORS / sizeof *ALLOCATORS; i++)
        if (atomic_load_explicit(&allocators[i], memory_order_relaxed) == id)
            return 1;
    return 0;
}

static void add(slot *s, const char *text, uint32_t length, uint64_t hash) {
    uint32_t bytes = 8 + ((length + 1 + 7) & ~7u); /* a NUL behind the text: it is compared as a string */
    char *entry = names + 1 < LF_NAMES_MOST ? room(bytes) : NULL;
    if (!entry) {
        __atomic_add_fetch(&ls.page->lost_names, 1, __ATOMIC_RELAXED);
        return;
    }
    uint32_t id = names + 1;
    LS_STORE(names, id);
    memcpy(entry, &id, 4);
    memcpy(entry + 4, &length, 4);
    memcpy(entry + 8, text, length);
    entry[8 + length] = 0;
    __atomic_store_n(&segment->used, segment->used + bytes, __ATOMIC_RELEASE);
    s->hash = hash;
    s->id = id;
    s->length = length;
    s->kind = ls_name_kind(entry + 8);
    note_allocator(entry + 8, id);
    atomic_store_explicit(&s->text, entry + 8, memory_order_release);
    if (ls_name_learned)
        ls_name_learned(entry + 8);
}

static void fill(ls_cached_name *into, const slot *s, const char *text, uint32_t length) {
    const char *known = s ? atomic_load_explicit(&s->text, memory_order_acquire) : NULL;
    into->pointer = known ? text : NULL;
    into->copy = known;
    into->id = known ? s->id : 0;
    into->kind = (uint16_t)(known ? s->kind : ls_name_kind(text));
    into->length = (uint16_t)(length + 1);
}

/* Fill `into` for `text` if it has a number already; whether it has. */
int ls_name_known(const char *text, ls_cached_name *into) {
    uint32_t length = (uint32_t)strnlen(text, LF_NAME_LIMIT);
    table *t = atomic_load_explicit(&current, memory_order_acquire);
    fill(into, t ? find(t, hash_of(text, length), text, length) : NULL, text, length);
    return into->copy != NULL;
}

/* Fill `into` for `text`. Without room for more names: id 0, and no pointer, so that it is asked again. */
void ls_name_find(const char *text, ls_cached_name *into) {
    uint32_t length = (uint32_t)strnlen(text, LF_NAME_LIMIT);
    uint64_t hash = hash_of(text, length);
    table *t = atomic_load_explicit(&current, memory_order_acquire);
    slot *s = t ? find(t, hash, text, length) : NULL;
    if (!s || !atomic_load_explicit(&s->text, memory_order_acquire)) {
        ls_lock(&ls.wiped->names_lock);
        t = atomic_load_explicit(&current, memory_order_relaxed);
        if (!t || t->used * 2 > t->mask)
            t = grown(t) ? current : t;
        s = t && t->used < t->mask ? find(t, hash, text, length) : NULL;
        if (s && !s->text) {
            add(s, text, length, hash);
            t->used += s->text != NULL;
        }
        ls_unlock(&ls.wiped->names_lock);
    }
    fill(into, s, text, length);
}

/* The same for a text of arguments. Those that are never the same again take no more than half of the room, which is
 * left to the names of spans. */
void ls_name_find_arguments(const char *text, ls_cached_name *into) {
    if (LS_LOAD(names) < LF_NAMES_MOST / 2)
        ls_name_find(text, into);
    else if (!ls_name_known(text, into))
        __atomic_add_fetch(&ls.page->lost_names, 1, __ATOMIC_RELAXED);
}

/* A process begins, or a forked child: it numbers its names anew in segments of its own. */
void ls_names_begin(void) {
    atomic_store(&current, NULL);
    segment = NULL;
    segments = names = 0;
    for (size_t i = 0; i < sizeof ALLOCATORS / sizeof *ALLOCATORS; i++)
        atomic_store(&allocators[i], 0);
}

/* The text of a number, slowly; NULL: there is none. */
const char *ls_name_text(uint32_t id) {
    const table *t = atomic_load_explicit(&current, memory_order_acquire);
    for (uint32_t i = 0; t && i <= t->mask; i++)
        if (t->slots[i].text && t->slots[i].id == id)
            return t->slots[i].text;
    return NULL;
}
