/* An event: its fields, and a row of it. */
#include <stdlib.h>
#include <string.h>

#include "traces.h"

#define FIRST_ROWS 65536
#define IS(text) (length == sizeof(text) - 1 && !memcmp(key, text, sizeof(text) - 1))

static int grow(void **column, size_t count, size_t size) {
    void *grown = realloc(*column, count * size);
    if (grown)
        *column = grown;
    return grown != NULL;
}

/* The next row; SIZE_MAX: there is no memory for it. */
size_t lt_new_row(lt_scan *scan) {
    lt_rows *rows = &scan->rows;
    if (rows->count < rows->capacity)
        return rows->count++;
    size_t count = rows->capacity ? rows->capacity * 2 : FIRST_ROWS;
    int32_t **codes[] = {&rows->category, &rows->name, &rows->pid, &rows->tid, &rows->args};
    int64_t **times[] = {&rows->time_ns, &rows->duration_ns, &rows->id};
    int is_grown = grow((void **)&rows->phase, count, 1) && grow((void **)&rows->flags, count, 1);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        is_grown = is_grown && grow((void **)codes[i], count, sizeof(int32_t));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        is_grown = is_grown && grow((void **)times[i], count, sizeof(int64_t));
    for (size_t i = 0; i < LT_NUMBERS; i++)
        is_grown = is_grown && grow((void **)&rows->numbers[i], count, sizeof(int64_t));
    if (!is_grown) {
        scan->failed = 1;
        return SIZE_MAX;
    }
    rows->capacity = count;
    return rows->count++;
}

static lt_part without_quotes(lt_part part) {
    if (part.length > 1 && *part.at == '"')
        return (lt_part){part.at + 1, part.length - 2};
    return part;
}

static void take(lt_fields *fields, const uint8_t *key, size_t length, lt_part value) {
    if (length == 2) {
        if (IS("ph")) {
            lt_part text = without_quotes(value);
            fields->phase = text.length == 1 && *value.at == '"' ? *text.at : 0;
        } else if (IS("ts"))
            fields->time = value;
        else if (IS("id"))
            fields->id = value;
    } else if (length == 3) {
        if (IS("dur"))
            fields->duration = value;
        else if (IS("cat"))
            fields->category = without_quotes(value);
        else if (IS("pid"))
            fields->pid = value;
        else if (IS("tid"))
            fields->tid = value;
        else if (IS("id2") && !fields->id.length)
            fields->id = value;
    } else if (IS("name"))
        fields->name = without_quotes(value);
}

static int32_t coded(lt_scan *scan, int which, lt_part part) {
    if (!part.at)
        return -1;
    int32_t number = lt_word(&scan->words[which], part);
    scan->failed |= number < 0;
    return number;
}

static uint8_t timed(lt_part part, uint8_t has, int64_t *found) {
    *found = 0;
    if (!part.length)
        return 0;
    return lt_scaled(part, 3, found) ? has : LT_IMPOSSIBLE;
}

/* Whether it is an arrow that nobody follows: calls and what they launch have a number in common. */
static int is_needless(const lt_fields *fields) {
    static const uint8_t followed[] = "fwdbwd";
    int is_arrow = fields->phase == 's' || fields->phase == 't' || fields->phase == 'f';
    return is_arrow && (fields->category.length != sizeof followed - 1 ||
                        memcmp(fields->category.at, followed, sizeof followed - 1));
}

static void add(lt_scan *scan, const lt_fields *fields) {
    if (scan->takes_numbers && is_needless(fields) && fields->time.length)
        return;
    size_t row = lt_new_row(scan);
    if (row == SIZE_MAX)
        return;
    lt_rows *rows = &scan->rows;
    uint8_t flags = timed(fields->time, LT_HAS_TIME, &rows->time_ns[row]);
    flags |= timed(fields->duration, LT_HAS_DURATION, &rows->duration_ns[row]);
    rows->phase[row] = fields->phase;
    rows->category[row] = coded(scan, LT_CATEGORIES, fields->category);
    rows->name[row] = coded(scan, LT_NAMES, fields->name);
    rows->pid[row] = coded(scan, LT_SCALARS, fields->pid);
    rows->tid[row] = coded(scan, LT_SCALARS, fields->tid);
    rows->args[row] = -1;
    rows->id[row] = LT_NONE;
    if (fields->id.length && !(lt_whole(fields->id, &rows->id[row]) && rows->id[row] >= 0))
        rows->id[row] = -2 - (int64_t)coded(scan, LT_IDS, fields->id);
    for (size_t i = 0; i < LT_NUMBERS; i++)
        rows->numbers[i][row] = LT_NONE;
    rows->flags[row] = flags;
    if (fields->phase == 'C')
        lt_series(scan, fields, row);
    else
        lt_arguments(scan, fields, row);
    int is_span = fields->phase == 'X' && (flags & (LT_HAS_TIME | LT_IMPOSSIBLE)) == LT_HAS_TIME;
    if (scan->takes_numbers && is_span) {
        lt_keep_span(scan, row);
        rows->count--;
    }
}

static const uint8_t *text_end(const lt_scan *scan, const uint8_t *p, const uint8_t *end, int of_key, int *odd) {
    if (!scan->is_lenient)
        return lt_short_text_end(p, end, odd);
    return lt_raw_text_end(p, end, of_key, scan->is_last);
}

/* `lt_value`, quicker where it is a short text or a number. */
static inline const uint8_t *value_end(const lt_scan *scan, const uint8_t *p, const uint8_t *end, int *odd,
                                       int *wrong) {
    if (*p == '"' && !scan->is_lenient) {
        p = lt_short_text_end(p + 1, end, odd);
        return p ? p + 1 : NULL;
    }
    const uint8_t *behind = lt_plain_number(p, end);
    return behind ? behind : lt_value(scan, p, end, odd, wrong);
}

/* The value of a key that ends at the quote p; NULL as with `lt_value`. */
static const uint8_t *value_start(const uint8_t *p, const uint8_t *end, int *wrong) {
    p = lt_space(p + 1, end);
    if (p >= end)
        return NULL;
    if (*p != ':') {
        *wrong = 1;
        return NULL;
    }
    p = lt_space(p + 1, end);
    return p < end ? p : NULL;
}

/* Where the next key begins, or the brace that closes; NULL as with `lt_value`. */
static const uint8_t *next_key(const uint8_t *p, const uint8_t *end, int *wrong) {
    p = lt_space(p, end);
    if (p >= end)
        return NULL;
    if (*p == ',') {
        p = lt_space(p + 1, end);
        return p < end ? p : NULL;
    }
    if (*p != '}') {
        *wrong = 1;
        return NULL;
    }
    return p;
}

/* Behind the arguments at p, whose pairs are noted. */
static const uint8_t *pairs(lt_scan *scan, const uint8_t *p, const uint8_t *end, int *odd, int *wrong) {
    scan->pairs = 0;
    p = lt_space(p + 1, end);
    while (p && p < end && *p != '}') {
        if (*p != '"') {
            *wrong = 1;
            return NULL;
        }
        const uint8_t *key = p;
        p = text_end(scan, p + 1, end, 1, odd);
        if (!p)
            return NULL;
        lt_pair pair = {{key, (size_t)(p + 1 - key)}, {0, 0}};
        p = value_start(p, end, wrong);
        if (!p)
            return NULL;
        pair.value.at = p;
        p = value_end(scan, p, end, odd, wrong);
        if (!p)
            return NULL;
        pair.value.length = (size_t)(p - pair.value.at);
        if (scan->pairs < LT_MOST_PAIRS)
            scan->pair[scan->pairs] = pair;
        scan->pairs++;
        p = next_key(p, end, wrong);
    }
    return p && p < end ? p + 1 : NULL;
}

/* Behind the event at p, of which there is a row then; NULL: it does not end here, or with `*wrong` it is none. */
const uint8_t *lt_event(lt_scan *scan, const uint8_t *p, const uint8_t *end, int *wrong) {
    lt_fields fields = {0};
    int odd = 0;
    scan->pairs = 0;
    p = lt_space(p + 1, end);
    while (p && p < end && *p != '}') {
        if (*p != '"') {
            *wrong = 1;
            return NULL;
        }
        const uint8_t *key = p + 1;
        p = text_end(scan, key, end, 1, &odd);
        if (!p)
            return NULL;
        size_t length = (size_t)(p - key);
        lt_part value = {value_start(p, end, wrong), 0};
        if (!value.at)
            return NULL;
        if (IS("args") && *value.at == '{') {
            fields.has_odd_args = scan->is_lenient;
            p = pairs(scan, value.at, end, &fields.has_odd_args, wrong);
        } else
            p = value_end(scan, value.at, end, &odd, wrong);
        if (!p)
            return NULL;
        value.length = (size_t)(p - value.at);
        if (IS("args"))
            fields.args = value;
        else
            take(&fields, key, length, value);
        p = next_key(p, end, wrong);
    }
    if (!p || p >= end)
        return NULL;
    add(scan, &fields);
    return p + 1;
}
