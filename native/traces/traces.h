/* Reads traces in Chrome's JSON: every event becomes a row of columns. layerscope/sources/trace_scan.py loads it.
 * xspace.c does so with events of XSpaces.
 *
 * The file comes in pieces that end anywhere. What a trace may have that JSON has not is read too: quotes and control
 * characters in texts, NaN, no beginning, no end, several traces one behind the other. What cannot be read is counted,
 * and the next event goes on. Memory is bounded by the number of different texts and by LT_MOST_EVENT. */
#ifndef LAYERSCOPE_TRACES_H
#define LAYERSCOPE_TRACES_H

#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>

/* What trace_scan.py expects; to be changed with any function here. */
#define LT_VERSION 2
#define LT_API __attribute__((visibility("default")))
/* In a column of numbers: there is none. */
#define LT_NONE INT64_MIN
/* An event that is longer is passed over; so is what stands beside the events, if it is longer. */
#define LT_MOST_EVENT ((size_t)16 << 20)
#define LT_MOST_BESIDE ((size_t)4 << 20)
/* Values that lie deeper in each other are passed over. */
#define LT_MOST_DEPTH 256
#define LT_EXAMPLE 200
/* Arguments of an event that are looked at one by one. */
#define LT_MOST_PAIRS 256

/* Bits of the column `flags`. */
enum {
    LT_HAS_TIME = 1,
    LT_HAS_DURATION = 2,
    LT_HAS_VALUE = 4,     /* of a counter: a row for each of its series, `args` is its name, `duration` its value */
    LT_ODD_ARGUMENTS = 8, /* they are no JSON as it is written */
    LT_HAS_RECORD = 32,   /* it has a number of RecordFunction */
    LT_IMPOSSIBLE = 16    /* a time or a duration is no number, or none that can be */
};

/* Numbers among the arguments, as trace_scan.py names them; in brackets those of Kineto's events of memory. */
enum {
    LT_EXTERNAL,    /* External id (Addr) */
    LT_CORRELATION, /* correlation (Bytes) */
    LT_STREAM,      /* stream (Total Allocated) */
    LT_DEVICE,      /* device (Device Id) */
    LT_SEQUENCE,    /* Sequence number (Total Reserved) */
    LT_FORWARD,     /* Fwd thread id (Device Type) */
    LT_NUMBERS
};

/* Texts, each once, numbered in the order in which they came. */
typedef struct {
    uint8_t *text;
    uint64_t *at; /* where each begins, and where the last one ends */
    uint64_t *hash;
    int32_t *slot;
    size_t used, room;
    uint32_t count, capacity, mask, last;
} lt_words;

enum {
    LT_CATEGORIES,
    LT_NAMES,
    LT_SCALARS,
    LT_ARGUMENTS,
    LT_IDS,
    LT_BESIDE,
    LT_PLACES,       /* lt_place as it lies in memory */
    LT_WIDE_NUMBERS, /* int64_t as it lies in memory */
    LT_WORDS
};

typedef struct {
    uint8_t *phase, *flags;
    int32_t *category, *name, *pid, *tid, *args;
    int64_t *time_ns, *duration_ns, *id, *numbers[LT_NUMBERS];
    size_t count, capacity;
} lt_rows;

/* What many spans have in common; as scanned_spans.py has it. Without a gap: it is compared byte by byte. */
typedef struct {
    int64_t stream, device, forward;
    int32_t category, pid, tid, flags;
} lt_place;

/* The columns of spans, as scanned_spans.py has them. */
enum { LT_TIME, LT_DURATION, LT_LONG_COLUMNS };
enum { LT_NAME, LT_ARGS, LT_OF_OPERATOR, LT_OF_CALL, LT_OF_AUTOGRAD, LT_PLACE, LT_SHORT_COLUMNS };

typedef struct {
    int64_t *longs[LT_LONG_COLUMNS];
    int32_t *shorts[LT_SHORT_COLUMNS];
    size_t count, capacity;
} lt_spans;

/* Where the scan is. */
enum { LT_BEFORE, LT_AROUND, LT_AMONG, LT_BEHIND, LT_PASSING, LT_SEARCHING };

/* A part of a text. */
typedef struct {
    const uint8_t *at;
    size_t length;
} lt_part;

/* An argument: its name with the quotes, and its value. */
typedef struct {
    lt_part key, value;
} lt_pair;

typedef struct {
    lt_rows rows;
    lt_spans spans;
    lt_pair pair[LT_MOST_PAIRS];
    size_t pairs; /* how many there are, noted or not */
    lt_words words[LT_WORDS];
    uint8_t *rest; /* what is left of a piece */
    size_t left, room;
    uint8_t *made; /* arguments without their numbers */
    size_t made_room;
    int place, after; /* `after`: where to go on behind what is passed over */
    int takes_numbers, is_last, is_lenient, failed, in_object;
    uint8_t solid; /* while an event is looked for: the last letter that is no space */
    /* What is passed over: how deep, in a text, behind a backslash. */
    int depth, in_text, is_escaped;
    int64_t damaged, headers;
    int is_cut, is_headless, is_ended;
    uint8_t example[LT_EXAMPLE];
    size_t example_length;
} lt_scan;

/* What is said of a scan at its end. */
typedef struct {
    int64_t damaged; /* events, or what stands in their place */
    int64_t headers; /* how many traces begin in the file */
    int64_t is_ended; /* and whether the last one ends */
    int64_t is_cut;  /* the file ends within an event */
    int64_t is_headless;
} lt_about;

/* words.c */
int32_t lt_word(lt_words *words, lt_part part);
void lt_free_words(lt_words *words);

/* values.c */
const uint8_t *lt_text_end(const uint8_t *p, const uint8_t *end, int *odd);
const uint8_t *lt_raw_text_end(const uint8_t *p, const uint8_t *end, int is_key, int is_last);
const uint8_t *lt_value(const lt_scan *scan, const uint8_t *p, const uint8_t *end, int *odd, int *wrong);

#define LT_WIDE 16

/* Behind spaces. */
static inline const uint8_t *lt_space(const uint8_t *p, const uint8_t *end) {
    while (p < end && *p <= ' ' && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
        p++;
    return p;
}

/* Which of 16 letters are a quote, or what needs a second look within a text. */
static inline int lt_in_text(const uint8_t *p) {
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    __m128i letters = _mm_loadu_si128((const __m128i *)p);
    __m128i found = _mm_or_si128(_mm_cmpeq_epi8(letters, quote), _mm_cmpeq_epi8(letters, backslash));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_max_epu8(letters, control), control));
    return _mm_movemask_epi8(found);
}

/* `lt_text_end`, quicker where the text is short and plain. */
static inline const uint8_t *lt_short_text_end(const uint8_t *p, const uint8_t *end, int *odd) {
    if (end - p >= LT_WIDE) {
        int bits = lt_in_text(p);
        const uint8_t *first = p + (bits ? __builtin_ctz((unsigned)bits) : 0);
        if (bits && *first == '"')
            return first;
    }
    return lt_text_end(p, end, odd);
}

/* Behind a number of digits that do not begin with a zero, with a point among them or not; NULL: it is something else,
 * or may go on. */
static inline const uint8_t *lt_plain_number(const uint8_t *p, const uint8_t *end) {
    if (*p < '1' || *p > '9')
        return NULL;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    if (p < end && *p == '.') {
        const uint8_t *point = p++;
        while (p < end && *p >= '0' && *p <= '9')
            p++;
        if (p == point + 1)
            return NULL;
    }
    return p < end && (*p <= ' ' || *p == ',' || *p == '}' || *p == ']') ? p : NULL;
}

/* numbers.c */
int lt_scaled(lt_part part, int scale, int64_t *found);
int lt_counted(lt_part part, int64_t *found);
int lt_whole(lt_part part, int64_t *found);
int lt_is_json_word(lt_part part);

/* events.c */
size_t lt_new_row(lt_scan *scan);
const uint8_t *lt_event(lt_scan *scan, const uint8_t *p, const uint8_t *end, int *wrong);

/* arguments.c */
typedef struct {
    lt_part name, category, pid, tid, id, args, time, duration;
    uint8_t phase;
    int has_odd_args;
} lt_fields;
void lt_arguments(lt_scan *scan, const lt_fields *fields, size_t row);
void lt_series(lt_scan *scan, const lt_fields *fields, size_t row);

/* xspace.c */
enum { LT_CUT = 1, LT_DAMAGED = 2 };
/* Bytes of what events of XSpaces have in common: 8 of the metadata, 4 of the number of stats, 1. */
#define LT_XROW 13
#define LT_XFIELDS 16
typedef struct lt_plane lt_plane;
/* A field of a line: its value, or where its bytes begin and end. */
typedef struct {
    int64_t is_there, is_bytes, value, end;
} lt_xfield;
typedef struct {
    const int32_t *row;
    const int64_t *offset_ps, *duration_ps, *correlation;
    const uint8_t *rows;
    int64_t row_count;
    const uint8_t *sets;
    const uint64_t *set_at;
    int64_t set_count;
} lt_xcolumns;
LT_API lt_plane *lt_plane_new(const int64_t *special, const uint8_t *is_correlation, int64_t specials);
LT_API void lt_plane_free(lt_plane *plane);
LT_API int64_t lt_plane_line(lt_plane *plane, const uint8_t *data, int64_t begin, int64_t end, lt_xfield *about,
                             int64_t *trouble);
LT_API void lt_plane_columns(const lt_plane *plane, lt_xcolumns *columns);

/* nesting.c */
LT_API void lt_pairs(const int32_t *group, const int32_t *name, const uint8_t *begins, int64_t count, int64_t *other,
                     int64_t *stack);
LT_API int64_t lt_lanes(const int32_t *group, const int64_t *start_ns, const int64_t *end_ns, int64_t count,
                        int32_t *lane, int64_t *stack, int64_t deepest);

/* spans.c */
void lt_keep_span(lt_scan *scan, size_t row);
void lt_free_spans(lt_spans *spans);
LT_API int64_t lt_take_spans(lt_scan *scan, void **columns);
LT_API void lt_give_back(void *column);

/* scan.c */
LT_API int64_t lt_version(void);
LT_API lt_scan *lt_new(int64_t takes_numbers);
LT_API void lt_free(lt_scan *scan);
LT_API int64_t lt_feed(lt_scan *scan, const uint8_t *piece, int64_t length, int64_t is_last);
LT_API void lt_columns(const lt_scan *scan, const void **columns);
LT_API void lt_clear(lt_scan *scan);
LT_API int64_t lt_texts(const lt_scan *scan, int64_t which, const void **text, const void **at);
LT_API void lt_tell(const lt_scan *scan, lt_about *about);
LT_API int64_t lt_example(const lt_scan *scan, const void **text);

#endif
