/* The format is that of symbols/python_code.py: entries, each for some instructions of two bytes, with how far their
 * line is from that of the entry before. */
#include "location_table.h"

enum { SHORT = 10, NO_COLUMNS = 13, LONG = 14, NO_LOCATION = 15 }; /* SHORT and the two behind it: 0, 1, 2 lines on */
enum { UNIT_BYTES = 2, IS_HEAD = 0x80, HAS_MORE = 0x40, BITS = 6, MOST_BITS = 31 };

/* A number of which the lowest bit is the sign; at the end of the table 0. */
static int signed_number(const uint8_t *at, const uint8_t *end) {
    uint32_t number = 0;
    for (uint32_t shift = 0; at < end && shift < MOST_BITS; at++, shift += BITS) {
        number |= (uint32_t)(*at & (HAS_MORE - 1)) << shift;
        if (!(*at & HAS_MORE))
            break;
    }
    int size = (int)(number >> 1);
    return number & 1 ? -size : size;
}

static int lines_on(int kind, const uint8_t *behind, const uint8_t *end) {
    if (kind == NO_COLUMNS || kind == LONG)
        return signed_number(behind, end);
    return kind >= SHORT && kind < NO_COLUMNS ? kind - SHORT : 0;
}

int ls_line_of_place(const uint8_t *table, size_t bytes, int first_line, uint32_t place) {
    const uint8_t *at = table, *end = table + bytes;
    int line = first_line;
    uint32_t until = 0;
    while (at < end) {
        int kind = *at >> 3 & 15;
        until += UNIT_BYTES * (uint32_t)((*at & 7) + 1);
        line += lines_on(kind, ++at, end);
        if (place < until)
            return kind == NO_LOCATION || line < 0 ? 0 : line;
        while (at < end && !(*at & IS_HEAD))
            at++;
    }
    return 0;
}
