/* Sums of spans by key: what SpanTotals of ingest/totals.py adds up. */
#include "tables.h"

#include <string.h>

static void add(lc_sum *sum, int64_t dur_ns, int64_t self_ns) {
    sum->count++;
    sum->total_ns = (int64_t)((uint64_t)sum->total_ns + (uint64_t)dur_ns);
    sum->self_ns = (int64_t)((uint64_t)sum->self_ns + (uint64_t)self_ns);
    if (dur_ns < sum->least_ns)
        sum->least_ns = dur_ns;
    if (dur_ns > sum->most_ns)
        sum->most_ns = dur_ns;
}

/* Adds up spans by key, in the order in which the keys are first seen, into `keys` and `sums`, which have `room` for
 * half of 2^`bits`. `places`: 2^`bits` zeros. Returns how many keys there are, -1 where there is not enough room. */
LC_API int64_t lc_totals(const int64_t *key, const int64_t *dur_ns, const int64_t *self_ns, int64_t count,
                         int32_t *places, int64_t bits, int64_t *keys, lc_sum *sums) {
    int64_t used = 0, room = (int64_t)1 << bits >> 1;
    uint64_t last = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < count; i++) {
        uint64_t place = (uint64_t)key[i] * LC_SCATTER >> (64 - bits);
        while (places[place] && keys[places[place] - 1] != key[i])
            place = (place + 1) & last;
        if (!places[place]) {
            if (used == room)
                return -1;
            keys[used] = key[i];
            sums[used] = (lc_sum){0, 0, 0, INT64_MAX, 0};
            places[place] = (int32_t)++used;
        }
        add(&sums[places[place] - 1], dur_ns[i], self_ns[i]);
    }
    return used;
}
