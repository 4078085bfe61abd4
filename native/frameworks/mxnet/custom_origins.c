/* Where an operator written in Python comes from: MXNet does not say which `Custom` its code runs for, but it has the
 * code's object made in the call that submits it, and again for the next one. A network that was hybridized with static
 * memory, and a symbol, keep the object: then its module is known, and of its first use also when and by which line.
 *
 * The table has a fixed size; what is known of the oldest objects is forgotten. */
#define _GNU_SOURCE
#include "mxnet.h"

#include "../../agent/python_line.h"

#define BUCKETS 512u
#define PLACES 8u

typedef struct {
    const void *operator;
    const char *name;
    ls_mxnet_origin origin;
} place;

typedef struct {
    uint32_t next;
    place places[PLACES];
} bucket;

/* BUCKETS of them; a forked child finds them zeroed. NULL: there is no memory. */
static bucket *all;

void ls_mxnet_origins_begin(void) {
    if (!all)
        all = ls_wiped_memory(BUCKETS * sizeof(bucket));
}

static bucket *bucket_of(const void *operator) {
    uint64_t hash = ((uint64_t)(uintptr_t)operator >> 4) * 0x9e3779b97f4a7c15u;
    return &all[hash >> 55];
}
_Static_assert(BUCKETS == 1u << (64 - 55), "buckets");

static place *find(bucket *b, const void *operator) {
    for (uint32_t i = 0; i < PLACES; i++)
        if (b->places[i].operator == operator)
            return &b->places[i];
    return NULL;
}

/* Where this thread was when it made its last object. */
static __thread ls_mxnet_origin made_at;

/* An object has been made here; the code that learns what it is has not begun. */
void ls_mxnet_custom_makes(void) {
    const ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    made_at = (ls_mxnet_origin){.module = t ? t->module : 0};
    if (t && t->invoke_depth)
        made_at = (ls_mxnet_origin){ls_ticks(), t->module, ls_python_line(), ls_mxnet_window_of(t), t->track};
}

/* The object of a custom operator called `name`; `is_new`: it has just been made on this thread. */
void ls_mxnet_custom_made(const void *operator, const char *name, int is_new) {
    if (!all)
        return;
    bucket *b = bucket_of(operator);
    place *p = find(b, operator); /* of an older object at this address */
    if (!p)
        p = &b->places[b->next++ % PLACES];
    *p = (place){operator, name, {0}};
    if (is_new)
        p->origin = made_at;
}

/* What it is called, NULL: not known. */
const char *ls_mxnet_custom_called(const void *operator) {
    const place *p = all ? find(bucket_of(operator), operator) : NULL;
    return p ? p->name : NULL;
}

/* The code of a custom operator is about to run. */
ls_mxnet_origin ls_mxnet_custom_origin(const void *operator, int is_forward) {
    place *p = all ? find(bucket_of(operator), operator) : NULL;
    if (!p)
        return (ls_mxnet_origin){0};
    ls_mxnet_origin found = p->origin;
    if (!is_forward)
        return (ls_mxnet_origin){.module = found.module};
    p->origin = (ls_mxnet_origin){.module = found.module};
    return found;
}
