/* The file, piece by piece: what stands around the events, and where to go on behind what cannot be read. */
#include <stdlib.h>
#include <string.h>

#include "traces.h"

/* So long an event with quotes in its texts may be. */
#define MOST_RAW ((size_t)1 << 18)
/* More than the first field of an event, or the key before the events, takes. */
#define MOST_AHEAD 256

int64_t lt_version(void) { return LT_VERSION; }

lt_scan *lt_new(int64_t takes_numbers) {
    lt_scan *scan = calloc(1, sizeof *scan);
    if (scan)
        scan->takes_numbers = takes_numbers != 0;
    return scan;
}

void lt_free(lt_scan *scan) {
    if (!scan)
        return;
    lt_rows *rows = &scan->rows;
    void *columns[] = {rows->phase, rows->flags,   rows->category,    rows->name, rows->pid,
                       rows->tid,   rows->args,    rows->time_ns,     rows->duration_ns, rows->id,
                       scan->rest,  scan->made};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        free(columns[i]);
    for (size_t i = 0; i < LT_NUMBERS; i++)
        free(rows->numbers[i]);
    for (size_t i = 0; i < LT_WORDS; i++)
        lt_free_words(&scan->words[i]);
    lt_free_spans(&scan->spans);
    free(scan);
}

/* Spaces, commas, and the zeros that a file has where the system stopped. */
static const uint8_t *between(const uint8_t *p, const uint8_t *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r' || *p == ',' || *p == 0))
        p++;
    return p;
}

static void damaged_at(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    if (!scan->damaged++) {
        size_t length = (size_t)(end - p);
        scan->example_length = length < LT_EXAMPLE ? length : LT_EXAMPLE;
        memcpy(scan->example, p, scan->example_length);
    }
    scan->place = LT_SEARCHING;
    scan->solid = 0;
}

/* The key that comes behind the brace or quote at p; its length is 0 where the text ends before it. */
static lt_part key_at(const uint8_t *p, const uint8_t *end) {
    p = lt_space(p + (*p == '{'), end);
    if (p >= end || *p != '"')
        return (lt_part){p, 0};
    const uint8_t *first = ++p, *last = end - p > MOST_AHEAD ? p + MOST_AHEAD : end;
    while (p < last && *p != '"')
        p++;
    return p < last ? (lt_part){first, (size_t)(p - first)} : (lt_part){first, 0};
}

static int is_one_of(lt_part key, const char *const *known) {
    for (; *known; known++)
        if (strlen(*known) == key.length && !memcmp(*known, key.at, key.length))
            return 1;
    return 0;
}

/* Whether an object that begins so is an event; else events are one of its values. */
static int is_of_event(lt_part key) {
    static const char *const fields[] = {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args", "id", "s", NULL};
    return is_one_of(key, fields);
}

static int is_around_events(lt_part key) {
    static const char *const fields[] = {"traceEvents", "schemaVersion", "deviceProperties", NULL};
    return key.length > 10 && is_one_of(key, fields);
}

/* Pass over a value, of which only how deep it goes is known, to its end; NULL: it goes on. */
static const uint8_t *passed(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    for (; p < end; p++) {
        if (scan->is_escaped)
            scan->is_escaped = 0;
        else if (scan->in_text) {
            scan->is_escaped = *p == '\\';
            scan->in_text = *p != '"';
        } else if (*p == '"')
            scan->in_text = 1;
        else if (*p == '{' || *p == '[')
            scan->depth++;
        else if (*p == '}' || *p == ']') {
            if (scan->depth == 0)
                return p;
            if (--scan->depth == 0)
                return p + 1;
        } else if (*p == ',' && scan->depth == 0)
            return p;
    }
    return NULL;
}

static void pass_over(lt_scan *scan) {
    scan->after = scan->place;
    scan->place = LT_PASSING;
    scan->depth = scan->in_text = scan->is_escaped = 0;
}

/* Each of these goes on at p, and returns where it stopped; NULL: more of the file has to come. */

static const uint8_t *before(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    p = between(p, end);
    if (p < end && *p == 0xef && !scan->headers) { /* a mark of the order of bytes */
        if (end - p < 3)
            return scan->is_last ? end : NULL;
        p += 3;
    }
    p = between(p, end);
    if (p >= end)
        return end;
    if (*p == '[') {
        scan->headers++;
        scan->is_ended = 0;
        scan->in_object = 0;
        scan->place = LT_AMONG;
        return p + 1;
    }
    if (*p != '{') { /* it begins within an event */
        scan->is_headless = 1;
        damaged_at(scan, p, end);
        return p;
    }
    lt_part key = key_at(p, end);
    if (!key.length && (size_t)(end - p) < MOST_AHEAD && !scan->is_last)
        return NULL;
    if (is_of_event(key)) {
        scan->is_headless = 1;
        scan->place = LT_AMONG;
        return p;
    }
    scan->in_object = 1;
    scan->place = LT_AROUND;
    return p + 1;
}

/* Whether a list whose key is damaged has events. */
static int is_of_events(const uint8_t *p, const uint8_t *end) {
    static const char *const first[] = {"ph", "cat", "ts", NULL};
    p = lt_space(p, end);
    return p < end && *p == '{' && is_one_of(key_at(p, end), first);
}

/* A key beside the events, with its value. */
static const uint8_t *around(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    p = between(p, end);
    if (p >= end)
        return end;
    if (*p == '}') {
        scan->place = LT_BEHIND;
        return p + 1;
    }
    if (*p != '"') {
        damaged_at(scan, p, end);
        return p;
    }
    int odd = 0, wrong = 0;
    const uint8_t *key = p + 1, *key_end = lt_text_end(key, end, &odd);
    if (!key_end)
        return scan->is_last || end - p > (ptrdiff_t)LT_MOST_BESIDE ? (scan->place = LT_BEHIND, end) : NULL;
    const uint8_t *value = lt_space(key_end + 1, end);
    if (value < end && *value != ':') {
        damaged_at(scan, p, end);
        return key_end + 1;
    }
    value = value < end ? lt_space(value + 1, end) : end;
    if (value >= end)
        return scan->is_last ? end : NULL;
    static const uint8_t events[] = "traceEvents";
    lt_part name = {key, (size_t)(key_end - key)};
    int is_called_so = name.length == sizeof events - 1 && !memcmp(key, events, sizeof events - 1);
    if (*value == '[' && (is_called_so || is_of_events(value + 1, end))) {
        scan->headers++;
        scan->is_ended = 0;
        scan->place = LT_AMONG;
        return value + 1;
    }
    const uint8_t *behind = lt_value(scan, value, end, &odd, &wrong);
    if (wrong) {
        damaged_at(scan, p, end);
        return value;
    }
    if (behind) {
        lt_part whole = {key, (size_t)(behind - key)};
        scan->failed |= lt_word(&scan->words[LT_BESIDE], whole) < 0;
        return behind;
    }
    if (scan->is_last)
        return end;
    if ((size_t)(end - value) < LT_MOST_BESIDE)
        return NULL;
    pass_over(scan);
    return value;
}

/* The file ends within the event at p, or it has no end of its own and others come behind it. */
static const uint8_t *cut_at(lt_scan *scan, const uint8_t *p) {
    scan->is_cut = 1;
    scan->place = LT_SEARCHING;
    scan->solid = 0;
    return p + 1;
}

/* An event that cannot be read as it is. */
static const uint8_t *raw(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    int wrong = 0;
    scan->is_lenient = 1;
    const uint8_t *behind = lt_event(scan, p, end, &wrong);
    scan->is_lenient = 0;
    if (behind)
        return behind;
    if (!wrong && !scan->is_last && (size_t)(end - p) < MOST_RAW)
        return NULL;
    if (!wrong && scan->is_last)
        return cut_at(scan, p);
    damaged_at(scan, p, end);
    return p + 1;
}

static const uint8_t *among(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    p = between(p, end);
    if (p >= end)
        return end;
    if (*p == ']') {
        scan->is_ended = 1;
        scan->place = scan->in_object ? LT_AROUND : LT_BEHIND;
        return p + 1;
    }
    if (*p != '{') {
        damaged_at(scan, p, end);
        return p;
    }
    if (is_around_events(key_at(p, end))) { /* another trace begins where the one before it has no end */
        scan->in_object = 1;
        scan->place = LT_AROUND;
        return p + 1;
    }
    int wrong = 0;
    const uint8_t *behind = lt_event(scan, p, end, &wrong);
    if (behind)
        return behind;
    if (wrong)
        return raw(scan, p, end);
    if (scan->is_last)
        return cut_at(scan, p);
    if ((size_t)(end - p) < LT_MOST_EVENT)
        return NULL;
    damaged_at(scan, p, end);
    scan->place = LT_AMONG;
    pass_over(scan);
    return p;
}

/* Behind a trace: another one may begin. */
static const uint8_t *behind(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    p = between(p, end);
    if (p >= end)
        return end;
    if (*p == '}' || *p == ']')
        return p + 1;
    scan->place = *p == '"' ? LT_AROUND : LT_BEFORE;
    return p;
}

/* Whether an event begins at the brace p; -1: the text ends before that is known. */
static int begins(const lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    lt_part key = key_at(p, end);
    if (!key.length)
        return !scan->is_last && (size_t)(end - p) < MOST_AHEAD ? -1 : 0;
    const uint8_t *colon = lt_space(key.at + key.length + 1, end);
    if (colon >= end)
        return scan->is_last ? 0 : -1;
    if (*colon != ':' || scan->solid == ':')
        return 0;
    if (is_around_events(key))
        return 1;
    static const char *const first[] = {"name", "ph", NULL};
    int is_behind_one = scan->solid == ',' || scan->solid == '[' || scan->solid == '}' || scan->solid == 0;
    return is_one_of(key, first) || (is_behind_one && is_of_event(key));
}

/* Look for the next event. */
static const uint8_t *searching(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    for (; p < end; p++) {
        if (*p == '{') {
            int found = begins(scan, p, end);
            if (found < 0)
                return p;
            if (found) {
                scan->place = LT_AMONG;
                return p;
            }
        }
        if (*p == ']' && (scan->solid == '}' || scan->solid == ',') && !scan->is_cut) {
            scan->place = LT_AMONG;
            return p;
        }
        if (*p > ' ')
            scan->solid = *p;
    }
    return end;
}

static const uint8_t *step(lt_scan *scan, const uint8_t *p, const uint8_t *end) {
    const uint8_t *found;
    switch (scan->place) {
    case LT_BEFORE:
        return before(scan, p, end);
    case LT_AROUND:
        return around(scan, p, end);
    case LT_AMONG:
        return among(scan, p, end);
    case LT_BEHIND:
        return behind(scan, p, end);
    case LT_PASSING:
        found = passed(scan, p, end);
        if (found)
            scan->place = scan->after;
        return found ? found : end;
    default:
        return searching(scan, p, end);
    }
}

static int keep(lt_scan *scan, const uint8_t *p, size_t length) {
    if (length > scan->room) {
        size_t room = length * 3 / 2 + 65536;
        uint8_t *rest = malloc(room);
        if (!rest)
            return 0;
        memcpy(rest, p, length);
        free(scan->rest);
        scan->rest = rest;
        scan->room = room;
    } else if (length)
        memmove(scan->rest, p, length);
    scan->left = length;
    return 1;
}

static int put_behind_rest(lt_scan *scan, const uint8_t *piece, size_t length) {
    size_t whole = scan->left + length;
    if (whole > scan->room) {
        uint8_t *rest = realloc(scan->rest, whole * 3 / 2);
        if (!rest)
            return 0;
        scan->rest = rest;
        scan->room = whole * 3 / 2;
    }
    memcpy(scan->rest + scan->left, piece, length);
    scan->left = whole;
    return 1;
}

/* Take in the next piece of the file; returns how many rows there are now, -1: there is no memory for them. */
int64_t lt_feed(lt_scan *scan, const uint8_t *piece, int64_t length, int64_t is_last) {
    const uint8_t *p = piece, *end = piece + length;
    scan->is_last = is_last != 0;
    if (scan->left) {
        if (!put_behind_rest(scan, piece, (size_t)length))
            return -1;
        p = scan->rest;
        end = p + scan->left;
    }
    while (p < end && !scan->failed) {
        int place = scan->place;
        const uint8_t *next = step(scan, p, end);
        if (!next || (next == p && scan->place == place))
            break;
        p = next;
    }
    if (scan->failed || !keep(scan, p, (size_t)(end - p)))
        return -1;
    return (int64_t)scan->rows.count;
}

void lt_columns(const lt_scan *scan, const void **columns) {
    const lt_rows *rows = &scan->rows;
    const void *all[] = {rows->phase, rows->flags, rows->category, rows->name, rows->pid,
                         rows->tid,   rows->args,  rows->time_ns,  rows->duration_ns, rows->id};
    memcpy(columns, all, sizeof all);
    for (size_t i = 0; i < LT_NUMBERS; i++)
        columns[sizeof all / sizeof *all + i] = rows->numbers[i];
}

/* The rows were taken. */
void lt_clear(lt_scan *scan) { scan->rows.count = 0; }

/* How many texts there are, and where. */
int64_t lt_texts(const lt_scan *scan, int64_t which, const void **text, const void **at) {
    const lt_words *words = &scan->words[which];
    *text = words->text;
    *at = words->at;
    return words->count;
}

void lt_tell(const lt_scan *scan, lt_about *about) {
    *about = (lt_about){scan->damaged, scan->headers, scan->is_ended, scan->is_cut, scan->is_headless};
}

int64_t lt_example(const lt_scan *scan, const void **text) {
    *text = scan->example;
    return (int64_t)scan->example_length;
}
