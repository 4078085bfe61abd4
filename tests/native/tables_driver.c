/* Calls everything of native/tables with arrays of exactly the promised length and values without any sense, as a
 * damaged raw file may have them. The sanitizers it is built with say what is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables/tables.h"

#define LAYERS 3
#define TRIES 400

static uint64_t state;

static uint64_t number(void) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    uint64_t value = state >> 16 ^ state << 24;
    switch (state >> 60 & 3) {
    case 0:
        return value % 7;
    case 1:
        return value % 1000;
    case 2:
        return value;
    default:
        return UINT64_MAX - value % 7;
    }
}

static void *array(int64_t count, size_t bytes) {
    size_t size = (size_t)count * bytes;
    uint8_t *made = malloc(size ? size : 1);
    for (size_t i = 0; i < size; i++)
        made[i] = (uint8_t)number();
    return made;
}

static int64_t *numbers(int64_t count) {
    int64_t *made = malloc((size_t)(count ? count : 1) * sizeof *made);
    for (int64_t i = 0; i < count; i++)
        made[i] = (int64_t)number();
    return made;
}

static void records(int64_t count) {
    lf_record *made = array(count, sizeof *made);
    int64_t spans = 0, others = 0;
    for (int64_t i = 0; i < count; i++) {
        if (number() % 3)
            made[i].kind %= 11;
        spans += made[i].kind < LF_FIRST_SPECIAL;
        others += made[i].kind >= LF_FIRST_SPECIAL && made[i].kind != LF_EXTRA;
    }
    uint8_t *kinds = array(256, 1);
    lc_span *of = malloc((size_t)(spans ? spans : 1) * sizeof *of);
    int32_t *special = array(others, sizeof *special), *tracks = array(others, sizeof *tracks);
    lc_found found;
    lc_spans(made, count, kinds, (int64_t)number(), of, spans, special, tracks, &found);
    if (found.spans != spans || found.specials != others)
        abort();
    int64_t *wide[3];
    uint32_t *narrow[7];
    uint8_t *bytes[2];
    for (int i = 0; i < 3; i++)
        wide[i] = numbers(spans);
    for (int i = 0; i < 7; i++)
        narrow[i] = array(spans, sizeof *narrow[i]);
    for (int i = 0; i < 2; i++)
        bytes[i] = array(spans, 1);
    lc_split(of, spans, wide[0], wide[1], wide[2], narrow[0], narrow[1], (int32_t *)narrow[2], (int32_t *)narrow[3],
             (int32_t *)narrow[4], narrow[5], narrow[6], bytes[0], bytes[1]);
    for (int i = 0; i < 3; i++)
        free(wide[i]);
    for (int i = 0; i < 7; i++)
        free(narrow[i]);
    free(bytes[0]), free(bytes[1]);
    int64_t codes_known = 160, room = 5, used = 0;
    int32_t *rows = calloc((size_t)codes_known, sizeof *rows);
    int64_t *codes = numbers(room), *sums = numbers(2 * room);
    int64_t done = lc_sums(made, count, 16, rows, codes_known, codes, sums, room, &used);
    if (done < 0 || done > count || used > room)
        abort();
    free(made), free(kinds), free(of), free(special), free(tracks), free(rows), free(codes), free(sums);
}

static void clock_of(int64_t count) {
    int64_t readings = 2 + (int64_t)(number() % 5);
    int64_t *ticks = malloc((size_t)readings * sizeof *ticks), *run_ns = malloc((size_t)readings * sizeof *run_ns);
    for (int64_t i = 0; i < readings; i++) {
        ticks[i] = (i ? ticks[i - 1] : -50) + 1 + (int64_t)(number() % 100);
        run_ns[i] = (i ? run_ns[i - 1] : -50) + 1 + (int64_t)(number() % 100);
    }
    uint8_t *moments = array(count, 12); /* not aligned */
    lc_to_run(moments, 12, count, ticks, run_ns, readings);
    free(ticks), free(run_ns), free(moments);
}

static void nesting(int64_t count) {
    int32_t *depth = array(count, sizeof *depth);
    int8_t *layer = array(count, 1);
    int64_t *start = numbers(count), *end = numbers(count), *rows = numbers(count), levels = 4, bounds[5];
    for (int64_t i = 0; i < count; i++)
        depth[i] = number() % 4 ? (int32_t)(number() % 4) : depth[i];
    int64_t sorted = lc_sort(depth, start, count, levels, rows, bounds);
    if (sorted < 0 || bounds[0] || bounds[levels] != sorted)
        abort();
    int64_t *starts = numbers(count), *ends = numbers(count), *parent = numbers(count), *self_ns = numbers(count);
    for (int64_t i = 0; i < sorted; i++)
        starts[i] = start[rows[i]], ends[i] = end[rows[i]];
    int32_t *around = malloc((size_t)(count * LAYERS + 1) * sizeof *around);
    int32_t *nearest = malloc((size_t)(count * LAYERS + 1) * sizeof *nearest);
    for (int64_t i = 0; i < count * LAYERS; i++)
        around[i] = nearest[i] = LC_NONE;
    for (int64_t level = 0; level < levels; level++) {
        int64_t first = bounds[level], here = bounds[level + 1] - first;
        int32_t *mine = around + first * LAYERS;
        int64_t *place = numbers(here), *left = numbers(here);
        uint8_t *known = array(here, 1);
        if (level) {
            int64_t above = bounds[level - 1];
            lc_adopt(starts + above, ends + above, starts + above, nearest + above * LAYERS, first - above,
                     starts + first, rows + first, here, LAYERS, parent, mine, place, known);
            lc_charge(rows + first, ends + first, starts + first, here, mine, LAYERS, layer, end, count, self_ns, left);
        }
        lc_nearest(rows + first, here, mine, LAYERS, layer, nearest + first * LAYERS);
        free(place), free(left), free(known);
    }
    free(depth), free(layer), free(start), free(end), free(rows), free(starts), free(ends), free(parent);
    free(self_ns), free(around), free(nearest);
}

static void foreign(int64_t count) {
    lc_span *spans = array(count, sizeof *spans);
    int32_t *narrow[6];
    for (int i = 0; i < 6; i++)
        narrow[i] = array(count, sizeof *narrow[i]);
    int64_t *start = numbers(count), *end = numbers(count), *open = numbers(count);
    uint8_t *kind = array(count, 1), *unfinished = array(count, 1);
    lc_join(spans, count, start, end, narrow[0], narrow[1], (int64_t)number(), narrow[2], narrow[3], kind, open,
            narrow[4], narrow[5], unfinished);
    for (int64_t i = 0; i < count; i++)
        narrow[0][i] = (int32_t)(i / 7);
    if (lc_depths(narrow[0], start, end, count, open, narrow[1]) > 0)
        abort();
    for (int i = 0; i < 6; i++)
        free(narrow[i]);
    free(spans), free(start), free(end), free(open), free(kind), free(unfinished);
}

static void totals(int64_t count) {
    int64_t bits = 1 + (int64_t)(number() % 8), room = (int64_t)1 << bits >> 1;
    int64_t *key = numbers(count), *dur_ns = numbers(count), *self_ns = numbers(count), *keys = numbers(room);
    int32_t *places = calloc((size_t)2 * (size_t)room, sizeof *places);
    lc_sum *sums = array(room, sizeof *sums);
    if (lc_totals(key, dur_ns, self_ns, count, places, bits, keys, sums) > room)
        abort();
    free(key), free(dur_ns), free(self_ns), free(keys), free(places), free(sums);
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    for (int i = 0; i < TRIES; i++) {
        int64_t count = (int64_t)(number() % 60);
        records(count);
        clock_of(count);
        nesting(count);
        foreign(count);
        totals(count);
    }
    puts("done");
    return 0;
}
