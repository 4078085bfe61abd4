/* Records of the agent as spans, and the sums of them. */
#include "tables.h"

#include <string.h>

LC_API int64_t lc_version(void) { return LC_VERSION; }

/* How many of `records` are spans; `others`: how many are neither spans nor extra records. */
LC_API int64_t lc_spans_among(const lf_record *records, int64_t count, int64_t *others) {
    int64_t spans = 0, extras = 0;
    for (int64_t i = 0; i < count; i++) {
        spans += records[i].kind < LF_FIRST_SPECIAL;
        extras += records[i].kind == LF_EXTRA;
    }
    *others = count - spans - extras;
    return spans;
}

/* What an extra record says belongs to the span before it. */
static void add_extra(lc_span *span, const lf_record *extra) {
    switch (extra->name) {
    case LF_EXTRA_SUBMITTED:
        span->submitter = (int32_t)(uint32_t)extra->end;
        span->line = extra->module;
        span->origin = (int64_t)extra->start;
        break;
    case LF_EXTRA_FORWARD_THREAD:
        span->origin = (int64_t)extra->start;
        break;
    case LF_EXTRA_OPTIMIZER:
        span->optimizer = (int32_t)(uint32_t)extra->start;
        break;
    case LF_EXTRA_LINE:
        span->line = (uint32_t)extra->start;
        break;
    case LF_EXTRA_ARGS:
        span->args = (uint32_t)extra->start;
        break;
    case LF_EXTRA_ELSEWHERE:
        span->track = (int32_t)(uint32_t)extra->start;
        break;
    default:
        break;
    }
}

static void take_span(lc_span *span, const lf_record *record, uint8_t kind, int32_t track) {
    memset(span, 0, sizeof *span);
    span->start = (int64_t)record->start;
    span->end = (int64_t)record->end;
    span->name = record->name;
    span->module = record->module;
    span->seq = record->seq;
    span->track = track;
    span->depth = record->depth;
    span->kind = kind;
    span->flags = record->flags;
}

/* The spans among `records`; `kinds`: our number of each kind of the file; `first_track`: of the thread that has
 * the ring.
 * `specials`, `tracks`: the places of the other records that are not extra records, with their tracks. */
LC_API void lc_spans(const lf_record *records, int64_t count, const uint8_t *kinds, int64_t first_track, lc_span *spans,
                     int64_t room, int32_t *specials, int32_t *tracks, lc_found *found) {
    int64_t used = 0, others = 0, highest_name = 0;
    int32_t track = (int32_t)(uint32_t)first_track;
    for (int64_t i = 0; i < count; i++) {
        lf_record record;
        memcpy(&record, records + i, sizeof record);
        if (record.kind < LF_FIRST_SPECIAL) {
            if (used == room)
                break;
            take_span(&spans[used++], &record, kinds[record.kind], track);
            if (record.name > highest_name)
                highest_name = record.name;
        } else if (record.kind == LF_EXTRA) {
            if (used)
                add_extra(&spans[used - 1], &record);
        } else {
            if (record.kind == LF_THREAD_BEGIN)
                track = (int32_t)record.module;
            specials[others] = (int32_t)i;
            tracks[others++] = track;
        }
    }
    *found = (lc_found){used, others, highest_name, 1};
    for (int64_t i = 0; i < used && found->is_one_track; i++)
        found->is_one_track = spans[i].track == spans[0].track;
}

/* Spans column by column, in one pass. Returns which of the columns have anything but zeros: LC_HAS_. */
LC_API int64_t lc_split(const lc_span *spans, int64_t count, int64_t *start, int64_t *end, int64_t *origin,
                        uint32_t *name, uint32_t *module, int32_t *seq, int32_t *depth, int32_t *optimizer,
                        uint32_t *line, uint32_t *args, uint8_t *kind, uint8_t *unfinished) {
    int64_t origins = 0;
    uint32_t optimizers = 0, lines = 0, arguments = 0, open = 0;
    for (int64_t i = 0; i < count; i++) {
        lc_span span;
        memcpy(&span, spans + i, sizeof span);
        start[i] = span.start;
        end[i] = span.end;
        origins |= origin[i] = span.origin;
        name[i] = span.name;
        module[i] = span.module;
        seq[i] = span.seq;
        depth[i] = span.depth;
        optimizers |= (uint32_t)(optimizer[i] = span.optimizer);
        lines |= line[i] = span.line;
        arguments |= args[i] = span.args;
        kind[i] = span.kind;
        open |= unfinished[i] = span.unfinished;
    }
    return (origins ? LC_HAS_ORIGIN : 0) | (optimizers ? LC_HAS_OPTIMIZER : 0) | (lines ? LC_HAS_LINE : 0) |
           (arguments ? LC_HAS_ARGS : 0) | (open ? LC_HAS_UNFINISHED : 0);
}

/* Spans of columns, in one pass. Names come behind the one of names that are left out, texts of arguments behind the
 * names. */
LC_API void lc_join(lc_span *spans, int64_t count, const int64_t *start, const int64_t *dur, const int32_t *name,
                    const int32_t *args, int64_t first_args, const int32_t *track, const int32_t *depth,
                    const uint8_t *kind, const int64_t *origin, const int32_t *seq, const int32_t *submitter,
                    const uint8_t *unfinished) {
    for (int64_t i = 0; i < count; i++) {
        lc_span span = {.start = start[i], .origin = origin[i], .seq = seq[i]};
        span.end = (int64_t)((uint64_t)start[i] + (uint64_t)dur[i]);
        span.name = (uint32_t)name[i] + 1;
        span.args = args[i] < 0 ? 0 : (uint32_t)args[i] + (uint32_t)first_args;
        span.track = track[i];
        span.depth = depth[i];
        span.submitter = submitter[i];
        span.kind = kind[i];
        span.unfinished = unfinished[i];
        memcpy(spans + i, &span, sizeof span);
    }
}

/* Adds spans to the sums by name and kind, `code`: name * limit + kind. `rows`: by code, 1 + the place of its sums, 0:
 * none yet. Returns how many records were looked at: less than all, where a code or a place lies beyond the arrays. */
LC_API int64_t lc_sums(const lf_record *records, int64_t count, int64_t limit, int32_t *rows, int64_t codes_known,
                       int64_t *codes, int64_t *sums, int64_t room, int64_t *used) {
    for (int64_t i = 0; i < count; i++) {
        lf_record record;
        memcpy(&record, records + i, sizeof record);
        if (record.kind >= LF_FIRST_SPECIAL)
            continue;
        int64_t code = record.name * limit + record.kind;
        if (code >= codes_known)
            return i;
        if (!rows[code]) {
            if (*used >= room)
                return i;
            codes[*used] = code;
            sums[2 * *used] = sums[2 * *used + 1] = 0;
            rows[code] = (int32_t)++*used;
        }
        int64_t *of = sums + 2 * (rows[code] - 1);
        int64_t ticks = (int64_t)(record.end - record.start);
        of[0]++;
        /* A clock that was set back makes an end before its start. */
        if (ticks > 0)
            of[1] = (int64_t)((uint64_t)of[1] + (uint64_t)ticks);
    }
    return count;
}
