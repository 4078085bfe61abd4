/* What the drainer does with the rings of the program: it waits for records, takes them, and counts what is left. The
 * drainer is in Python; layerscope/capture/rings.py loads this. */
#ifndef LAYERSCOPE_DRAINING_H
#define LAYERSCOPE_DRAINING_H

#include <stdint.h>

#include "chunks/sums.h"
#include "layout.h"

/* What rings.py expects; to be changed with any function here. */
#define LD_VERSION 1
#define LD_API __attribute__((visibility("default")))

/* A ring as the drainer has it mapped. What stands in the memory that the program can write is not trusted: `capacity`
 * is by the size of the memory. */
typedef struct {
    const lf_ring *ring;
    uint64_t capacity;
    uint64_t seen; /* records that were published at the last look of ld_wait */
} ld_ring;

LD_API int64_t ld_version(void);

/* waiting.c */
LD_API int32_t ld_wait(int32_t socket, ld_ring *rings, int64_t count, int64_t until_ns, int32_t *poll_ms);

/* taking.c */
LD_API uint64_t ld_take(const ld_ring *ring, uint64_t first, uint64_t until, uint8_t *columns);
LD_API void ld_count(const ld_ring *ring, uint64_t first, uint64_t until, li_sums *sums);
LD_API void ld_left(const ld_ring *ring, uint64_t first, uint64_t until, uint64_t left[3]);

/* counting.c */
LD_API li_sums *ld_sums_new(void);
LD_API void ld_sums_free(li_sums *sums);
LD_API void ld_sums_add(li_sums *sums, const lf_record *records, uint64_t count);
LD_API void ld_sums_go_on(li_sums *sums, const li_sums_row *rows, uint64_t count);
LD_API uint64_t ld_sums_rows(const li_sums *sums, li_sums_row *rows, uint64_t room);

#endif
