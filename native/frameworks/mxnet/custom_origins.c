/* Where an operator written in Python comes from: MXNet does not say which `Custom` its code runs for, but it has the
 * code's object made in the call that submits it, and again for the next one. A network that was hybridized with static
 * memory, and a symbol, keep the object: then its module is known, and of its first use also when and by which line.
 *
 * A program may give the same object out again and again. Its code then runs for each in the order in which they were
 * submitted, and a backward pass has the module that all were made in, or none.
 *
 * The table has a fixed size; what is known of the oldest objects is forgotten. */
#define _GNU_SOURCE
#include "mxnet.h"

#include "../../agent/python_line.h"

#include <string.h>

#define BUCKETS 512u
#define PLACES 8u
#define WAITING 4u /* operators of one object that are submitted and have not run; of more, the oldest are forgotten */

typedef struct {
    const void *operator;
    const char *name;
    uint32_t module; /* of all that it was made for, 0: none, or several */
    uint32_t waiting;
    ls_mxnet_origin origins[WAITING]; /* of those that wait, the oldest first */
} place;

typedef struct {
    _Atomic uint32_t lock;
    uint32_t next;
    place places[PLACES];
} bucket;

/* BUCKETS of them; a forked child finds them zeroed. NULL: there is no memory. */
static bucket *all;

void ls_mxnet_origins_begin(void) {
    if (!all)
        all = ls_wiped_memory(BUCKETS * sizeof(bucket));
}

static bucket *lock_bucket_of(const void *operator) {
    uint64_t hash = ((uint64_t)(uintptr_t)operator >> 4) * 0x9e3779b97f4a7c15u;
    bucket *b = &all[hash >> 55];
    ls_lock(&b->lock);
    return b;
}
_Static_assert(BUCKETS == 1u << (64 - 55), "buckets");

static place *find(bucket *b, const void *operator) {
    for (uint32_t i = 0; i < PLACES; i++)
        if (b->places[i].operator == operator)
            return &b->places[i];
    return NULL;
}

static ls_mxnet_origin take_oldest(place *p) {
    ls_mxnet_origin oldest = p->origins[0];
    memmove(&p->origins[0], &p->origins[1], --p->waiting * sizeof oldest);
    return oldest;
}

/* Where this thread was when it made its last object; and that object, until its operator is submitted. */
static __thread ls_mxnet_origin made_at;
static __thread const void *unsubmitted;

/* An object has been made here; the code that learns what it is has not begun. */
void ls_mxnet_custom_makes(void) {
    const ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    made_at = (ls_mxnet_origin){.module = t ? t->module : 0};
    if (t && t->invoke_depth)
        made_at = (ls_mxnet_origin){ls_ticks(), t->module, ls_python_line(), ls_mxnet_window_of(t), t->track};
}

static void is_made(place *p, int how) {
    if (how == LS_MXNET_MADE_AGAIN && p->module != made_at.module)
        p->module = 0;
    if (how == LS_MXNET_MADE)
        p->module = made_at.module;
    if (!made_at.submitted)
        return;
    if (p->waiting == WAITING)
        take_oldest(p);
    p->origins[p->waiting++] = made_at;
    unsubmitted = p->operator;
}

/* The object of a custom operator called `name`; `how` it was learned. */
void ls_mxnet_custom_made(const void *operator, const char *name, int how) {
    if (!all)
        return;
    bucket *b = lock_bucket_of(operator);
    place *p = find(b, operator);
    if (!p || how != LS_MXNET_MADE_AGAIN) { /* of an older object at this address */
        p = p ? p : &b->places[b->next++ % PLACES];
        *p = (place){.operator = operator, .name = name};
        how = how == LS_MXNET_MADE_AGAIN ? LS_MXNET_MADE : how;
    }
    if (how != LS_MXNET_MET)
        is_made(p, how);
    ls_unlock(&b->lock);
}

/* This thread submits an operator now, at `at`: the one that it has made an object for, if it is one. */
void ls_mxnet_custom_submits(const char *name, uint64_t at) {
    static const char custom[] = "Custom"; /* behind which its attributes may stand */
    if (!unsubmitted || !name || strncmp(name, custom, sizeof custom - 1))
        return;
    bucket *b = lock_bucket_of(unsubmitted);
    place *p = find(b, unsubmitted);
    if (p && p->waiting)
        p->origins[p->waiting - 1].submitted = at;
    ls_unlock(&b->lock);
    unsubmitted = NULL;
}

/* What it is called, NULL: not known. */
const char *ls_mxnet_custom_called(const void *operator) {
    if (!all)
        return NULL;
    bucket *b = lock_bucket_of(operator);
    const place *p = find(b, operator);
    const char *name = p ? p->name : NULL;
    ls_unlock(&b->lock);
    return name;
}

/* The code of a custom operator is about to run. */
ls_mxnet_origin ls_mxnet_custom_origin(const void *operator, int is_forward) {
    ls_mxnet_origin found = {0};
    if (!all)
        return found;
    bucket *b = lock_bucket_of(operator);
    place *p = find(b, operator);
    if (p && p->waiting && is_forward)
        found = take_oldest(p);
    else if (p)
        found.module = p->module;
    ls_unlock(&b->lock);
    return found;
}
