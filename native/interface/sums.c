/* Exact sums over the spans of a process, by name and kind: the converter compares them with what it reads. */
#define _GNU_SOURCE
#include "interface.h"

#include <stdlib.h>
#include <string.h>

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

/* Count the spans among `records`. */
void li_sums_add(li_sums *sums, const lf_record *records, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const lf_record *r = &records[i];
        if (r->kind >= LF_COUNTER)
            continue;
        if (2 * sums->used >= sums->mask && !grow(sums))
            continue;
        uint64_t code = ((uint64_t)r->name << 8 | r->kind) + 1;
        li_sum *s = slot_of(sums, code);
        sums->used += !s->code;
        s->code = code;
        s->count++;
        s->ticks += r->end > r->start ? (int64_t)(r->end - r->start) : 0;
    }
}

/* Append them as the raw file has them: kind, name, count, ticks. */
void li_sums_add_to(li_text *text, const li_sums *sums) {
    size_t bytes = (size_t)sums->used * 4 * sizeof(int64_t);
    int64_t *rows = malloc(bytes ? bytes : 1), *row = rows;
    for (uint32_t i = 0; rows && sums->slots && i <= sums->mask; i++) {
        const li_sum *s = &sums->slots[i];
        if (!s->code)
            continue;
        row[0] = (int64_t)((s->code - 1) & 0xff);
        row[1] = (int64_t)((s->code - 1) >> 8);
        row[2] = s->count;
        row[3] = s->ticks;
        row += 4;
    }
    text->data = (char *)rows;
    text->used = bytes;
    text->failed = !rows;
}
