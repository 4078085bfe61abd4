/* Code that the processes make while they run, by the names that they told (native/agent/jit_code.c). A forked child has
 * what its parent had made. */
#define _GNU_SOURCE
#include "jit_code.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

#define MADE_MOST 65536u /* of a process */

typedef struct sm_made made_code;
struct sm_made {
    uint64_t from, until;
    uint32_t number;
};

static uint32_t given;

/* The place of the first that ends behind `address`. */
static uint32_t place_of(const sm_process *p, uint64_t address) {
    uint32_t low = 0, high = p->made.count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->made.codes[middle].until <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int make_room(sm_process *p) {
    if (p->made.count < p->made.room)
        return 0;
    uint32_t room = p->made.room ? p->made.room * 2 : 64;
    made_code *larger = room <= MADE_MOST ? realloc(p->made.codes, room * sizeof *larger) : NULL;
    if (!larger)
        return -1;
    p->made.codes = larger, p->made.room = room;
    return 0;
}

static void inherit(sm_process *p) {
    const sm_process *parent = p->made.has_inherited ? NULL : sm_process_at(p->ppid);
    p->made.has_inherited = 1;
    if (!parent || !parent->made.count || p->made.codes)
        return;
    p->made.codes = calloc(parent->made.count, sizeof *p->made.codes);
    if (!p->made.codes)
        return;
    memcpy(p->made.codes, parent->made.codes, parent->made.count * sizeof *p->made.codes);
    p->made.count = p->made.room = parent->made.count;
}

/* Its number in the file and how far `address` lies in it; LT_NONE: nobody has told. */
uint32_t sm_made_at(sm_process *p, uint64_t address, uint64_t *offset) {
    inherit(p);
    uint32_t at = place_of(p, address);
    if (at == p->made.count || p->made.codes[at].from > address)
        return LT_NONE;
    *offset = address - p->made.codes[at].from;
    return p->made.codes[at].number;
}

/* What lay there before is gone. */
static int put(sm_process *p, made_code made) {
    uint32_t at = place_of(p, made.from), end = at;
    while (end < p->made.count && p->made.codes[end].from < made.until)
        end++;
    if (end == at && make_room(p))
        return -1;
    memmove(&p->made.codes[at + 1], &p->made.codes[end], (p->made.count - end) * sizeof made);
    p->made.count += at + 1 - end;
    p->made.codes[at] = made;
    return 0;
}

void sm_take_made(sm_process *p, const lf_sample_made *record, size_t bytes) {
    uint64_t until = record->address + record->code_bytes;
    if (record->name_bytes > bytes - sizeof *record || until <= record->address || !sm_may_define())
        return;
    inherit(p);
    if (put(p, (made_code){record->address, until, given}))
        return;
    lt_made *row = sm_text_row(LT_MADES, sizeof *row, record->name_bytes);
    if (!row) {
        put(p, (made_code){record->address, until, LT_NONE});
        return;
    }
    *row = (lt_made){given++, p->number, record->address, record->code_bytes, record->name_bytes, 0};
    memcpy(row + 1, record + 1, record->name_bytes);
}

void sm_made_forget(sm_process *p) {
    free(p->made.codes);
}
