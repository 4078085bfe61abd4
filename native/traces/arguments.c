/* Arguments of an event: the numbers that differ in every event are taken out of them, so that what is left repeats. */
#include <stdlib.h>
#include <string.h>

#include "traces.h"

#define IS(text) (key.length == sizeof(text) + 1 && !memcmp(key.at + 1, text, sizeof(text) - 1))
/* Of what is a number in every event and says nothing: no column. */
#define DROPPED LT_NUMBERS
/* The same, but that it is there says something. */
#define RECORD (LT_NUMBERS + 1)

/* The column of a number by its name, which has its quotes; -1: it stays. */
static int column_of(lt_part key) {
    switch (key.length - 2) {
    case 6:
        return IS("stream") ? LT_STREAM : IS("device") ? LT_DEVICE : IS("Ev Idx") ? DROPPED : -1;
    case 9:
        return IS("Python id") ? DROPPED : -1;
    case 11:
        return IS("External id") || IS("external id") ? LT_EXTERNAL
             : IS("correlation")                      ? LT_CORRELATION
             : IS("external ts")                      ? DROPPED
                                                      : -1;
    case 13:
        return IS("Fwd thread id") ? LT_FORWARD : -1;
    case 15:
        return IS("Sequence number") ? LT_SEQUENCE : -1;
    case 16:
        return IS("Python parent id") ? DROPPED : -1;
    case 18:
        return IS("Record function id") ? RECORD : -1;
    case 20:
        return IS("Profiler Event Index") ? DROPPED : -1;
    }
    return -1;
}

/* The same of Kineto's events of memory. */
static int column_of_memory(lt_part key) {
    return IS("Addr") ? LT_EXTERNAL
         : IS("Bytes") ? LT_CORRELATION
         : IS("Total Allocated") ? LT_STREAM
         : IS("Device Id") ? LT_DEVICE
         : IS("Total Reserved") ? LT_SEQUENCE
         : IS("Device Type") ? LT_FORWARD
         : IS("Ev Idx") ? DROPPED
                        : -1;
}

static int begins(lt_part text, const char *with) {
    size_t length = strlen(with);
    return text.length >= length && !memcmp(text.at, with, length);
}

static int ends(lt_part text, const char *with) {
    size_t length = strlen(with);
    return text.length >= length && !memcmp(text.at + text.length - length, with, length);
}

/* Whether what is of this category may tell of a stream, and runs on none: it keeps what it tells. */
static int runs_on_cpu(lt_part category) {
    return begins(category, "cpu_") || begins(category, "user_") || begins(category, "python_") ||
           begins(category, "Operator") || ends(category, "untime") || ends(category, "driver");
}

static int has_room(lt_scan *scan, size_t length) {
    if (length <= scan->made_room)
        return 1;
    uint8_t *made = realloc(scan->made, length * 2);
    if (!made) {
        scan->failed = 1;
        return 0;
    }
    scan->made = made;
    scan->made_room = length * 2;
    return 1;
}

static int32_t word_of(lt_scan *scan, lt_part part) {
    int32_t number = lt_word(&scan->words[LT_ARGUMENTS], part);
    scan->failed |= number < 0;
    return number;
}

/* Take the numbers out of the arguments; the text of those that stay has the number that is returned, -1: none stays. */
static int32_t shortened(lt_scan *scan, const lt_fields *fields, size_t row) {
    static const uint8_t memory[] = "[memory]";
    int is_memory = fields->name.length == sizeof memory - 1 && !memcmp(fields->name.at, memory, sizeof memory - 1);
    if (!has_room(scan, fields->args.length + 2))
        return -1;
    int is_of_cpu = !is_memory && runs_on_cpu(fields->category);
    size_t used = 0;
    for (size_t i = 0; i < scan->pairs; i++) {
        lt_pair pair = scan->pair[i];
        int column = is_memory ? column_of_memory(pair.key) : column_of(pair.key);
        int64_t number;
        if (is_of_cpu && (column == LT_STREAM || column == LT_DEVICE))
            column = -1;
        if (column >= 0 && lt_whole(pair.value, &number)) {
            if (column < LT_NUMBERS)
                scan->rows.numbers[column][row] = number;
            scan->rows.flags[row] |= column == RECORD ? LT_HAS_RECORD : 0;
            continue;
        }
        scan->made[used] = used ? ',' : '{';
        size_t length = (size_t)(pair.value.at + pair.value.length - pair.key.at);
        memcpy(scan->made + used + 1, pair.key.at, length);
        used += length + 1;
    }
    if (!used)
        return -1;
    scan->made[used] = '}';
    return word_of(scan, (lt_part){scan->made, used + 1});
}

/* The arguments of a row. */
void lt_arguments(lt_scan *scan, const lt_fields *fields, size_t row) {
    lt_rows *rows = &scan->rows;
    if (!fields->args.length)
        return;
    int is_object = *fields->args.at == '{', is_noted = scan->pairs <= LT_MOST_PAIRS;
    if (is_object && !scan->pairs)
        return;
    int32_t number = is_object && is_noted && scan->takes_numbers ? shortened(scan, fields, row)
                                                                  : word_of(scan, fields->args);
    rows->args[row] = number;
    if (!is_object || fields->has_odd_args)
        rows->flags[row] |= LT_ODD_ARGUMENTS;
}

static size_t repeated(lt_scan *scan, size_t row) {
    size_t fresh = lt_new_row(scan);
    if (fresh == SIZE_MAX)
        return fresh;
    lt_rows *rows = &scan->rows;
    rows->phase[fresh] = rows->phase[row];
    rows->flags[fresh] = rows->flags[row];
    rows->category[fresh] = rows->category[row];
    rows->name[fresh] = rows->name[row];
    rows->pid[fresh] = rows->pid[row];
    rows->tid[fresh] = rows->tid[row];
    rows->time_ns[fresh] = rows->time_ns[row];
    rows->id[fresh] = rows->id[row];
    for (size_t i = 0; i < LT_NUMBERS; i++)
        rows->numbers[i][fresh] = LT_NONE;
    return fresh;
}

/* Of an event of a counter a row for each number among its arguments. */
void lt_series(lt_scan *scan, const lt_fields *fields, size_t row) {
    size_t count = scan->pairs < LT_MOST_PAIRS ? scan->pairs : LT_MOST_PAIRS, found = 0;
    if (!fields->args.length || *fields->args.at != '{')
        count = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t value;
        if (!lt_counted(scan->pair[i].value, &value))
            continue;
        size_t at = found++ ? repeated(scan, row) : row;
        if (at == SIZE_MAX)
            return;
        lt_part key = scan->pair[i].key;
        scan->rows.args[at] = word_of(scan, (lt_part){key.at + 1, key.length - 2});
        scan->rows.duration_ns[at] = value;
        scan->rows.flags[at] |= LT_HAS_VALUE;
    }
}
