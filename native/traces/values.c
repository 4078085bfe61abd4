/* Values of JSON: where they end. */
#include "traces.h"

static int is_escape(const uint8_t *p, const uint8_t *end) {
    switch (*p) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return 1;
    case 'u':
        if (end - p < 5)
            return 0;
        for (int i = 1; i < 5; i++)
            if (!((p[i] >= '0' && p[i] <= '9') || ((p[i] | 32) >= 'a' && (p[i] | 32) <= 'f')))
                return 0;
        return 1;
    }
    return 0;
}

/* The closing quote of a text that begins at p, NULL: there is none. `*odd`: it has what JSON forbids. */
const uint8_t *lt_text_end(const uint8_t *p, const uint8_t *end, int *odd) {
    for (;;) {
        for (; end - p >= LT_WIDE; p += LT_WIDE) {
            int bits = lt_in_text(p);
            if (bits) {
                p += __builtin_ctz((unsigned)bits);
                break;
            }
        }
        while (p < end && *p != '"' && *p != '\\' && *p > 0x1f)
            p++;
        if (p >= end)
            return NULL;
        if (*p == '"')
            return p;
        if (*p++ != '\\') {
            *odd = 1;
            continue;
        }
        if (p >= end)
            return NULL;
        *odd |= !is_escape(p, end);
        p++;
    }
}

static int is_value_start(uint8_t letter) {
    return letter == '"' || letter == '{' || letter == '[' || letter == '-' || (letter >= '0' && letter <= '9') ||
           letter == 't' || letter == 'f' || letter == 'n' || letter == 'N' || letter == 'I';
}

#define MOST_KEY 128

/* Whether a key with its colon begins at p; -1: the text ends before that is known. */
static int is_key(const uint8_t *p, const uint8_t *end) {
    if (p >= end)
        return -1;
    if (*p++ != '"')
        return 0;
    const uint8_t *first = p;
    while (p < end && *p != '"' && p - first < MOST_KEY)
        p++;
    if (p >= end)
        return -1;
    if (*p != '"')
        return 0;
    p = lt_space(p + 1, end);
    return p >= end ? -1 : *p == ':';
}

/* Whether what stands behind a quote is what comes behind a key, or behind a value of an object. */
static int is_behind(const uint8_t *p, const uint8_t *end, int of_key) {
    p = lt_space(p, end);
    if (p >= end)
        return -1;
    if (of_key) {
        if (*p != ':')
            return 0;
        p = lt_space(p + 1, end);
        return p >= end ? -1 : is_value_start(*p);
    }
    if (*p == ',')
        return is_key(lt_space(p + 1, end), end);
    if (*p != '}')
        return 0;
    p = lt_space(p + 1, end);
    return p >= end ? -1 : *p == ',' || *p == '}' || *p == ']';
}

/* The closing quote of a text in an object that was written as it is, with quotes within it; NULL: there is none. */
const uint8_t *lt_raw_text_end(const uint8_t *p, const uint8_t *end, int of_key, int is_last) {
    for (; p < end; p++) {
        if (*p != '"')
            continue;
        int found = is_behind(p + 1, end, of_key);
        if (found < 0)
            return is_last && !of_key ? p : NULL;
        if (found)
            return p;
    }
    return NULL;
}

static const uint8_t *text_end(const lt_scan *scan, const uint8_t *p, const uint8_t *end, int of_key, int *odd) {
    if (!scan->is_lenient)
        return lt_short_text_end(p, end, odd);
    *odd = 1;
    return lt_raw_text_end(p, end, of_key, scan->is_last);
}

static int is_of_token(uint8_t letter) {
    return (letter >= '0' && letter <= '9') || ((letter | 32) >= 'a' && (letter | 32) <= 'z') || letter == '.' ||
           letter == '-' || letter == '+' || letter == '_';
}

/* Whether it is such as programs write that know JSON badly: NaN, -inf, +5, 007, .5. */
static int is_odd_word(lt_part part) {
    const uint8_t *p = part.at, *end = part.at + part.length;
    p += *p == '-' || *p == '+';
    int is_word = p < end && (*p | 32) >= 'a' && (*p | 32) <= 'z', points = 0;
    for (; p < end; p++) {
        points += *p == '.';
        int is_digit = *p >= '0' && *p <= '9', is_letter = (*p | 32) >= 'a' && (*p | 32) <= 'z';
        if (!is_digit && !(is_word && (is_letter || *p == '_')) && !(*p == '.' && !is_word && points == 1))
            return 0;
    }
    return 1;
}

/* A number or a word; `*odd`: one that JSON has not, such as NaN. NULL: it may go on. */
static const uint8_t *token_end(const uint8_t *p, const uint8_t *end, int *odd, int *wrong) {
    const uint8_t *first = p;
    while (p < end && is_of_token(*p))
        p++;
    if (p >= end)
        return NULL;
    if (p == first) {
        *wrong = 1;
        return NULL;
    }
    const uint8_t *at = first + (*first == '-');
    if (*at >= '1' && *at <= '9')
        while (at < p && *at >= '0' && *at <= '9')
            at++;
    else
        at += *at == '0';
    if (at == p && p[-1] != '-')
        return p;
    lt_part part = {first, (size_t)(p - first)};
    if (lt_is_json_word(part))
        return p;
    *odd = 1;
    if (is_odd_word(part))
        return p;
    *wrong = 1;
    return NULL;
}

/* Behind the value at p; NULL: it does not end here, or with `*wrong` it is none. */
const uint8_t *lt_value(const lt_scan *scan, const uint8_t *p, const uint8_t *end, int *odd, int *wrong) {
    uint8_t closing[LT_MOST_DEPTH];
    int depth = 0;
value:
    p = lt_space(p, end);
    if (p >= end)
        return NULL;
    if (*p == '"') {
        int in_object = !depth || closing[depth - 1] == '}';
        p = in_object ? text_end(scan, p + 1, end, 0, odd) : lt_short_text_end(p + 1, end, odd);
        if (!p)
            return NULL;
        p++;
    } else if (*p == '{' || *p == '[') {
        if (depth == LT_MOST_DEPTH) {
            *wrong = 1;
            return NULL;
        }
        closing[depth++] = *p == '{' ? '}' : ']';
        p = lt_space(p + 1, end);
        if (p >= end)
            return NULL;
        if (*p != closing[depth - 1]) {
            if (closing[depth - 1] == '}')
                goto key;
            goto value;
        }
        depth--;
        p++;
    } else {
        const uint8_t *behind = lt_plain_number(p, end);
        p = behind ? behind : token_end(p, end, odd, wrong);
        if (!p)
            return NULL;
    }
    while (depth) {
        p = lt_space(p, end);
        if (p >= end)
            return NULL;
        if (*p == ',') {
            p = lt_space(p + 1, end);
            if (p >= end)
                return NULL;
            if (*p != closing[depth - 1]) {
                if (closing[depth - 1] == '}')
                    goto key;
                goto value;
            }
            *odd = 1; /* a comma behind the last one */
        }
        if (*p != closing[depth - 1]) {
            *wrong = 1;
            return NULL;
        }
        depth--;
        p++;
    }
    return p;
key:
    if (*p != '"') {
        *wrong = 1;
        return NULL;
    }
    p = text_end(scan, p + 1, end, 1, odd);
    if (!p)
        return NULL;
    p = lt_space(p + 1, end);
    if (p >= end)
        return NULL;
    if (*p != ':') {
        *wrong = 1;
        return NULL;
    }
    p++;
    goto value;
}
