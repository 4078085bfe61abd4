/* Parents and self time of spans that come in the order of their ends, none crossing another one: nearly all. What
 * ingest/parents.py says of them, in one pass. */
#include "tables.h"

/* What is known of a depth. In memory `inside` has one entry for each layer. */
typedef struct {
    int64_t latest_end;  /* of the spans at this depth and those further out */
    int64_t awaited;     /* the key of the span that is open here and has children already, LC_NONE: there is none */
    int64_t first_child; /* the start of the first of them */
    int64_t newest;      /* the last row that came, LC_NONE: none */
    int64_t orphan;      /* the last row whose parent has not come; its `parent` is the row before it */
    int64_t inside[];    /* by layer: the time of what lies in the span that is open here */
} depth_state;

#define STATE_FIELDS 5

typedef struct {
    int64_t *states, layers, levels;
} open_spans;

static depth_state *at(const open_spans *open, int64_t depth) {
    return (depth_state *)(open->states + depth * (STATE_FIELDS + open->layers));
}

/* Gives the rows that wait at a depth their parent, which may not have begun after `start`. */
static int adopt(depth_state *children, int64_t key, int64_t start, const int64_t *starts, int64_t *parent) {
    int64_t row = children->orphan;
    children->orphan = LC_NONE;
    while (row != LC_NONE) {
        int64_t next = parent[row];
        if (starts[row] < start)
            return 0;
        parent[row] = key;
        row = next;
    }
    return 1;
}

/* The time of a span that has ended goes to the one that is open around it; what is left is its self time. */
static int64_t close_span(const open_spans *open, int64_t depth, int64_t layer, int64_t dur) {
    int64_t *inside = at(open, depth)->inside;
    int64_t self = dur - inside[layer];
    inside[layer] = dur;
    for (int64_t of = 0; of < open->layers; of++) {
        if (depth)
            at(open, depth - 1)->inside[of] += inside[of];
        inside[of] = 0;
    }
    return self > 0 ? self : 0;
}

/* Those whose parents have not come get the keys of these, new ones from `next_key` on; returns how many are new. */
static int64_t await(const open_spans *open, int64_t next_key, const int64_t *start, int64_t *parent) {
    int64_t fresh = 0;
    for (int64_t depth = 1; depth < open->levels; depth++) {
        depth_state *children = at(open, depth), *around = at(open, depth - 1);
        if (children->orphan == LC_NONE)
            continue;
        if (around->awaited == LC_NONE) {
            around->awaited = next_key + fresh++;
            around->first_child = INT64_MAX;
        }
        for (int64_t row = children->orphan; row != LC_NONE; row = parent[row])
            if (start[row] < around->first_child)
                around->first_child = start[row];
        adopt(children, around->awaited, INT64_MIN, start, parent);
    }
    return fresh;
}

/* Keys from `first_key` on, parents and self times of a batch; `states`: of `levels` depths. Returns how many keys more
 * were taken for parents that have not come, -1 where the spans are not as they must be: then nothing is known. */
LC_API int64_t lc_nest(const int64_t *start, const int64_t *end, const int32_t *depth, const int8_t *layer,
                       int64_t count, int64_t first_key, int64_t *states, int64_t levels, int64_t layers, int64_t *key,
                       int64_t *parent, int64_t *self_ns) {
    open_spans open = {states, layers, levels};
    if (!count || levels < 1)
        return -1;
    int64_t latest = at(&open, levels - 1)->latest_end, before = depth[0];
    for (int64_t row = 0; row < count; row++) {
        int64_t here = depth[row];
        if (here < 0 || here >= levels || layer[row] < 0 || layer[row] >= layers || end[row] < latest)
            return -1;
        for (int64_t inner = before + 1; inner <= here; inner++)
            at(&open, inner)->latest_end = latest;
        depth_state *mine = at(&open, here);
        if (before > here + 1 || start[row] <= mine->latest_end || start[row] > end[row])
            return -1;
        key[row] = first_key + row;
        if (mine->awaited != LC_NONE) {
            if (start[row] > mine->first_child || end[row] < mine->first_child)
                return -1;
            key[row] = mine->awaited;
            mine->awaited = LC_NONE;
        }
        if (here + 1 < levels && !adopt(at(&open, here + 1), key[row], start[row], start, parent))
            return -1;
        self_ns[row] = close_span(&open, here, layer[row], end[row] - start[row]);
        parent[row] = here ? mine->orphan : LC_NONE;
        mine->orphan = here ? row : LC_NONE;
        mine->newest = row;
        mine->latest_end = latest = end[row];
        before = here;
    }
    return await(&open, first_key + count, start, parent);
}
