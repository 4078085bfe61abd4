/* Gives changed copies of a line of an XSpace to the scan of its events: for sanitizers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/traces.h"

static uint64_t state = 88172645463325252ull;

static uint32_t chance(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static void scan(const uint8_t *text, long length) {
    static const int64_t special[] = {-1, 2, 5};
    static const uint8_t is_correlation[] = {0, 1, 0};
    lt_plane *plane = lt_plane_new(special, is_correlation, chance() % 4);
    uint8_t *copy = malloc(length); /* of its own size: what is read behind it is seen */
    memcpy(copy, text, length);
    for (int times = 0; times < 2; times++) {
        lt_xfield about[LT_XFIELDS];
        lt_xcolumns columns;
        int64_t trouble, begin = times ? chance() % length : 0;
        int64_t count = lt_plane_line(plane, copy, begin, length, about, &trouble);
        lt_plane_columns(plane, &columns);
        for (int64_t at = 0; at < count; at++)
            if (columns.row[at] < 0 || columns.row[at] >= columns.row_count)
                exit(2);
    }
    free(copy);
    lt_plane_free(plane);
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    FILE *file = fopen(words[2], "rb");
    static uint8_t whole[1 << 20], copy[1 << 20];
    long length = (long)fread(whole, 1, sizeof whole, file);
    fclose(file);
    for (long round = atol(words[1]); round > 0; round--) {
        memcpy(copy, whole, length);
        for (uint32_t changes = chance() % 12; changes; changes--)
            copy[chance() % length] = chance() % 2 ? (uint8_t)chance() : 255;
        scan(copy, 1 + chance() % length);
        scan(copy, length);
    }
    puts("all were read");
    return 0;
}
