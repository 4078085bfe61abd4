/* Exact sums over the spans of a process, by name and kind: the converter compares them with what it reads. Compiled
 * into the library for programs in C and into that of the drainer. */
#include "chunks/sums.h"

#include <stdlib.h>

#define FIRST_SLOTS 256u
#define HASH 0x9e3779b97f4a7c15u

static li_sum *slot_of(const li_sums *sums, uint64_t code) {
    uint64_t i = code * HASH >> 20;
    while (sums->slots[i & sums->mask].code && sums->slots[i & sums->mask].code != code)
        i++;
    return &sums->slots[i & sums->mask];
}

/* Room for one more; 0: there is no memory. */
static int grow(li_sums *sums) {
    uint32_t size = sums->slots ? 2 * (sums->mask + 1) : FIRST_SLOTS;
    li_sums grown = {calloc(size, sizeof(li_sum)), size - 1, sums->used};
    if (!grown.slots)
        return sums->used < sums->mask; /* one stays free, so that every search ends */
    for (uint32_t i = 0; sums->slots && i <= sums->mask; i++)
        if (sums->slots[i].code)
            *slot_of(&grown, sums->slots[i].code) = sums->slots[i];
    free(sums->slots);
    *sums = grown;
    return 1;
}

/* The sum of this kind and name. NULL: there is no memory. */
static li_sum *sum_of(li_sums *sums, uint64_t kind, uint64_t name) {
    if (2 * sums->used >= sums->mask && !grow(sums))
        return NULL;
    uint64_t code = (name << 8 | kind) + 1;
    li_sum *s = slot_of(sums, code);
    sums->used += !s->code;
    s->code = code;
    return s;
}

/* Count the spans among `records`. */
void li_sums_add(li_sums *sums, const lf_record *records, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const lf_record *r = &records[i];
        li_sum *s = r->kind >= LF_FIRST_SPECIAL ? NULL : sum_of(sums, r->kind, r->name);
        if (!s)
            continue;
        s->count++;
        /* A clock that was set back makes an end before its start. */
        s->ticks += r->end > r->start ? (int64_t)(r->end - r->start) : 0;
    }
}

/* Go on from what somebody else has counted. */
void li_sums_go_on(li_sums *sums, const li_sums_row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        li_sum *s = sum_of(sums, (uint64_t)rows[i].kind & 0xff, (uint32_t)rows[i].name);
        if (!s)
            continue;
        s->count += rows[i].count;
        s->ticks += rows[i].ticks;
    }
}

/* How many there are; so many of them as there is room for are written to `rows`. */
size_t li_sums_rows(const li_sums *sums, li_sums_row *rows, size_t room) {
    size_t found = 0;
    for (uint32_t i = 0; sums->slots && i <= sums->mask; i++) {
        const li_sum *s = &sums->slots[i];
        if (!s->code)
            continue;
        if (found < room)
            rows[found] = (li_sums_row){(s->code - 1) & 0xff, (int64_t)((s->code - 1) >> 8), s->count, s->ticks};
        found++;
    }
    return found;
}
