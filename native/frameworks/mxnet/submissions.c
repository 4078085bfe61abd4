/* Which submission an execution belongs to. The engine executes an operator on another thread, later, and of one that
 * was submitted twice the first submission is executed first. So what is known of each waits here, in the order of
 * submission, under the address of the operator.
 *
 * The table has a fixed size. A submission for which there is no room is only counted, and no later one of its bucket
 * is kept before it was executed: an execution is linked to the right submission or to none. */
#define _GNU_SOURCE
#include "mxnet.h"

#include <string.h>

#define BUCKETS 8192u
#define PLACES 22u /* a bucket is whole cache lines, and its first place lies in the line of its lock */
#define CACHE_LINE 64u

typedef struct {
    const void *operator;
    ls_mxnet_submission submission;
} place;

typedef struct {
    _Atomic uint32_t lock;
    uint32_t used, unknown; /* unknown: submissions without a place that were not executed yet */
    uint32_t pad;
    place places[PLACES];
} bucket;
_Static_assert(sizeof(bucket) % CACHE_LINE == 0, "a bucket");

/* A forked child finds it zeroed: the engine's threads are not in it. */
typedef struct {
    _Atomic uint32_t submitted;
    _Alignas(CACHE_LINE) bucket buckets[BUCKETS];
} submissions;

static submissions *all;

static bucket *bucket_of(const void *operator) {
    uint64_t hash = ((uint64_t)(uintptr_t)operator >> 4) * 0x9e3779b97f4a7c15u;
    return &all->buckets[hash >> 51];
}
_Static_assert(BUCKETS == 1u << (64 - 51), "buckets");

/* Make the table, or empty the one that is there. 0: done.
 *
 * It is emptied where recording goes on after a pause. Of an operator that is made once and submitted again and again, an
 * execution that was submitted in the pause is then taken for the first one after it; others are linked to none. */
int ls_mxnet_submissions_begin(void) {
    for (uint32_t i = 0; all && i < BUCKETS; i++) {
        ls_lock(&all->buckets[i].lock);
        all->buckets[i].used = all->buckets[i].unknown = 0;
        ls_unlock(&all->buckets[i].lock);
    }
    if (all)
        return 0;
    all = ls_wiped_memory(sizeof *all);
    return all ? 0 : -1;
}

/* `operator` is about to be submitted. The number of its submission, which `what` does not have yet. */
int32_t ls_mxnet_submit(const void *operator, ls_mxnet_submission what) {
    what.number = (int32_t)(atomic_fetch_add(&all->submitted, 1) & INT32_MAX);
    bucket *b = bucket_of(operator);
    ls_lock(&b->lock);
    if (b->unknown || b->used == PLACES)
        b->unknown++;
    else
        b->places[b->used++] = (place){operator, what};
    ls_unlock(&b->lock);
    return what.number;
}

/* `operator` is about to be executed: its oldest submission, which is forgotten. */
ls_mxnet_submission ls_mxnet_take(const void *operator) {
    ls_mxnet_submission found = {.number = -1};
    bucket *b = bucket_of(operator);
    ls_lock(&b->lock);
    uint32_t i = 0;
    while (i < b->used && b->places[i].operator != operator)
        i++;
    if (i < b->used) {
        found = b->places[i].submission;
        if (--b->used > i)
            memmove(&b->places[i], &b->places[i + 1], (b->used - i) * sizeof(place));
    } else if (b->unknown) {
        b->unknown--;
    }
    ls_unlock(&b->lock);
    return found;
}
