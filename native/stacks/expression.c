/* Numbers as DWARF writes them, and its stack machine (DWARF 5, 2.5), as far as unwind information uses it. */
#include "expression.h"

#include "../samples.h"

#include <string.h>

#define DEPTH 64
#define STEPS_MOST 512

uint64_t lu_take(lu_cursor *cursor, unsigned bytes) {
    uint64_t value = 0;
    if (cursor->bad || (size_t)(cursor->end - cursor->at) < bytes) {
        cursor->bad = true;
        return 0;
    }
    memcpy(&value, cursor->at, bytes);
    cursor->at += bytes;
    return value;
}

static int64_t take_signed(lu_cursor *cursor, unsigned bytes) {
    unsigned shift = 64 - 8 * bytes;
    return (int64_t)(lu_take(cursor, bytes) << shift) >> shift;
}

uint64_t lu_take_uleb(lu_cursor *cursor) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint64_t byte = lu_take(cursor, 1);
        if (cursor->bad)
            return 0;
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
}

int64_t lu_take_sleb(lu_cursor *cursor) {
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
        uint64_t byte = lu_take(cursor, 1);
        if (cursor->bad)
            return 0;
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
        shift += 7;
        if (byte & 0x80)
            continue;
        if (shift < 64 && byte & 0x40)
            value |= ~0ull << shift;
        return (int64_t)value;
    }
}

uint64_t lu_take_pointer(lu_cursor *cursor, uint8_t encoding, uint64_t here, uint64_t data) {
    enum { PC_RELATIVE = 0x10, DATA_RELATIVE = 0x30 };
    static const uint8_t sizes[16] = {[0] = 8, [2] = 2, [3] = 4, [4] = 8, [0xa] = 2, [0xb] = 4, [0xc] = 8};
    uint8_t form = encoding & 0x0f;
    uint64_t value = 0;
    if (form == 1)
        value = lu_take_uleb(cursor);
    else if (form == 9)
        value = (uint64_t)lu_take_sleb(cursor);
    else if (!sizes[form])
        cursor->bad = true;
    else
        value = form & 8 ? (uint64_t)take_signed(cursor, sizes[form]) : lu_take(cursor, sizes[form]);
    switch (encoding & 0x70) {
    case 0: return value;
    case PC_RELATIVE: return value + here;
    case DATA_RELATIVE: return value + data;
    default: cursor->bad = true; return 0;
    }
}

typedef struct {
    const lu_machine *machine;
    lu_cursor code;
    const uint8_t *start;
    uint64_t stack[DEPTH];
    unsigned depth;
} run;

static void push(run *r, uint64_t value) {
    if (r->depth == DEPTH)
        r->code.bad = true;
    else
        r->stack[r->depth++] = value;
}

static uint64_t pop(run *r) {
    if (r->depth)
        return r->stack[--r->depth];
    r->code.bad = true;
    return 0;
}

static void pick(run *r, uint64_t index) {
    if (index >= r->depth)
        r->code.bad = true;
    else
        push(r, r->stack[r->depth - 1 - index]);
}

static void push_register(run *r, uint64_t number, int64_t offset) {
    if (number >= LF_REGISTERS || !(r->machine->known >> number & 1))
        r->code.bad = true;
    else
        push(r, r->machine->registers[number] + (uint64_t)offset);
}

static void push_memory(run *r, unsigned bytes) {
    uint64_t address = pop(r), word = 0;
    if (r->code.bad || !bytes || bytes > 8 || !r->machine->read(r->machine->of, address, &word))
        r->code.bad = true;
    else
        push(r, bytes == 8 ? word : word & ((1ull << 8 * bytes) - 1));
}

static void jump(run *r, int64_t by) {
    int64_t at = r->code.at - r->start + by;
    if (at < 0 || at > r->code.end - r->start)
        r->code.bad = true;
    else
        r->code.at = r->start + at;
}

static uint64_t divided(run *r, int64_t over, int64_t by) {
    if (!by || (over == INT64_MIN && by == -1)) {
        r->code.bad = true;
        return 0;
    }
    return (uint64_t)(over / by);
}

/* Operations on two numbers, 0x1a to 0x2e without those on one. */
static uint64_t combined(run *r, uint8_t operation, uint64_t below, uint64_t top) {
    int64_t a = (int64_t)below, b = (int64_t)top;
    switch (operation) {
    case 0x1a: return below & top;
    case 0x1b: return divided(r, a, b);
    case 0x1c: return below - top;
    case 0x1d: return top ? below % top : (r->code.bad = true);
    case 0x1e: return below * top;
    case 0x21: return below | top;
    case 0x22: return below + top;
    case 0x24: return top < 64 ? below << top : 0;
    case 0x25: return top < 64 ? below >> top : 0;
    case 0x26: return (uint64_t)(a >> (top < 64 ? top : 63));
    case 0x27: return below ^ top;
    case 0x29: return a == b;
    case 0x2a: return a >= b;
    case 0x2b: return a > b;
    case 0x2c: return a <= b;
    case 0x2d: return a < b;
    case 0x2e: return a != b;
    default: r->code.bad = true; return 0;
    }
}

static void swap_or_rotate(run *r, uint8_t operation) {
    uint64_t top = pop(r), second = pop(r);
    if (operation == 0x16) {
        push(r, top);
        push(r, second);
        return;
    }
    uint64_t third = pop(r);
    push(r, top);
    push(r, third);
    push(r, second);
}

static void compute(run *r, uint8_t operation) {
    uint64_t top;
    switch (operation) {
    case 0x06: push_memory(r, 8); return;
    case 0x94: push_memory(r, (unsigned)lu_take(&r->code, 1)); return;
    case 0x12: pick(r, 0); return;
    case 0x13: pop(r); return;
    case 0x14: pick(r, 1); return;
    case 0x15: pick(r, lu_take(&r->code, 1)); return;
    case 0x16: case 0x17: swap_or_rotate(r, operation); return;
    case 0x19: top = pop(r); push(r, (int64_t)top < 0 ? 0 - top : top); return;
    case 0x1f: push(r, 0 - pop(r)); return;
    case 0x20: push(r, ~pop(r)); return;
    case 0x23: top = pop(r); push(r, top + lu_take_uleb(&r->code)); return;
    case 0x28: {
        int64_t by = take_signed(&r->code, 2);
        if (pop(r))
            jump(r, by);
        return;
    }
    case 0x2f: jump(r, take_signed(&r->code, 2)); return;
    case 0x96: return; /* nothing */
    default: top = pop(r); push(r, combined(r, operation, pop(r), top)); return;
    }
}

/* Constants and registers; false if it is something else. */
static bool load(run *r, uint8_t operation) {
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 8, 8}; /* of 0x08 to 0x0f, every other one is signed */
    if (operation >= 0x30 && operation <= 0x4f)
        push(r, operation - 0x30u);
    else if (operation >= 0x70 && operation <= 0x8f)
        push_register(r, operation - 0x70u, lu_take_sleb(&r->code));
    else if (operation == 0x92) {
        uint64_t number = lu_take_uleb(&r->code);
        push_register(r, number, lu_take_sleb(&r->code));
    } else if (operation == 0x03)
        push(r, lu_take(&r->code, 8));
    else if (operation == 0x10)
        push(r, lu_take_uleb(&r->code));
    else if (operation == 0x11)
        push(r, (uint64_t)lu_take_sleb(&r->code));
    else if (operation >= 0x08 && operation <= 0x0f) {
        unsigned bytes = sizes[operation - 8];
        push(r, operation & 1 ? (uint64_t)take_signed(&r->code, bytes) : lu_take(&r->code, bytes));
    } else
        return false;
    return true;
}

bool lu_expression(const lu_machine *machine, const uint8_t *code, size_t bytes, bool given, uint64_t *value) {
    run r = {.machine = machine, .code = {code, code + bytes, false}, .start = code};
    if (given)
        push(&r, *value);
    for (int steps = 0; r.code.at < r.code.end && !r.code.bad; steps++) {
        if (steps == STEPS_MOST)
            return false;
        uint8_t operation = (uint8_t)lu_take(&r.code, 1);
        if (!load(&r, operation))
            compute(&r, operation);
    }
    *value = pop(&r);
    return !r.code.bad;
}
