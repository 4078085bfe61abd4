/* Tasks, frames, events and counters that a program in C makes by MXNet's profiler, as ranges and counters of the
 * recording. MXNet's handles are addresses; what they are called is kept here from the call that makes them on. */
#define _GNU_SOURCE
#include "program.h"

#include "../../agent/client.h"

#include <stdlib.h>

#define CHAINS 256u
#define MOST_OBJECTS (1u << 16)

typedef struct object {
    const void *handle;
    const char *text; /* its name, and in a second line its domain */
    int what;
    uint64_t range[2]; /* as of ls_range_begin; 0: none is open */
    int64_t value;
    struct object *next;
} object;

static object *chains[CHAINS];
static uint32_t object_count;

static object **chain_of(const void *handle) {
    return &chains[((uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u) >> 56];
}
_Static_assert(CHAINS == 1u << (64 - 56), "chains");

/* With the lock held. */
static object *find(const void *handle) {
    object *one = *chain_of(handle);
    while (one && one->handle != handle)
        one = one->next;
    return one;
}

/* The text of something called `name` in the domain with this handle, NULL: in none. */
static const char *text_of(const void *domain, const char *name) {
    char text[LF_NAME_LIMIT + 2];
    ls_lock(&ls.wiped->labels_lock);
    const object *around = domain ? find(domain) : NULL;
    const ls_domain named = {.name = around ? around->text : NULL};
    ls_unlock(&ls.wiped->labels_lock);
    ls_text_in_domain(text, name ? name : "(no name)", &named);
    return ls_label_make(text)->text;
}

void ls_mxnet_object_made(const void *handle, int what, const void *domain, const char *name) {
    const char *text = text_of(domain, name);
    object **chain = chain_of(handle);
    ls_lock(&ls.wiped->labels_lock);
    object *one = find(handle); /* a handle that is given out again was destroyed unseen */
    object *made = one || object_count >= MOST_OBJECTS ? NULL : malloc(sizeof *made);
    const object is = {.handle = handle, .text = text, .what = what};
    if (one) {
        object *next = one->next;
        *one = is;
        one->next = next;
    } else if (made) {
        *made = is;
        made->next = *chain;
        *chain = made; /* a fork may fall anywhere: it copies a whole chain */
        object_count++;
    }
    ls_unlock(&ls.wiped->labels_lock);
}

/* The range of an object, which is forgotten. */
static void take_range(object *one, uint64_t range[2]) {
    range[0] = one ? one->range[0] : 0;
    range[1] = one ? one->range[1] : 0;
    if (one)
        one->range[0] = 0;
}

void ls_mxnet_object_gone(const void *handle) {
    uint64_t range[2];
    ls_lock(&ls.wiped->labels_lock);
    object *one = find(handle), **link = chain_of(handle);
    take_range(one, range);
    if (one) {
        while (*link != one)
            link = &(*link)->next;
        *link = one->next;
        object_count--;
    }
    ls_unlock(&ls.wiped->labels_lock);
    free(one);
    if (range[0])
        ls_range_end(range);
}

/* One that starts anew before it stops was a moment. */
void ls_mxnet_object_starts(const void *handle) {
    uint64_t before[2], range[2] = {0, 0};
    ls_lock(&ls.wiped->labels_lock);
    object *one = find(handle);
    const char *text = one && one->what > 0 ? one->text : NULL;
    int what = one ? one->what : 0;
    take_range(one, before);
    ls_unlock(&ls.wiped->labels_lock);
    if (before[0])
        ls_range_was_moment(before);
    if (!text || ls_range_begin(text, what, range))
        return;
    ls_lock(&ls.wiped->labels_lock);
    if ((one = find(handle))) {
        one->range[0] = range[0];
        one->range[1] = range[1];
    }
    ls_unlock(&ls.wiped->labels_lock);
}

void ls_mxnet_object_stops(const void *handle) {
    uint64_t range[2];
    ls_lock(&ls.wiped->labels_lock);
    take_range(find(handle), range);
    ls_unlock(&ls.wiped->labels_lock);
    if (range[0])
        ls_range_end(range);
}

/* A counter has this value now, or one more by it. */
void ls_mxnet_object_counts(const void *handle, int is_change, int64_t value) {
    ls_lock(&ls.wiped->labels_lock);
    object *one = find(handle);
    const char *text = one && one->what == LS_MXNET_COUNTER ? one->text : NULL;
    if (text)
        value = one->value = is_change ? (int64_t)((uint64_t)one->value + (uint64_t)value) : value;
    ls_unlock(&ls.wiped->labels_lock);
    if (text)
        ls_counter(text, value);
}

void ls_mxnet_object_marks(const void *domain, const char *name) { ls_mark(text_of(domain, name), LF_MARK_MARKER, 0); }
