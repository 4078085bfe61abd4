/* Exact sums over the spans of a process, by name and kind. */
#ifndef LAYERSCOPE_SUMS_H
#define LAYERSCOPE_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "layout.h"

typedef struct {
    uint64_t code; /* name << 8 | kind, plus 1; 0: free */
    int64_t count, ticks;
} li_sum;
typedef struct {
    li_sum *slots;
    uint32_t mask, used;
} li_sums;

/* As the raw file has them. */
typedef struct {
    int64_t kind, name, count, ticks;
} li_sums_row;

void li_sums_add(li_sums *sums, const lf_record *records, size_t count);
void li_sums_go_on(li_sums *sums, const li_sums_row *rows, size_t count);
size_t li_sums_rows(const li_sums *sums, li_sums_row *rows, size_t room);

#endif
