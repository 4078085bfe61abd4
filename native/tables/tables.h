/* What the conversion of raw files into tables does with every span, over whole columns. layerscope/model/compiled.py
 * loads it; where it was not compiled, NumPy does the same.
 *
 * Nothing here keeps memory of its own, and no value of a raw file, which may be damaged, leads outside of an array. */
#ifndef LAYERSCOPE_TABLES_H
#define LAYERSCOPE_TABLES_H

#include <stddef.h>
#include <stdint.h>

#include "layout.h"

/* What compiled.py expects; to be changed with any function here. */
#define LC_VERSION 12
#define LC_API __attribute__((visibility("default")))
/* Around a span that has none; below it a span that has not ended (ingest/parents.py). */
#define LC_NONE (-1)
/* Fibonacci hashing (Knuth): the high bits of the product. */
#define LC_SCATTER 0x9e3779b97f4a7c15ull

/* sources/process.py SPAN */
typedef struct {
    int64_t start, end, origin;
    uint32_t name, module;
    int32_t seq, track, depth, optimizer;
    uint32_t line, args;
    int32_t submitter;
    uint8_t kind, flags, unfinished, pad;
} lc_span;
_Static_assert(sizeof(lc_span) == 64, "span");

/* records.c */
LC_API int64_t lc_version(void);
LC_API int64_t lc_spans_among(const lf_record *records, int64_t count, int64_t *others);
typedef struct {
    int64_t spans;    /* how many were written */
    int64_t specials; /* how many records are neither spans nor extra records */
    int64_t highest_name;
    int64_t is_one_track;
} lc_found;
LC_API void lc_spans(const lf_record *records, int64_t count, const uint8_t *kinds, int64_t first_track, lc_span *spans,
                     int64_t room, int32_t *specials, int32_t *tracks, lc_found *found);
/* sources/process.py _RARE */
enum {
    LC_HAS_ORIGIN = 1,
    LC_HAS_OPTIMIZER = 2,
    LC_HAS_LINE = 4,
    LC_HAS_ARGS = 8,
    LC_HAS_UNFINISHED = 16
};
LC_API int64_t lc_split(const lc_span *spans, int64_t count, int64_t *start, int64_t *end, int64_t *origin,
                        uint32_t *name, uint32_t *module, int32_t *seq, int32_t *depth, int32_t *optimizer,
                        uint32_t *line, uint32_t *args, uint8_t *kind, uint8_t *unfinished);
LC_API void lc_join(lc_span *spans, int64_t count, const int64_t *start, const int64_t *dur, const int32_t *name,
                    const int32_t *args, int64_t first_args, const int32_t *track, const int32_t *depth,
                    const uint8_t *kind, const int64_t *origin, const int32_t *seq, const int32_t *submitter,
                    const uint8_t *unfinished);
LC_API int64_t lc_sums(const lf_record *records, int64_t count, int64_t limit, int32_t *rows, int64_t codes_known,
                       int64_t *codes, int64_t *sums, int64_t room, int64_t *used);

/* clock.c */
LC_API void lc_to_run(uint8_t *moments, int64_t stride, int64_t count, const int64_t *ticks, const int64_t *run_ns,
                      int64_t readings);
LC_API void lc_last_starts(const int64_t *moments, int64_t count, const int64_t *starts, int64_t known,
                           int32_t *places);

/* links.c */
typedef struct {
    const int32_t *seq, *thread, *track, *process_of;
    const int64_t *start, *dur;
} lc_autograd;
LC_API void lc_link(const uint8_t *kind, const int32_t *seq, const int32_t *thread, const int32_t *track,
                    const int64_t *start, const int64_t *dur, int64_t count, const int32_t *process_of,
                    int64_t operator_kind, const int64_t *backward, int64_t wanted, int32_t *places, int64_t bits,
                    int64_t *keys, int64_t *makers, int64_t *found);

/* stacks.c */
LC_API void lc_index(int32_t *nodes, int64_t room, int64_t first, int64_t used, int32_t *places, int64_t bits);
LC_API int64_t lc_push(int32_t *nodes, int64_t room, int64_t used, int32_t *places, int64_t bits, const int32_t *around,
                       const int32_t *frame, int64_t count, int64_t merged, int32_t *found);
LC_API int64_t lc_fuse(int32_t *nodes, int64_t room, int64_t *used, int32_t *places, int64_t bits, const int32_t *of,
                       int64_t ofs, const int32_t *outer, int64_t adopted, const int32_t *anchors,
                       const int32_t *sampled, const int32_t *frames, const int64_t *bounds, int64_t count,
                       int32_t *path, int32_t *found);

/* totals.c */
typedef struct {
    int64_t count, total_ns, self_ns, least_ns, most_ns;
} lc_sum;
LC_API int64_t lc_totals(const int64_t *key, const int64_t *dur_ns, const int64_t *self_ns, int64_t count,
                         int32_t *places, int64_t bits, int64_t *keys, lc_sum *sums);

/* groups.c */
typedef struct {
    int64_t self_ns, calls, dur_ns;
} lc_group;
LC_API int64_t lc_groups(const int32_t *track, const int32_t *kind, const int32_t *name, const int32_t *module,
                         const int32_t *flags, const int64_t *self_ns, const int64_t *dur_ns, const int32_t *weight,
                         int64_t count, int32_t *places, int64_t bits, int64_t *firsts, lc_group *sums);

/* ends.c */
LC_API int64_t lc_nest(const int64_t *start, const int64_t *end, const int32_t *depth, const int8_t *layer,
                       int64_t count, int64_t first_key, int64_t *states, int64_t levels, int64_t layers, int64_t *key,
                       int64_t *parent, int64_t *self_ns);

/* nesting.c */
LC_API int64_t lc_depths(const int32_t *track, const int64_t *start, const int64_t *end, int64_t count,
                         int64_t *open, int32_t *depth);
LC_API int64_t lc_sort(const int32_t *depth, const int64_t *start, int64_t count, int64_t levels, int64_t *rows,
                       int64_t *bounds);
LC_API int64_t lc_adopt(const int64_t *parent_start, const int64_t *parent_end, const int64_t *parent_key,
                        const int32_t *parent_nearest, int64_t parents, const int64_t *start, const int64_t *rows,
                        int64_t count, int64_t layers, int64_t *parent, int32_t *around, int64_t *place,
                        uint8_t *known);
LC_API int64_t lc_charge(const int64_t *rows, const int64_t *end, const int64_t *from, int64_t count,
                         const int32_t *around, int64_t layers, const int8_t *layer, const int64_t *batch_end,
                         int64_t batch, int64_t *self_ns, int64_t *left);
LC_API void lc_nearest(const int64_t *rows, int64_t count, const int32_t *around, int64_t layers, const int8_t *layer,
                       int32_t *nearest);

/* statistics.c */
LC_API void lc_parents(const int32_t *track, const int32_t *depth, const int64_t *start, const int64_t *dur,
                       int64_t count, int64_t *open, int64_t levels, int32_t *parent);
LC_API int64_t lc_statistics(const uint8_t *cls, int64_t cls_bytes, const uint8_t *dur, int64_t dur_bytes,
                             const uint8_t *self, int64_t self_bytes, const uint8_t *step, int64_t step_bytes,
                             int64_t first_step, int64_t last_step, const uint8_t *kept, const int32_t *group_of,
                             int64_t is_by_range, const int64_t *ranges, int64_t range_count, int64_t groups,
                             int64_t *sums);

/* pickles.c: what sources/snapshot_events.py knows of an entry of the memo. Below zero, a stack or a frame of one, from
 * whose complement the rank, whether it is a stack, and the line can be read. From LC_FRESH_TEXT on, a text of which
 * only Python can tell what it means: where in the data it stands. */
enum { LC_KIND_OTHER, LC_KIND_ACTION, LC_KIND_FRAMES = 5, LC_KEYS = 6, LC_KIND_TEXT, LC_FIRST_ACTION = 16, LC_FRESH_TEXT = 256 };
enum { LC_RANK_BITS = 2, LC_OWN_RANK = 2, LC_IS_STACK = 4, LC_PLACE_SHIFT = 3 };
LC_API int64_t lc_events(const uint8_t *data, int64_t size, int32_t *memo, int64_t memo_room, int64_t *rows,
                         int64_t room, int64_t *reached);

#endif
