/* Spans of a trace that are kept until its end, in columns of their own: a trace has millions of them, so each takes a
 * few bytes. What many have in common, where and how they ran, has a number. */
#include <stdlib.h>

#include "traces.h"

#define FIRST_SPANS 65536

static int is_grown(void *column, size_t size) {
    void **place = column;
    void *grown = realloc(*place, size);
    if (grown)
        *place = grown;
    return grown != NULL;
}

static int has_room(lt_spans *spans) {
    if (spans->count < spans->capacity)
        return 1;
    size_t capacity = spans->capacity ? spans->capacity / 2 * 3 : FIRST_SPANS;
    for (size_t i = 0; i < LT_LONG_COLUMNS; i++)
        if (!is_grown(&spans->longs[i], capacity * sizeof(int64_t)))
            return 0;
    for (size_t i = 0; i < LT_SHORT_COLUMNS; i++)
        if (!is_grown(&spans->shorts[i], capacity * sizeof(int32_t)))
            return 0;
    spans->capacity = capacity;
    return 1;
}

/* A number above 0 in half its bytes; 0: there is none. One that needs more is a text among LT_WIDE_NUMBERS, whose
 * number is -2 less this one. */
static int32_t shortened(lt_scan *scan, int64_t number) {
    if (number <= 0)
        return 0;
    if (number <= INT32_MAX)
        return (int32_t)number;
    int32_t known = lt_word(&scan->words[LT_WIDE_NUMBERS], (lt_part){(const uint8_t *)&number, sizeof number});
    scan->failed |= known < 0;
    return -2 - known;
}

static int32_t place_of(lt_scan *scan, const lt_rows *rows, size_t row) {
    lt_place place = {
        .stream = rows->numbers[LT_STREAM][row],
        .device = rows->numbers[LT_DEVICE][row],
        .forward = rows->numbers[LT_FORWARD][row],
        .category = rows->category[row],
        .pid = rows->pid[row],
        .tid = rows->tid[row],
        .flags = rows->flags[row],
    };
    int32_t known = lt_word(&scan->words[LT_PLACES], (lt_part){(const uint8_t *)&place, sizeof place});
    scan->failed |= known < 0;
    return known;
}

/* Make a span of a row. */
void lt_keep_span(lt_scan *scan, size_t row) {
    lt_spans *spans = &scan->spans;
    const lt_rows *rows = &scan->rows;
    if (!has_room(spans)) {
        scan->failed = 1;
        return;
    }
    size_t at = spans->count++;
    int64_t sequence = rows->numbers[LT_SEQUENCE][row];
    spans->longs[LT_TIME][at] = rows->time_ns[row];
    spans->longs[LT_DURATION][at] = rows->duration_ns[row];
    spans->shorts[LT_NAME][at] = rows->name[row];
    spans->shorts[LT_ARGS][at] = rows->args[row];
    spans->shorts[LT_OF_OPERATOR][at] = shortened(scan, rows->numbers[LT_EXTERNAL][row]);
    spans->shorts[LT_OF_CALL][at] = shortened(scan, rows->numbers[LT_CORRELATION][row]);
    spans->shorts[LT_OF_AUTOGRAD][at] = sequence >= 0 && sequence <= INT32_MAX ? (int32_t)sequence : -1;
    spans->shorts[LT_PLACE][at] = place_of(scan, rows, row);
}

/* Hand the columns over, the long ones first; each has to be given to lt_give_back. Returns how many spans there
 * are. */
int64_t lt_take_spans(lt_scan *scan, void **columns) {
    lt_spans *spans = &scan->spans;
    for (size_t i = 0; i < LT_LONG_COLUMNS; i++)
        *columns++ = spans->longs[i];
    for (size_t i = 0; i < LT_SHORT_COLUMNS; i++)
        *columns++ = spans->shorts[i];
    int64_t count = (int64_t)spans->count;
    *spans = (lt_spans){0};
    return count;
}

void lt_give_back(void *column) { free(column); }

void lt_free_spans(lt_spans *spans) {
    for (size_t i = 0; i < LT_LONG_COLUMNS; i++)
        free(spans->longs[i]);
    for (size_t i = 0; i < LT_SHORT_COLUMNS; i++)
        free(spans->shorts[i]);
}
