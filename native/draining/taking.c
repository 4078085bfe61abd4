/* Takes records out of a ring. */
#include "draining.h"

#include <string.h>

/* Eight records are eight columns of bytes for each of their words. */
#define WORDS (LF_RECORD_BYTES / 8)

LD_API int64_t ld_version(void) { return LD_VERSION; }

/* Swaps the bits of `a` above `shift` and those of `b` below it, where `mask` has them. */
#define SWAP(a, b, shift, mask)                              \
    do {                                                     \
        uint64_t differ = ((a) >> (shift) ^ (b)) & (mask);   \
        (b) ^= differ;                                       \
        (a) ^= differ << (shift);                            \
    } while (0)

/* The bytes of a square of eight by eight change places across its diagonal. */
static inline void transpose(uint64_t row[8]) {
    for (int i = 0; i < 4; i++)
        SWAP(row[i], row[i + 4], 32, 0x00000000ffffffffu);
    for (int i = 0; i < 8; i += 4)
        for (int j = i; j < i + 2; j++)
            SWAP(row[j], row[j + 2], 16, 0x0000ffff0000ffffu);
    for (int i = 0; i < 8; i += 2)
        SWAP(row[i], row[i + 1], 8, 0x00ff00ff00ff00ffu);
}

/* Writes `count` records into the `columns` of `all` records, from the place `at` on. */
static void to_columns(const lf_record *records, uint64_t count, uint8_t *columns, uint64_t at, uint64_t all) {
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t eight[8][WORDS], column[8];
        memcpy(eight, records + i, sizeof eight);
        for (int word = 0; word < (int)WORDS; word++) {
            for (int record = 0; record < 8; record++)
                column[record] = eight[record][word];
            transpose(column);
            for (int byte = 0; byte < 8; byte++)
                memcpy(columns + (uint64_t)(8 * word + byte) * all + at + i, &column[byte], 8);
        }
    }
    for (; i < count; i++)
        for (uint64_t byte = 0; byte < LF_RECORD_BYTES; byte++)
            columns[byte * all + at + i] = ((const uint8_t *)(records + i))[byte];
}

/* The records from the `first` to before `until` lie in two pieces at most. */
static uint64_t pieces(const ld_ring *ring, uint64_t first, uint64_t until, uint64_t *before_end) {
    uint64_t from = first % ring->capacity, to = until % ring->capacity;
    if (first == until)
        return *before_end = 0;
    *before_end = to > from ? to - from : ring->capacity - from;
    return to > from ? to - from : *before_end + to;
}

/* Copies records into `columns`, which has room for all of a ring, byte by byte of all of them. Returns how many there
 * are. */
LD_API uint64_t ld_take(const ld_ring *ring, uint64_t first, uint64_t until, uint8_t *columns) {
    uint64_t before_end, count = pieces(ring, first, until, &before_end);
    to_columns(ring->ring->records + first % ring->capacity, before_end, columns, 0, count);
    to_columns(ring->ring->records, count - before_end, columns, before_end, count);
    return count;
}

/* Counts the spans among them. */
LD_API void ld_count(const ld_ring *ring, uint64_t first, uint64_t until, li_sums *sums) {
    uint64_t before_end, count = pieces(ring, first, until, &before_end);
    li_sums_add(sums, ring->ring->records + first % ring->capacity, before_end);
    li_sums_add(sums, ring->ring->records, count - before_end);
}

static void add_left(const lf_record *records, uint64_t count, uint64_t left[3]) {
    for (uint64_t i = 0; i < count; i++) {
        left[0] += records[i].kind < LF_FIRST_SPECIAL;
        if (records[i].kind == LF_LOST) {
            left[1] += records[i].name;
            left[2] += records[i].module;
        }
    }
}

/* Adds up what nobody will take: spans, and the losses that are written there (ring full, too deep). */
LD_API void ld_left(const ld_ring *ring, uint64_t first, uint64_t until, uint64_t left[3]) {
    uint64_t before_end, count = pieces(ring, first, until, &before_end);
    add_left(ring->ring->records + first % ring->capacity, before_end, left);
    add_left(ring->ring->records, count - before_end, left);
}
