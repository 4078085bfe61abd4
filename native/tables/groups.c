/* Spans that a summary need not tell apart: what analyse/span_groups.py adds up. */
#include "tables.h"

typedef struct {
    const int32_t *track, *kind, *name, *module, *flags;
} columns;

static uint64_t hash_of(const columns *c, int64_t row) {
    uint64_t where = (uint64_t)(uint32_t)c->track[row] << 32 | (uint32_t)c->module[row];
    uint64_t what = (uint64_t)(uint32_t)c->name[row] << 24 ^ (uint64_t)(uint32_t)c->kind[row] << 16 ^ (uint32_t)c->flags[row];
    return (where * LC_SCATTER ^ what) * LC_SCATTER;
}

static int is_same(const columns *c, int64_t a, int64_t b) {
    return c->name[a] == c->name[b] && c->kind[a] == c->kind[b] && c->track[a] == c->track[b]
        && c->module[a] == c->module[b] && c->flags[a] == c->flags[b];
}

/* The first row of each group of rows that are the same in all columns, in the order in which they are first seen, into
 * `firsts`, and the sums of the group into `sums`; both have `room` for half of 2^`bits`. `places`: 2^`bits` zeros.
 * Returns how many groups there are, -1 where there is not enough room. */
LC_API int64_t lc_groups(const int32_t *track, const int32_t *kind, const int32_t *name, const int32_t *module,
                         const int32_t *flags, const int64_t *self_ns, const int64_t *dur_ns, const int32_t *weight,
                         int64_t count, int32_t *places, int64_t bits, int64_t *firsts, lc_group *sums) {
    const columns c = {track, kind, name, module, flags};
    int64_t used = 0, room = (int64_t)1 << bits >> 1;
    uint64_t last = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < count; i++) {
        uint64_t place = hash_of(&c, i) >> (64 - bits);
        while (places[place] && !is_same(&c, firsts[places[place] - 1], i))
            place = (place + 1) & last;
        if (!places[place]) {
            if (used == room)
                return -1;
            firsts[used] = i;
            sums[used] = (lc_group){0, 0, 0};
            places[place] = (int32_t)++used;
        }
        lc_group *sum = &sums[places[place] - 1];
        uint64_t times = (uint64_t)(int64_t)weight[i];
        sum->self_ns = (int64_t)((uint64_t)sum->self_ns + (uint64_t)self_ns[i] * times);
        sum->dur_ns = (int64_t)((uint64_t)sum->dur_ns + (uint64_t)dur_ns[i] * times);
        sum->calls += weight[i];
    }
    return used;
}
