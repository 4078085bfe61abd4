/* Events of XSpaces (protocol buffers) as columns, a line at a time. layerscope/sources/xspace_scan.py loads it.
 *
 * Nothing in a file is trusted: a length may lead behind the end, a number may be too long. What there is, is given
 * out. */
#include <stdlib.h>
#include <string.h>

#include "traces.h"

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };
/* Numbers of fields of a line, an event and a stat. */
enum { OF_EVENTS = 4 };
enum { METADATA_ID = 1, OFFSET, DURATION, STATS };
enum { STAT_ID = 1, STAT_DOUBLE, STAT_TEXT = 5, STAT_REFERENCE = 7 };
#define MOST_VARINT_BITS 70
#define MOST_CORRELATION ((uint64_t)1 << 62)
#define FIRST_EVENTS 4096

/* A field: its number, and its value or where its bytes are. */
typedef struct {
    uint64_t number, value;
    const uint8_t *at, *end;
} field;

typedef struct {
    const uint8_t *at, *end;
    int64_t *trouble; /* NULL: nobody wants to know */
} message;

struct lt_plane {
    lt_words sets, rows;
    int32_t *row;
    int64_t *offset_ps, *duration_ps, *correlation;
    size_t count, capacity;
    uint8_t *made; /* stats of an event that are kept */
    size_t made_length, made_room;
    /* Stats that are not kept: their numbers, in order, and whether each is the correlation. */
    int64_t *special;
    uint8_t *is_correlation;
    size_t specials;
    int failed;
};

static void note(message *of, int64_t trouble) {
    if (of->trouble)
        *of->trouble |= trouble;
}

/* A number of variable length. 0: there is none. */
static int varint(message *of, uint64_t *found) {
    uint64_t value = 0;
    for (int shift = 0; of->at < of->end && shift < MOST_VARINT_BITS; shift += 7) {
        uint8_t byte = *of->at++;
        if (shift < 64)
            value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *found = value;
            return 1;
        }
    }
    note(of, of->at < of->end ? LT_DAMAGED : LT_CUT);
    return 0;
}

static int fixed(message *of, size_t size, uint64_t *found) {
    if ((size_t)(of->end - of->at) < size) {
        note(of, LT_CUT);
        return 0;
    }
    *found = 0;
    memcpy(found, of->at, size);
    of->at += size;
    return 1;
}

/* The next field of a message; one that is cut as far as it goes. 0: there is none. */
static int next_field(message *of, field *found) {
    uint64_t key, length;
    if (of->at >= of->end || !varint(of, &key))
        return 0;
    found->number = key >> 3;
    found->at = NULL;
    switch (key & 7) {
    case VARINT:
        return varint(of, &found->value);
    case FIXED64:
        return fixed(of, 8, &found->value);
    case FIXED32:
        return fixed(of, 4, &found->value);
    case BYTES:
        if (!varint(of, &length))
            return 0;
        if (length > (uint64_t)(of->end - of->at)) {
            note(of, LT_CUT);
            length = (uint64_t)(of->end - of->at);
        }
        found->at = of->at;
        found->end = of->at += length;
        return 1;
    default:
        note(of, LT_DAMAGED);
        return 0;
    }
}

/* The place of a stat among those that are not kept; -1: it is kept. */
static int64_t place_of(const lt_plane *plane, int64_t id) {
    size_t low = 0, high = plane->specials;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (plane->special[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < plane->specials && plane->special[low] == id ? (int64_t)low : -1;
}

static void append(lt_plane *plane, const uint8_t *at, size_t length) {
    size_t needed = plane->made_length + length;
    if (needed > plane->made_room) {
        uint8_t *made = realloc(plane->made, needed * 2);
        if (!made) {
            plane->failed = 1;
            return;
        }
        plane->made = made;
        plane->made_room = needed * 2;
    }
    memcpy(plane->made + plane->made_length, at, length);
    plane->made_length = needed;
}

/* Keep a stat as a field of its own, so that all of an event are one text. */
static void keep(lt_plane *plane, const field *stat) {
    uint8_t head[16] = {OF_EVENTS << 3 | BYTES};
    size_t used = 1;
    uint64_t length = (uint64_t)(stat->end - stat->at);
    for (; length > 127; length >>= 7)
        head[used++] = (uint8_t)(length | 128);
    head[used++] = (uint8_t)length;
    append(plane, head, used);
    append(plane, stat->at, (size_t)(stat->end - stat->at));
}

/* Take in a stat of an event; its value is looked at where it is the correlation. */
static void take_stat(lt_plane *plane, const field *stat, uint64_t *correlation) {
    message own = {stat->at, stat->end, NULL};
    int64_t id = 0;
    int has_id = 0;
    uint64_t value = 0;
    field part;
    while (next_field(&own, &part)) {
        if (part.number == STAT_ID) {
            has_id = 1;
            id = part.at ? 0 : (int64_t)part.value;
            continue;
        }
        int is_none = part.number == STAT_DOUBLE || part.number == STAT_TEXT || part.number == STAT_REFERENCE;
        value = part.at || is_none ? 0 : part.value;
    }
    int64_t place = has_id ? place_of(plane, id) : -1;
    if (place < 0)
        keep(plane, stat);
    else if (plane->is_correlation[place])
        *correlation = value < MOST_CORRELATION ? value : 0;
}

static int has_room(lt_plane *plane) {
    if (plane->count < plane->capacity)
        return 1;
    size_t capacity = plane->capacity ? plane->capacity * 2 : FIRST_EVENTS;
    int32_t *row = realloc(plane->row, capacity * sizeof *row);
    if (row)
        plane->row = row;
    int64_t **columns[] = {&plane->offset_ps, &plane->duration_ps, &plane->correlation};
    for (size_t at = 0; at < sizeof columns / sizeof *columns; at++) {
        int64_t *column = realloc(*columns[at], capacity * sizeof *column);
        if (!column)
            return 0;
        *columns[at] = column;
    }
    if (!row)
        return 0;
    plane->capacity = capacity;
    return 1;
}

/* What many events have in common: their metadata, their stats, and whether they have a correlation. */
static int32_t row_of(lt_plane *plane, uint64_t metadata, int32_t set, int has_correlation) {
    uint8_t key[LT_XROW];
    memcpy(key, &metadata, 8);
    memcpy(key + 8, &set, 4);
    key[12] = (uint8_t)has_correlation;
    return lt_word(&plane->rows, (lt_part){key, sizeof key});
}

static void take_event(lt_plane *plane, message event) {
    uint64_t metadata = 0, offset = 0, duration = 0, correlation = 0;
    field part;
    plane->made_length = 0;
    while (next_field(&event, &part)) {
        if (part.at) {
            if (part.number == STATS)
                take_stat(plane, &part, &correlation);
        } else if (part.number == METADATA_ID)
            metadata = part.value;
        else if (part.number == OFFSET)
            offset = part.value;
        else if (part.number == DURATION)
            duration = part.value;
    }
    lt_part kept = {plane->made ? plane->made : (const uint8_t *)"", plane->made_length};
    int32_t set = lt_word(&plane->sets, kept);
    int32_t row = set < 0 ? -1 : row_of(plane, metadata, set, correlation > 0);
    if (row < 0 || !has_room(plane)) {
        plane->failed = 1;
        return;
    }
    size_t at = plane->count++;
    plane->row[at] = row;
    plane->offset_ps[at] = (int64_t)offset;
    plane->duration_ps[at] = (int64_t)duration;
    plane->correlation[at] = (int64_t)correlation;
}

static void note_about(lt_xfield *about, const uint8_t *data, const field *part) {
    about->is_bytes = part->at != NULL;
    about->is_there = 1;
    about->value = part->at ? part->at - data : (int64_t)part->value;
    about->end = part->at ? part->end - data : 0;
}

/* The scan of a plane, of whose stats `specials` are not kept. NULL: there is no memory. */
lt_plane *lt_plane_new(const int64_t *special, const uint8_t *is_correlation, int64_t specials) {
    lt_plane *plane = calloc(1, sizeof *plane);
    size_t count = (size_t)specials;
    if (!plane)
        return NULL;
    plane->special = malloc((count + 1) * sizeof *special);
    plane->is_correlation = malloc(count + 1);
    if (!plane->special || !plane->is_correlation || lt_word(&plane->sets, (lt_part){(const uint8_t *)"", 0}) < 0) {
        lt_plane_free(plane);
        return NULL;
    }
    if (count) {
        memcpy(plane->special, special, count * sizeof *special);
        memcpy(plane->is_correlation, is_correlation, count);
    }
    plane->specials = count;
    return plane;
}

void lt_plane_free(lt_plane *plane) {
    lt_free_words(&plane->sets);
    lt_free_words(&plane->rows);
    free(plane->row);
    free(plane->offset_ps);
    free(plane->duration_ps);
    free(plane->correlation);
    free(plane->made);
    free(plane->special);
    free(plane->is_correlation);
    free(plane);
}

/* Take in the line between these places, in place of the one before. `about`: the last of its other fields of each
 * number below LT_XFIELDS; `trouble`: LT_CUT, LT_DAMAGED. Returns how many events it has; -1: there is no memory. */
int64_t lt_plane_line(lt_plane *plane, const uint8_t *data, int64_t begin, int64_t end, lt_xfield *about,
                      int64_t *trouble) {
    message line = {data + begin, data + end, trouble};
    field part;
    memset(about, 0, LT_XFIELDS * sizeof *about);
    *trouble = 0;
    plane->count = 0;
    lt_free_words(&plane->rows);
    memset(&plane->rows, 0, sizeof plane->rows);
    while (!plane->failed && next_field(&line, &part)) {
        if (part.number == OF_EVENTS) {
            if (part.at)
                take_event(plane, (message){part.at, part.end, trouble});
        } else if (part.number < LT_XFIELDS)
            note_about(&about[part.number], data, &part);
    }
    return plane->failed ? -1 : (int64_t)plane->count;
}

/* Its columns, the texts of its rows, and those of all sets of stats so far, of which the first one is empty. */
void lt_plane_columns(const lt_plane *plane, lt_xcolumns *columns) {
    columns->row = plane->row;
    columns->offset_ps = plane->offset_ps;
    columns->duration_ps = plane->duration_ps;
    columns->correlation = plane->correlation;
    columns->rows = plane->rows.text;
    columns->row_count = plane->rows.count;
    columns->sets = plane->sets.text;
    columns->set_at = plane->sets.at;
    columns->set_count = plane->sets.count;
}
