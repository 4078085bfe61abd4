/* What analyse/timeline asks of all spans at once: their parents, and statistics of those that are selected. */
#include "tables.h"

#include <stdlib.h>
#include <string.h>

/* A number of a column whose numbers have `width` bytes; those of eight have a sign. */
static inline int64_t number_at(const uint8_t *column, int64_t width, int64_t row) {
    switch (width) {
    case 1:
        return column[row];
    case 2:
        return ((const uint16_t *)column)[row];
    case 4:
        return ((const uint32_t *)column)[row];
    default:
        return ((const int64_t *)column)[row];
    }
}

/* The row of the span that each one lies in, -1: none, as analyse/self_times.py says. Rows are by track, start and
 * depth; `open` has room for a row of each depth. */
LC_API void lc_parents(const int32_t *track, const int32_t *depth, const int64_t *start, const int64_t *dur,
                       int64_t count, int64_t *open, int64_t levels, int32_t *parent) {
    for (int64_t level = 0; level < levels; level++)
        open[level] = -1;
    for (int64_t row = 0; row < count; row++) {
        if (depth[row] < 0) {
            parent[row] = -1;
            continue;
        }
        int64_t around = depth[row] > 0 ? open[depth[row] - 1] : -1;
        int is_open = around >= 0 && track[around] == track[row] && start[around] + dur[around] >= start[row];
        parent[row] = is_open ? (int32_t)around : -1;
        open[depth[row]] = row;
    }
}

/* The value of a place of the sorted ones from `low` to `high`, which it moves around. */
#define RANKED(name, number)                                                             \
    static int64_t name(number *values, int64_t low, int64_t high, int64_t place) {      \
        while (low < high) {                                                             \
            number middle = values[low + (high - low) / 2];                              \
            int64_t left = low, right = high;                                            \
            while (left <= right) {                                                      \
                while (values[left] < middle)                                            \
                    left++;                                                              \
                while (values[right] > middle)                                           \
                    right--;                                                             \
                if (left > right)                                                        \
                    break;                                                               \
                number moved = values[left];                                             \
                values[left++] = values[right];                                          \
                values[right--] = moved;                                                 \
            }                                                                            \
            if (place <= right)                                                          \
                high = right;                                                            \
            else if (place >= left)                                                      \
                low = left;                                                              \
            else                                                                         \
                break;                                                                   \
        }                                                                                \
        return (int64_t)values[place];                                                   \
    }

RANKED(ranked, int64_t)
RANKED(ranked_short, uint32_t)

/* The place of the smallest value that a part of all do not exceed. */
static int64_t place_of_part(double part, int64_t count) {
    double exact = part * (double)count;
    int64_t place = (int64_t)exact;
    if ((double)place == exact)
        place--;
    return place > 0 ? place : 0;
}

typedef struct {
    const uint8_t *cls, *dur, *self, *step, *kept;
    int64_t cls_bytes, dur_bytes, self_bytes, step_bytes, first_step, last_step;
    const int32_t *group_of;
    const int64_t *ranges;
    int64_t range_count, is_by_range;
} selection;

/* The group of a row of a range, -1: the selection does not keep it. */
static inline __attribute__((always_inline)) int64_t group_at(const selection *s, int64_t range, int64_t row,
                                                              int64_t cls_bytes) {
    int64_t cls = number_at(s->cls, cls_bytes, row);
    if (!s->kept[cls])
        return -1;
    if (s->step_bytes) {
        int64_t step = number_at(s->step, s->step_bytes, row) - 1;
        if (step < s->first_step || step >= s->last_step)
            return -1;
    }
    return s->is_by_range ? range : s->group_of[cls];
}

/* How many rows each group has. */
static inline __attribute__((always_inline)) void count_rows(const selection *s, int64_t *sums, int64_t cls_bytes) {
    for (int64_t range = 0; range < s->range_count; range++) {
        for (int64_t row = s->ranges[2 * range]; row < s->ranges[2 * range + 1]; row++) {
            int64_t group = group_at(s, range, row, cls_bytes);
            if (group >= 0)
                sums[7 * group]++;
        }
    }
}

/* The sums of each group, and the durations of all of its rows from `next` on. */
static inline __attribute__((always_inline)) void add_rows(const selection *s, int64_t *sums, void *values,
                                                           int64_t *next, int64_t cls_bytes, int64_t dur_bytes,
                                                           int64_t self_bytes) {
    for (int64_t range = 0; range < s->range_count; range++) {
        for (int64_t row = s->ranges[2 * range]; row < s->ranges[2 * range + 1]; row++) {
            int64_t group = group_at(s, range, row, cls_bytes);
            if (group < 0)
                continue;
            int64_t *sum = sums + 7 * group, ns = number_at(s->dur, dur_bytes, row);
            sum[1] += ns;
            sum[2] += number_at(s->self, self_bytes, row);
            if (ns < sum[3])
                sum[3] = ns;
            if (ns > sum[6])
                sum[6] = ns;
            if (dur_bytes <= 4)
                ((uint32_t *)values)[next[group]++] = (uint32_t)ns;
            else
                ((int64_t *)values)[next[group]++] = ns;
        }
    }
}

/* Columns of most recordings have these widths, for which the loops are compiled apart. */
static void count_all(const selection *s, int64_t *sums) {
    if (s->cls_bytes == 1)
        count_rows(s, sums, 1);
    else if (s->cls_bytes == 2)
        count_rows(s, sums, 2);
    else
        count_rows(s, sums, s->cls_bytes);
}

static void add_all(const selection *s, int64_t *sums, void *values, int64_t *next) {
    int is_common = s->dur_bytes == 4 && s->self_bytes == 4;
    if (is_common && s->cls_bytes == 1)
        add_rows(s, sums, values, next, 1, 4, 4);
    else if (is_common && s->cls_bytes == 2)
        add_rows(s, sums, values, next, 2, 4, 4);
    else
        add_rows(s, sums, values, next, s->cls_bytes, s->dur_bytes, s->self_bytes);
}

/* Into `sums` count, total, self, least, p50, p99 and most of each group of the rows in `ranges` (pairs of the first
 * and the one behind the last). `kept` and `group_of` are by class; by range is grouped where `is_by_range`. Columns
 * have as many bytes a number as the number behind them says; 0 bytes of a step: every step counts. Returns -1 without
 * memory. */
LC_API int64_t lc_statistics(const uint8_t *cls, int64_t cls_bytes, const uint8_t *dur, int64_t dur_bytes,
                             const uint8_t *self, int64_t self_bytes, const uint8_t *step, int64_t step_bytes,
                             int64_t first_step, int64_t last_step, const uint8_t *kept, const int32_t *group_of,
                             int64_t is_by_range, const int64_t *ranges, int64_t range_count, int64_t groups,
                             int64_t *sums) {
    const selection s = {cls, dur, self, step, kept, cls_bytes, dur_bytes, self_bytes, step_bytes, first_step,
                         last_step, group_of, ranges, range_count, is_by_range};
    count_all(&s, sums);
    int64_t *next = malloc((size_t)(groups ? groups : 1) * sizeof *next), all = 0;
    for (int64_t group = 0; next && group < groups; group++) {
        next[group] = all;
        all += sums[7 * group];
        sums[7 * group + 3] = INT64_MAX;
    }
    int is_short = dur_bytes <= 4;
    void *values = malloc((size_t)(all ? all : 1) * (is_short ? sizeof(uint32_t) : sizeof(int64_t)));
    if (!values || !next) {
        free(values);
        free(next);
        return -1;
    }
    add_all(&s, sums, values, next);
    for (int64_t group = 0; group < groups; group++) {
        int64_t count = sums[7 * group], last = next[group] - 1, first = next[group] - count;
        if (!count)
            continue;
        int64_t middle = place_of_part(0.5, count), late = place_of_part(0.99, count);
        for (int part = 0; part < 2; part++) {
            int64_t place = first + (part ? late : middle), from = part ? first + middle : first;
            sums[7 * group + 4 + part] =
                is_short ? ranked_short(values, from, last, place) : ranked(values, from, last, place);
        }
    }
    free(values);
    free(next);
    return all;
}
