/* Events of a history of memory in a pickle, as long as they look as usual (sources/snapshot_events.py). Where one does
 * not, or the data end, reading stops before it, and Python reads on. */
#include <string.h>

#include "tables.h"

enum { MOST_INT_BYTES = 8, FRAME_BYTES = 9, NO_NUMBER = -1, TEXT_LENGTHS = 256 };
/* Of data that are read at once, and of what an event memorizes. */
enum { MOST_PLACE = 1 << 30, MOST_ENTRIES = 16 };
/* The codes of a pickle. */
enum {
    MARK = '(',
    EMPTY_TUPLE = ')',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    EMPTY_LIST = ']',
    APPEND = 'a',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    SETITEMS = 'u',
    EMPTY_DICT = '}',
    TUPLE2 = 0x86,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    SHORT_BINUNICODE = 0x8c,
    MEMOIZE = 0x94,
    FRAME = 0x95
};

typedef struct {
    const uint8_t *data, *at, *end;
    int32_t *memo;
    int64_t entries, room;
    int32_t *last_text; /* by length, where the last one that was memorized stands; NO_NUMBER: nowhere */
} reader;

typedef enum { IS_NUMBER, IS_ENTRY, IS_STACK, IS_OTHER } sort;
typedef struct {
    sort sort;
    int64_t number;
    int32_t kind;
} value;

/* The next code, -1 where there is none: behind it there are `more` bytes at least. */
static int next_code(reader *r, int64_t more) {
    while (r->end - r->at >= FRAME_BYTES && *r->at == FRAME)
        r->at += FRAME_BYTES;
    return r->end - r->at > more ? *r->at : -1;
}

static int take(reader *r, int code) {
    if (next_code(r, 0) != code)
        return 0;
    r->at++;
    return 1;
}

/* Where the next code memorizes what was read. 0: there is no room. */
static int memorize(reader *r, int32_t kind) {
    if (!take(r, MEMOIZE))
        return 1;
    if (r->entries == r->room)
        return 0;
    r->memo[r->entries++] = kind;
    return 1;
}

static uint64_t little_endian(const uint8_t *from, int bytes) {
    uint64_t found = 0;
    for (int i = 0; i < bytes; i++)
        found |= (uint64_t)from[i] << 8 * i;
    return found;
}

/* An entry of the memo that is named. */
static int named(reader *r, int32_t *kind) {
    int code = next_code(r, 4);
    int bytes = code == BINGET ? 1 : code == LONG_BINGET ? 4 : 0;
    if (!bytes)
        return 0;
    int64_t place = (int64_t)little_endian(r->at + 1, bytes);
    if (place >= r->entries)
        return 0;
    *kind = r->memo[place];
    r->at += 1 + bytes;
    return 1;
}

static int number(reader *r, int64_t *found) {
    int code = next_code(r, 1 + MOST_INT_BYTES);
    int bytes = code == BININT1 ? 1 : code == BININT2 ? 2 : code == BININT ? 4 : code == LONG1 ? r->at[1] : 0;
    if (bytes > MOST_INT_BYTES || (!bytes && code != LONG1))
        return 0;
    const uint8_t *from = r->at + 1 + (code == LONG1);
    uint64_t bits = little_endian(from, bytes);
    int is_signed = code == BININT || code == LONG1;
    if (is_signed && bytes && bytes < MOST_INT_BYTES && bits >> (8 * bytes - 1))
        bits |= ~0ull << 8 * bytes;
    r->at = from + bytes;
    memcpy(found, &bits, sizeof bits);
    return 1;
}

static int32_t rank_of(int32_t kind) { return ~kind & ((1 << LC_RANK_BITS) - 1); }

static int is_frame(int32_t kind) { return kind < 0 && !(~kind & LC_IS_STACK); }

/* A list of frames that came before, from the innermost one: the best of them. */
static int stack(reader *r, value *v) {
    int32_t best = ~0, kind, place = -1;
    r->at++;
    if (next_code(r, 0) == MEMOIZE) {
        place = (int32_t)r->entries;
        if (!memorize(r, LC_KIND_OTHER))
            return 0;
    }
    if (take(r, MARK)) {
        while (named(r, &kind)) {
            if (!is_frame(kind))
                return 0;
            if (rank_of(kind) > rank_of(best))
                best = kind;
        }
        if (!take(r, APPENDS))
            return 0;
    } else {
        const uint8_t *behind = r->at;
        if (named(r, &kind) && is_frame(kind) && take(r, APPEND))
            best = kind;
        else
            r->at = behind; /* an empty list */
    }
    *v = (value){IS_STACK, NO_NUMBER, ~(~best | LC_IS_STACK)};
    if (place >= 0)
        r->memo[place] = v->kind;
    return 1;
}

/* A short text. One that is memorized Python makes of the data: the same one again and again only once. */
static int text(reader *r) {
    if (next_code(r, 1) < 0 || r->end - r->at < 2 + r->at[1])
        return 0;
    const uint8_t *from = r->at;
    int64_t place = from - r->data;
    int32_t *last = &r->last_text[from[1]];
    r->at += 2 + from[1];
    if (next_code(r, 0) != MEMOIZE)
        return 1;
    if (place > MOST_PLACE)
        return 0;
    if (*last == NO_NUMBER || memcmp(r->data + *last, from, 2 + from[1]) != 0)
        *last = (int32_t)place;
    return memorize(r, LC_FRESH_TEXT + *last);
}

static int simple(reader *r, int64_t bytes) {
    if (r->end - r->at < bytes)
        return 0;
    r->at += bytes;
    return 1;
}

/* The value of a key. 0: one that Python has to read. */
static int read_value(reader *r, value *v) {
    int64_t second;
    *v = (value){IS_OTHER, NO_NUMBER, LC_KIND_OTHER};
    if (number(r, &v->number)) {
        v->sort = IS_NUMBER;
        if (!number(r, &second))
            return 1;
        v->sort = IS_OTHER;
        return take(r, TUPLE2) && memorize(r, LC_KIND_OTHER);
    }
    if (named(r, &v->kind)) {
        v->sort = IS_ENTRY;
        return 1;
    }
    switch (next_code(r, 0)) {
    case EMPTY_LIST:
        return stack(r, v);
    case SHORT_BINUNICODE:
        return text(r);
    case BINFLOAT:
        return simple(r, 9);
    case EMPTY_TUPLE:
    case NONE:
    case NEWTRUE:
    case NEWFALSE:
        return simple(r, 1);
    default:
        return 0;
    }
}

/* Put a value where its key says; row: action, address, size, time, line, what was free. */
static int set(int64_t row[LC_KEYS], int32_t key, const value *v) {
    if (key >= LC_KIND_TEXT)
        return 1;
    if (key == LC_KIND_ACTION) {
        if (v->sort != IS_ENTRY || v->kind < LC_KIND_TEXT || v->kind >= LC_FRESH_TEXT)
            return 0;
        row[0] = v->kind >= LC_FIRST_ACTION ? v->kind - LC_FIRST_ACTION : 0;
        return 1;
    }
    if (key == LC_KIND_FRAMES) {
        int is_stack = v->sort == IS_STACK || (v->sort == IS_ENTRY && v->kind < 0 && !is_frame(v->kind));
        row[LC_KIND_FRAMES - 1] = is_stack ? (~v->kind >> LC_PLACE_SHIFT) - 1 : -1;
        return is_stack;
    }
    row[key - 1] = v->number;
    return v->sort == IS_NUMBER;
}

static int event(reader *r, int64_t row[LC_KEYS]) {
    int has_action = 0;
    int64_t known = r->entries;
    if (!take(r, EMPTY_DICT) || !memorize(r, LC_KIND_OTHER) || !take(r, MARK))
        return 0;
    for (int i = 0; i < LC_KEYS; i++)
        row[i] = NO_NUMBER;
    while (!take(r, SETITEMS)) {
        int32_t key;
        value v;
        if (!named(r, &key) || key <= LC_KIND_OTHER || key >= LC_FRESH_TEXT)
            return 0;
        if (!read_value(r, &v) || !set(row, key, &v) || r->entries - known > MOST_ENTRIES)
            return 0;
        has_action |= key == LC_KIND_ACTION;
    }
    return has_action;
}

/* The events from the beginning of `data` on, a row each; what they memorize goes into `memo`, of which
 * `reached[1]` entries are known. Into `reached`: how many bytes were read, and how many entries are known then. */
LC_API int64_t lc_events(const uint8_t *data, int64_t size, int32_t *memo, int64_t memo_room, int64_t *rows,
                         int64_t room, int64_t *reached) {
    int32_t last_text[TEXT_LENGTHS];
    for (int i = 0; i < TEXT_LENGTHS; i++)
        last_text[i] = NO_NUMBER;
    reader r = {data, data, data + size, memo, reached[1], memo_room, last_text};
    int64_t count = 0;
    while (count < room) {
        reader before = r;
        /* One batch of a list may end here and the next one begin. */
        if (take(&r, APPENDS) && !take(&r, MARK)) {
            r = before;
            break;
        }
        if (!event(&r, rows + count * LC_KEYS)) {
            r = before;
            break;
        }
        count++;
    }
    reached[0] = r.at - data;
    reached[1] = r.entries;
    return count;
}
