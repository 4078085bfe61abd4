/* Which events are the two ends of a span, and which spans lie in each other. Rows come by group, then by time. */
#include "traces.h"

/* So many open spans are looked through for the one that an end belongs to. */
#define MOST_LOOKS 4096

/* The row of the end of each begin, and of the begin of each end; -1: it has none. An end belongs to the innermost open
 * begin of its name, one without a name to the innermost of all. `stack` has room for all rows. */
void lt_pairs(const int32_t *group, const int32_t *name, const uint8_t *begins, int64_t count, int64_t *other,
              int64_t *stack) {
    int64_t open = 0;
    for (int64_t row = 0; row < count; row++) {
        if (row && group[row] != group[row - 1])
            open = 0;
        other[row] = -1;
        if (begins[row]) {
            stack[open++] = row;
            continue;
        }
        int64_t least = open > MOST_LOOKS ? open - MOST_LOOKS : 0;
        for (int64_t at = open - 1; at >= least; at--) {
            int64_t begin = stack[at];
            if (name[row] >= 0 && name[begin] != name[row])
                continue;
            other[begin] = row;
            other[row] = begin;
            for (open--; at < open; at++)
                stack[at] = stack[at + 1];
            break;
        }
    }
}

#define MOST_LANES 64

/* The lane of each span of each group, in which those that do not end within the ones around them lie apart; spans come
 * by start, of two that start together the longer one first. `stack` has room for MOST_LANES times the deepest; what
 * finds no room is put into the last lane. Returns how many lanes there are at most. */
int64_t lt_lanes(const int32_t *group, const int64_t *start_ns, const int64_t *end_ns, int64_t count, int32_t *lane,
                 int64_t *stack, int64_t deepest) {
    int64_t open[MOST_LANES] = {0}, lanes = 0, most = 0;
    for (int64_t row = 0; row < count; row++) {
        if (row && group[row] != group[row - 1]) {
            lanes = 0;
            for (int64_t at = 0; at < MOST_LANES; at++)
                open[at] = 0;
        }
        int64_t at = 0;
        for (; at < MOST_LANES - 1; at++) {
            int64_t *ends = stack + at * deepest;
            while (open[at] && ends[open[at] - 1] <= start_ns[row])
                open[at]--;
            if (open[at] < deepest && (!open[at] || ends[open[at] - 1] >= end_ns[row])) {
                ends[open[at]++] = end_ns[row];
                break;
            }
        }
        lane[row] = (int32_t)at;
        lanes = at + 1 > lanes ? at + 1 : lanes;
        most = lanes > most ? lanes : most;
    }
    return most;
}
