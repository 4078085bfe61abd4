/* Parents and self time of the spans of one track, depth by depth: the passes over all spans of ingest/parents.py,
 * which has the definitions, and does what remains where spans cross or a parent is not there. */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

/* Puts `count` rows in the order of their starts; those that start together stay as they are. */
static void merge_sort(int64_t *rows, int64_t *spare, int64_t count, const int64_t *start) {
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t low = 0; low < count; low += 2 * width) {
            int64_t middle = low + width < count ? low + width : count;
            int64_t high = low + 2 * width < count ? low + 2 * width : count;
            int64_t left = low, right = middle;
            for (int64_t i = low; i < high; i++) {
                int from_left = left < middle && (right >= high || start[rows[left]] <= start[rows[right]]);
                spare[i] = rows[from_left ? left++ : right++];
            }
        }
        memcpy(rows, spare, (size_t)count * sizeof *rows);
    }
}

static int is_sorted(const int64_t *rows, int64_t count, const int64_t *start) {
    for (int64_t i = 1; i < count; i++)
        if (start[rows[i]] < start[rows[i - 1]])
            return 0;
    return 1;
}

/* The rows of a batch by depth, below `levels`, and start; `bounds[depth]`: where those of a depth begin. Returns the
 * number of rows, -1 without memory. */
LC_API int64_t lc_sort(const int32_t *depth, const int64_t *start, int64_t count, int64_t levels, int64_t *rows,
                       int64_t *bounds) {
    memset(bounds, 0, (size_t)(levels + 1) * sizeof *bounds);
    for (int64_t row = 0; row < count; row++)
        if (depth[row] >= 0 && depth[row] < levels)
            bounds[depth[row]]++;
    int64_t total = 0;
    for (int64_t level = 0; level <= levels; level++) {
        int64_t of_level = bounds[level];
        bounds[level] = total;
        total += of_level;
    }
    for (int64_t row = 0; row < count; row++)
        if (depth[row] >= 0 && depth[row] < levels)
            rows[bounds[depth[row]]++] = row;
    memmove(bounds + 1, bounds, (size_t)levels * sizeof *bounds);
    bounds[0] = 0;
    int64_t *spare = NULL;
    for (int64_t level = 0; level < levels; level++) {
        int64_t *mine = rows + bounds[level], of_level = bounds[level + 1] - bounds[level];
        if (is_sorted(mine, of_level, start))
            continue;
        if (!spare && !(spare = malloc((size_t)total * sizeof *spare)))
            return -1;
        merge_sort(mine, spare, of_level, start);
    }
    free(spare);
    return total;
}

/* The parents of the spans of a depth: of those one depth up, by start, the last one that starts before it, if it has
 * not ended then. `place`: where that lies, -1: all start later; `known`: whether it is the parent. Around the others
 * there is nothing yet. Returns how many have no parent here. */
LC_API int64_t lc_adopt(const int64_t *parent_start, const int64_t *parent_end, const int64_t *parent_key,
                        const int32_t *parent_nearest, int64_t parents, const int64_t *start, const int64_t *rows,
                        int64_t count, int64_t layers, int64_t *parent, int32_t *around, int64_t *place,
                        uint8_t *known) {
    int64_t at = -1, unknown = 0;
    for (int64_t i = 0; i < count; i++, around += layers) {
        while (at + 1 < parents && parent_start[at + 1] <= start[i])
            at++;
        place[i] = at;
        known[i] = at >= 0 && parent_end[at] >= start[i];
        if (known[i]) {
            parent[rows[i]] = parent_key[at];
            memcpy(around, parent_nearest + at * layers, (size_t)layers * sizeof *around);
            continue;
        }
        unknown++;
        for (int64_t layer = 0; layer < layers; layer++)
            around[layer] = LC_NONE;
    }
    return unknown;
}

/* Takes the time of the spans of a depth from the self time of the nearest span of their layer around them. `left`: the
 * places of those that lie in a span that has not ended, or outlive theirs; returns how many. */
LC_API int64_t lc_charge(const int64_t *rows, const int64_t *end, const int64_t *from, int64_t count,
                         const int32_t *around, int64_t layers, const int8_t *layer, const int64_t *batch_end,
                         int64_t batch, int64_t *self_ns, int64_t *left) {
    int64_t unusual = 0;
    for (int64_t i = 0; i < count; i++, around += layers) {
        int64_t of = layer[rows[i]];
        int64_t target = of >= 0 && of < layers ? around[of] : LC_NONE;
        if (target == LC_NONE || target >= batch)
            continue;
        if (target < LC_NONE) {
            left[unusual++] = i;
            continue;
        }
        int64_t until = end[i] < batch_end[target] ? end[i] : batch_end[target];
        int64_t inside = (int64_t)((uint64_t)until - (uint64_t)from[i]);
        if (inside > 0)
            self_ns[target] = (int64_t)((uint64_t)self_ns[target] - (uint64_t)inside);
        if (end[i] > batch_end[target])
            left[unusual++] = i;
    }
    return unusual;
}

/* By layer, the nearest span that is at least the span itself: what lies around it, and itself in its own layer. */
LC_API void lc_nearest(const int64_t *rows, int64_t count, const int32_t *around, int64_t layers, const int8_t *layer,
                       int32_t *nearest) {
    memcpy(nearest, around, (size_t)(count * layers) * sizeof *nearest);
    for (int64_t i = 0; i < count; i++) {
        int64_t of = layer[rows[i]];
        if (of >= 0 && of < layers)
            nearest[i * layers + of] = (int32_t)rows[i];
    }
}

/* How deep spans lie in each other, which come by track, then start, of two that start together the outer one first;
 * -1: two of them cross. `open` has room for all. */
LC_API int64_t lc_depths(const int32_t *track, const int64_t *start, const int64_t *end, int64_t count,
                         int64_t *open, int32_t *depth) {
    int64_t deep = 0;
    for (int64_t i = 0; i < count; i++) {
        if (i && track[i] != track[i - 1])
            deep = 0;
        while (deep && open[deep - 1] <= start[i])
            deep--;
        if (deep && open[deep - 1] < end[i])
            return -1;
        depth[i] = (int32_t)deep;
        open[deep++] = end[i];
    }
    return 0;
}
