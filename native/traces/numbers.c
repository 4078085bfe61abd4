/* Decimal numbers as whole ones, exactly: no double has room for the nanoseconds of a time that began long ago. */
#include <string.h>

#include "traces.h"

/* More digits than this make no difference but to how a half is rounded. */
#define MOST_DIGITS 30
#define MOST_EXPONENT 1000
#define MOST_POWER 38 /* 10^38 < 2^128 */
/* Below this all sums fit into 64 bits. */
#define MOST_NUMBER ((unsigned __int128)1 << 61)
/* So many digits, with three zeros behind them, are less than 2^64. */
#define PLAIN_LETTERS 16

static int is_digit(uint8_t letter) { return letter >= '0' && letter <= '9'; }

/* The exponent at p; 0 where there is none. */
static int exponent_of(const uint8_t **p, const uint8_t *end) {
    const uint8_t *at = *p;
    if (at >= end || (*at | 32) != 'e')
        return 0;
    at++;
    int is_negative = at < end && *at == '-', found = 0;
    at += at < end && (*at == '-' || *at == '+');
    if (at >= end || !is_digit(*at))
        return 0;
    for (; at < end && is_digit(*at); at++)
        found = found < MOST_EXPONENT ? found * 10 + (*at - '0') : found;
    *p = at;
    return is_negative ? -found : found;
}

/* `digits` times ten to the power, to the nearest whole number, of two the even one; `is_more`: a little above that. */
static int shifted(unsigned __int128 digits, int power, int is_more, unsigned __int128 *found) {
    for (; power > 0 && digits; power--) {
        if (digits >> 64)
            return 0;
        digits *= 10;
    }
    unsigned __int128 unit = 1;
    if (power < -MOST_POWER)
        digits = 0;
    else
        for (; power < 0; power++)
            unit *= 10;
    unsigned __int128 whole = digits / unit, twice = (digits % unit) * 2;
    whole += twice > unit || (twice == unit && (is_more || (whole & 1)));
    *found = whole;
    return 1;
}

/* A number times ten to the power `scale`, without its sign; 0: it is none, or far too large. */
static int read_number(const uint8_t *p, const uint8_t *end, int scale, unsigned __int128 *found) {
    unsigned __int128 digits = 0;
    int count = 0, seen = 0, power = scale, is_more = 0, is_behind = 0;
    for (; p < end; p++) {
        if (*p == '.' && !is_behind) {
            is_behind = 1;
            continue;
        }
        if (!is_digit(*p))
            break;
        seen = 1;
        if (count < MOST_DIGITS) {
            digits = digits * 10 + (unsigned)(*p - '0');
            count += digits != 0;
            power -= is_behind;
        } else {
            is_more |= *p != '0';
            power += !is_behind;
        }
        if (power > MOST_EXPONENT)
            return 0;
    }
    if (!seen)
        return 0;
    power += exponent_of(&p, end);
    return p == end && shifted(digits, power, is_more, found);
}

/* The usual one, in a tenth of the time: few digits, no exponent, no more decimals than `scale`. */
static int read_plain(const uint8_t *p, const uint8_t *end, int scale, uint64_t *found) {
    if (p == end || end - p > PLAIN_LETTERS)
        return 0;
    uint64_t whole = 0;
    const uint8_t *first = p;
    for (; p < end && is_digit(*p); p++)
        whole = whole * 10 + (uint64_t)(*p - '0');
    if (p == first)
        return 0;
    if (p < end && *p == '.')
        for (p++; p < end && is_digit(*p); p++, scale--)
            whole = whole * 10 + (uint64_t)(*p - '0');
    if (p != end || scale < 0)
        return 0;
    for (; scale; scale--)
        whole *= 10;
    *found = whole;
    return 1;
}

static int scaled(lt_part part, int scale, int *is_negative, unsigned __int128 *found) {
    const uint8_t *p = part.at, *end = part.at + part.length;
    if (part.length > 1 && *p == '"') {
        p++;
        end--;
    }
    *is_negative = p < end && *p == '-';
    p += *is_negative;
    uint64_t plain;
    if (read_plain(p, end, scale, &plain)) {
        *found = plain;
        return 1;
    }
    return read_number(p, end, scale, found);
}

/* A number, which may stand in quotes, times ten to the power `scale`; 0: it is none, or none that can be. */
int lt_scaled(lt_part part, int scale, int64_t *found) {
    int is_negative;
    unsigned __int128 whole;
    if (!scaled(part, scale, &is_negative, &whole) || whole >= MOST_NUMBER)
        return 0;
    *found = is_negative ? -(int64_t)whole : (int64_t)whole;
    return 1;
}

/* The value of a counter, to the nearest whole number. One that counts without a sign and fell below zero is written as
 * a number near 2^64. */
int lt_counted(lt_part part, int64_t *found) {
    int is_negative;
    unsigned __int128 whole;
    if (*part.at == '"' || !scaled(part, 0, &is_negative, &whole))
        return 0;
    if (whole > (is_negative ? (unsigned __int128)1 << 63 : (unsigned __int128)UINT64_MAX))
        return 0;
    *found = (int64_t)(is_negative ? -(uint64_t)whole : (uint64_t)whole);
    return 1;
}

/* Whether a word is a number as JSON has them, or true, false or null. */
int lt_is_json_word(lt_part part) {
    const uint8_t *p = part.at, *end = part.at + part.length;
    if ((part.length == 4 && (!memcmp(p, "true", 4) || !memcmp(p, "null", 4))) ||
        (part.length == 5 && !memcmp(p, "false", 5)))
        return 1;
    p += p < end && *p == '-';
    if (p >= end || !is_digit(*p))
        return 0;
    if (*p++ != '0')
        while (p < end && is_digit(*p))
            p++;
    if (p < end && *p == '.') {
        if (++p >= end || !is_digit(*p))
            return 0;
        while (p < end && is_digit(*p))
            p++;
    }
    if (p < end && (*p | 32) == 'e') {
        p++;
        p += p < end && (*p == '-' || *p == '+');
        if (p >= end || !is_digit(*p))
            return 0;
        while (p < end && is_digit(*p))
            p++;
    }
    return p == end;
}

/* A whole number that fits; 0: it is none. */
int lt_whole(lt_part part, int64_t *found) {
    const uint8_t *p = part.at, *end = part.at + part.length;
    int is_negative = p < end && *p == '-';
    p += is_negative;
    if (p >= end || end - p > 19)
        return 0;
    uint64_t whole = 0;
    for (; p < end; p++) {
        if (!is_digit(*p))
            return 0;
        whole = whole * 10 + (uint64_t)(*p - '0');
    }
    if (whole > INT64_MAX)
        return 0;
    *found = is_negative ? -(int64_t)whole : (int64_t)whole;
    return 1;
}
