/* Which operator made the node of a backward function: what ingest/autograd_links.py defines. */
#include "tables.h"

/* The backward functions by what the framework calls their nodes. `places`: 2^bits, 1 + the place in `keys`, 0: free. */
typedef struct {
    int32_t *places;
    int64_t bits, used;
    int64_t *keys, *makers;
} node_table;

/* Where a key is in the table, or would be. */
static uint64_t place_of(const node_table *nodes, int64_t key) {
    uint64_t last = ((uint64_t)1 << nodes->bits) - 1;
    uint64_t place = (uint64_t)key * LC_SCATTER >> (64 - nodes->bits);
    while (nodes->places[place] && nodes->keys[nodes->places[place] - 1] != key)
        place = (place + 1) & last;
    return place;
}

/* What the framework calls the node of a row: it numbers the threads of each process, and the nodes of each thread. */
static int64_t node_of(const lc_autograd *spans, int64_t row) {
    uint64_t process = (uint64_t)(int64_t)spans->process_of[spans->track[row]];
    uint64_t thread = (process << 16) + (uint64_t)(int64_t)spans->thread[row];
    return (int64_t)(thread << 32 | (uint32_t)spans->seq[row]);
}

static int is_numbered(const lc_autograd *spans, int64_t row) {
    return spans->seq[row] >= 0 && spans->thread[row] >= 0;
}

/* Of the operators with one number the one that ended last; of those that ended together, the first to start. */
static int is_later(const lc_autograd *spans, int64_t row, int64_t than) {
    int64_t end = spans->start[row] + spans->dur[row], other = spans->start[than] + spans->dur[than];
    return end > other || (end == other && spans->start[row] < spans->start[than]);
}

/* The row of the operator of each of the rows `backward`, LC_NONE where none is known. `places`: 2^`bits` zeros, more
 * than there are backward functions; `keys` and `makers` have room for one of each. */
LC_API void lc_link(const uint8_t *kind, const int32_t *seq, const int32_t *thread, const int32_t *track,
                    const int64_t *start, const int64_t *dur, int64_t count, const int32_t *process_of,
                    int64_t operator_kind, const int64_t *backward, int64_t wanted, int32_t *places, int64_t bits,
                    int64_t *keys, int64_t *makers, int64_t *found) {
    lc_autograd spans = {seq, thread, track, process_of, start, dur};
    node_table nodes = {places, bits, 0, keys, makers};
    for (int64_t i = 0; i < wanted; i++) {
        if (!is_numbered(&spans, backward[i]))
            continue;
        int64_t key = node_of(&spans, backward[i]);
        uint64_t place = place_of(&nodes, key);
        if (places[place])
            continue;
        keys[nodes.used] = key;
        makers[nodes.used] = LC_NONE;
        places[place] = (int32_t)++nodes.used;
    }
    for (int64_t row = 0; row < count; row++) {
        if (kind[row] != operator_kind || !is_numbered(&spans, row))
            continue;
        int32_t at = places[place_of(&nodes, node_of(&spans, row))];
        if (at && (makers[at - 1] == LC_NONE || is_later(&spans, row, makers[at - 1])))
            makers[at - 1] = row;
    }
    for (int64_t i = 0; i < wanted; i++) {
        int64_t maker = LC_NONE;
        if (is_numbered(&spans, backward[i]))
            maker = makers[places[place_of(&nodes, node_of(&spans, backward[i]))] - 1];
        found[i] = maker != LC_NONE && start[maker] <= start[backward[i]] ? maker : LC_NONE;
    }
}
