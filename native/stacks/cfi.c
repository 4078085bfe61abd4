/* Call frame information (.eh_frame, as the Linux Standard Base and DWARF 5, 6.4 describe it): from an address to the
 * row that tells how to get from a frame to its caller. Rows are kept by (object, address): samples hit the same
 * places. */
#define _GNU_SOURCE
#include "cfi.h"
#include "expression.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 16384u
#define REMEMBERED 16
#define OFFSET_MOST (1 << 28)
#define ENTRY_MOST (1u << 20) /* bytes of one entry of .eh_frame; the largest seen has a few thousand */

typedef struct {
    uint64_t code_align;
    int64_t data_align;
    uint64_t return_register;
    uint8_t encoding; /* of pointers to code */
    bool augmented, signal;
    lu_cursor instructions;
} cie;

typedef struct {
    uint64_t start, end;
    cie of;
    lu_cursor instructions;
} fde;

/* A function and where it is described, for objects without a table that can be searched. */
struct lu_indexed {
    uint64_t start, end;
    uint32_t entry; /* of .eh_frame */
};
typedef struct lu_indexed indexed;

/* What is being built: rules by register. */
typedef struct {
    lu_rule cfa, rules[LF_REGISTERS];
} table_row;

typedef struct {
    lu_object *object;
    const fde *of;
    table_row row, initial, remembered[REMEMBERED];
    unsigned depth;
    uint64_t location, until;
    bool begun; /* the instructions of the CIE are done */
} program;

/* The entry of .eh_frame that begins at `at`, without its length; `*next` is where the one behind it begins. */
static bool entry(lu_object *object, uint64_t at, lu_cursor *cursor, uint64_t *next) {
    const uint8_t *head = lu_section_at(&object->frames, at, 4);
    uint32_t length;
    if (!head)
        return false;
    memcpy(&length, head, 4);
    /* Length 0 ends the section; the form of 64 bits (all ones) is not used by anybody. */
    const uint8_t *bytes = length && length <= ENTRY_MOST ? lu_section_at(&object->frames, at + 4, length) : NULL;
    if (!bytes)
        return false;
    *cursor = (lu_cursor){bytes, bytes + length, false};
    *next = at + 4 + length;
    return true;
}

static uint64_t address_of(const lu_object *object, const uint8_t *at) {
    return object->frames.address + (uint64_t)(at - object->frames.bytes);
}

static void read_augmentation(lu_cursor *cursor, const char *text, cie *into) {
    uint64_t length = lu_take_uleb(cursor);
    if (cursor->bad || length > (size_t)(cursor->end - cursor->at)) {
        cursor->bad = true;
        return;
    }
    lu_cursor data = {cursor->at, cursor->at + length, false};
    cursor->at += length;
    for (const char *c = text + 1; *c; c++) {
        if (*c == 'R')
            into->encoding = (uint8_t)lu_take(&data, 1);
        else if (*c == 'P')
            lu_take_pointer(&data, (uint8_t)lu_take(&data, 1) & 0x0f, 0, 0);
        else if (*c == 'L')
            lu_take(&data, 1);
        else if (*c == 'S')
            into->signal = true;
        else if (*c != 'B')
            break; /* whatever follows is passed by its length */
    }
    cursor->bad |= data.bad;
}

static bool read_cie(lu_object *object, uint64_t at, cie *into) {
    lu_cursor cursor;
    uint64_t next;
    if (!entry(object, at, &cursor, &next) || lu_take(&cursor, 4) != 0)
        return false;
    uint64_t version = lu_take(&cursor, 1);
    const char *text = (const char *)cursor.at;
    const char *end = memchr(text, 0, (size_t)(cursor.end - cursor.at));
    if (cursor.bad || !end || (version != 1 && version != 3))
        return false;
    cursor.at = (const uint8_t *)end + 1;
    *into = (cie){.augmented = *text == 'z'};
    into->code_align = lu_take_uleb(&cursor);
    into->data_align = lu_take_sleb(&cursor);
    into->return_register = version == 1 ? lu_take(&cursor, 1) : lu_take_uleb(&cursor);
    if (*text == 'z')
        read_augmentation(&cursor, text, into);
    else if (*text)
        return false;
    into->instructions = cursor;
    return !cursor.bad && into->return_register == LF_RIP;
}

/* The FDE at `at`, if it is one. */
static bool read_fde(lu_object *object, uint64_t at, fde *into, uint64_t *next) {
    lu_cursor cursor;
    if (!entry(object, at, &cursor, next))
        return false;
    uint64_t back = lu_take(&cursor, 4);
    /* The pointer to the CIE counts back from its own place. */
    if (cursor.bad || !back || back > at + 4 || !read_cie(object, at + 4 - back, &into->of))
        return false;
    uint8_t encoding = into->of.encoding;
    into->start = lu_take_pointer(&cursor, encoding, address_of(object, cursor.at), object->table.address);
    into->end = into->start + lu_take_pointer(&cursor, encoding & 0x0f, 0, 0);
    if (into->of.augmented) {
        uint64_t length = lu_take_uleb(&cursor);
        if (length > (size_t)(cursor.end - cursor.at))
            return false;
        cursor.at += length;
    }
    into->instructions = cursor;
    return !cursor.bad && into->end > into->start;
}

static int by_start(const void *a, const void *b) {
    const indexed *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Goes through all of .eh_frame once, where no table can be searched. */
static void make_index(lu_object *object) {
    lu_cursor cursor;
    uint64_t next;
    uint32_t room = 0;
    object->indexed = true;
    for (uint64_t at = 0; entry(object, at, &cursor, &next); at = next) {
        fde found;
        uint64_t behind;
        if (at > UINT32_MAX || !read_fde(object, at, &found, &behind))
            continue;
        if (object->index_count == room) {
            room = room ? 2 * room : 256;
            indexed *grown = realloc(object->index, room * sizeof *grown);
            if (!grown)
                break;
            object->index = grown;
        }
        object->index[object->index_count++] = (indexed){found.start, found.end, (uint32_t)at};
    }
    if (object->index_count)
        qsort(object->index, object->index_count, sizeof *object->index, by_start);
}

static bool find_in_index(lu_object *object, uint64_t address, uint64_t *at) {
    if (!object->indexed)
        make_index(object);
    uint32_t low = 0, high = object->index_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (object->index[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low || address >= object->index[low - 1].end)
        return false;
    *at = object->index[low - 1].entry;
    return true;
}

/* The pairs of the table are (start of a function, its FDE), 32 bits each, relative to the table. */
static bool find_in_table(lu_object *object, uint64_t address, uint64_t *at) {
    uint32_t low = 0, high = object->table_count;
    int32_t pair[2];
    int64_t wanted = (int64_t)(address - object->table.address);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const uint8_t *bytes = lu_section_at(&object->table, object->table_at + 8ull * middle, 8);
        if (!bytes)
            return false;
        memcpy(pair, bytes, 8);
        if (pair[0] <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    const uint8_t *bytes = low ? lu_section_at(&object->table, object->table_at + 8ull * (low - 1), 8) : NULL;
    if (!bytes)
        return false;
    memcpy(pair, bytes, 8);
    *at = object->table.address + (uint64_t)(int64_t)pair[1] - object->frames.address;
    return true;
}

static void set(program *p, lu_cursor *c, uint64_t of, uint8_t kind, int64_t value) {
    int64_t most = kind == LU_REGISTER ? LF_REGISTERS : OFFSET_MOST;
    if (value <= -most || value >= most)
        c->bad = true;
    else if (of < LF_REGISTERS) /* those of vectors are saved as well: no frame is found by them */
        p->row.rules[of] = (lu_rule){(uint8_t)of, kind, 0, (int32_t)value};
}

static void set_cfa(program *p, lu_cursor *c, uint64_t of, int64_t offset) {
    if (of >= LF_REGISTERS || offset <= -OFFSET_MOST || offset >= OFFSET_MOST)
        c->bad = true;
    else
        p->row.cfa = (lu_rule){(uint8_t)of, LU_REGISTER, 0, (int32_t)offset};
}

/* An expression stays where it is. */
static lu_rule expression(program *p, lu_cursor *c, uint8_t kind) {
    uint64_t length = lu_take_uleb(c);
    uint64_t at = (uint64_t)(c->at - p->object->frames.bytes);
    if (c->bad || length > (size_t)(c->end - c->at) || length > UINT16_MAX || at > INT32_MAX) {
        c->bad = true;
        return (lu_rule){0};
    }
    c->at += length;
    return (lu_rule){0, kind, (uint16_t)length, (int32_t)at};
}

static void set_expression(program *p, lu_cursor *c, uint8_t kind) {
    uint64_t of = lu_take_uleb(c);
    lu_rule rule = expression(p, c, kind);
    rule.of = (uint8_t)of;
    if (of < LF_REGISTERS)
        p->row.rules[of] = rule;
}

static void restore(program *p, lu_cursor *c, uint64_t of) {
    if (!p->begun)
        c->bad = true;
    else if (of < LF_REGISTERS)
        p->row.rules[of] = p->initial.rules[of];
}

static void remember(program *p, lu_cursor *c) {
    if (p->depth == REMEMBERED)
        c->bad = true;
    else
        p->remembered[p->depth++] = p->row;
}

static void recall(program *p, lu_cursor *c) {
    if (!p->depth)
        c->bad = true;
    else
        p->row = p->remembered[--p->depth];
}

/* Instructions that move on: DW_CFA_set_loc, advance_loc1, 2, 4 and MIPS_advance_loc8. */
static bool advance(program *p, lu_cursor *c, uint8_t operation) {
    static const uint8_t sizes[] = {[2] = 1, [3] = 2, [4] = 4};
    if (operation == 0x01)
        p->location = lu_take_pointer(c, p->of->of.encoding, address_of(p->object, c->at), p->object->table.address);
    else if (operation >= 0x02 && operation <= 0x04)
        p->location += lu_take(c, sizes[operation]) * p->of->of.code_align;
    else if (operation == 0x1d)
        p->location += lu_take(c, 8) * p->of->of.code_align;
    else
        return false;
    return true;
}

static int64_t scaled(const program *p, int64_t value) {
    return (int64_t)((uint64_t)value * (uint64_t)p->of->of.data_align);
}

static void rare(program *p, lu_cursor *c, uint8_t operation) {
    uint64_t of;
    switch (operation) {
    case 0x00: return;
    case 0x05: of = lu_take_uleb(c); set(p, c, of, LU_AT_CFA, scaled(p, (int64_t)lu_take_uleb(c))); return;
    case 0x06: restore(p, c, lu_take_uleb(c)); return;
    case 0x07: set(p, c, lu_take_uleb(c), LU_UNDEFINED, 0); return;
    case 0x08: set(p, c, lu_take_uleb(c), LU_SAME, 0); return;
    case 0x09: of = lu_take_uleb(c); set(p, c, of, LU_REGISTER, (int64_t)lu_take_uleb(c)); return;
    case 0x0a: remember(p, c); return;
    case 0x0b: recall(p, c); return;
    case 0x0c: of = lu_take_uleb(c); set_cfa(p, c, of, (int64_t)lu_take_uleb(c)); return;
    case 0x0d: set_cfa(p, c, lu_take_uleb(c), p->row.cfa.value); return;
    case 0x0e: set_cfa(p, c, p->row.cfa.of, (int64_t)lu_take_uleb(c)); return;
    case 0x0f: p->row.cfa = expression(p, c, LU_EXPRESSION); return;
    case 0x10: set_expression(p, c, LU_EXPRESSION); return;
    case 0x11: of = lu_take_uleb(c); set(p, c, of, LU_AT_CFA, scaled(p, lu_take_sleb(c))); return;
    case 0x12: of = lu_take_uleb(c); set_cfa(p, c, of, scaled(p, lu_take_sleb(c))); return;
    case 0x13: set_cfa(p, c, p->row.cfa.of, scaled(p, lu_take_sleb(c))); return;
    case 0x14: of = lu_take_uleb(c); set(p, c, of, LU_CFA_PLUS, scaled(p, (int64_t)lu_take_uleb(c))); return;
    case 0x15: of = lu_take_uleb(c); set(p, c, of, LU_CFA_PLUS, scaled(p, lu_take_sleb(c))); return;
    case 0x16: set_expression(p, c, LU_VALUE_EXPRESSION); return;
    case 0x2e: lu_take_uleb(c); return; /* size of arguments: part of the offset to the CFA already */
    case 0x2f: of = lu_take_uleb(c); set(p, c, of, LU_AT_CFA, scaled(p, (int64_t)(0 - lu_take_uleb(c)))); return;
    default: c->bad = true; return;
    }
}

/* Runs instructions up to the address that is looked for; false if they are no good. */
static bool execute(program *p, lu_cursor c) {
    while (c.at < c.end && !c.bad) {
        uint8_t byte = (uint8_t)lu_take(&c, 1), operand = byte & 0x3f;
        switch (byte >> 6) {
        case 1: p->location += operand * p->of->of.code_align; break;
        case 2: set(p, &c, operand, LU_AT_CFA, scaled(p, (int64_t)lu_take_uleb(&c))); continue;
        case 3: restore(p, &c, operand); continue;
        default:
            if (!advance(p, &c, byte)) {
                rare(p, &c, byte);
                continue;
            }
        }
        if (p->begun && p->location > p->until)
            break;
    }
    return !c.bad;
}

static bool decode(lu_object *object, uint64_t address, lu_row *into) {
    uint64_t at, next;
    fde found;
    if (!object->frames.size ||
        !(object->table_count ? find_in_table(object, address, &at) : find_in_index(object, address, &at)) ||
        !read_fde(object, at, &found, &next) || address < found.start || address >= found.end)
        return false;
    program p = {.object = object, .of = &found, .location = found.start, .until = address};
    for (unsigned i = 0; i < LF_REGISTERS; i++)
        p.row.rules[i].of = (uint8_t)i;
    if (!execute(&p, found.of.instructions))
        return false;
    p.initial = p.row;
    p.begun = true;
    p.location = found.start;
    if (!execute(&p, found.instructions) || (p.row.cfa.kind != LU_REGISTER && p.row.cfa.kind != LU_EXPRESSION))
        return false;
    into->start = found.start;
    into->end = found.end;
    into->cfa = p.row.cfa;
    into->signal = found.of.signal;
    into->count = 0;
    for (unsigned i = 0; i < LF_REGISTERS; i++)
        if (p.row.rules[i].kind != LU_SAME)
            into->rules[into->count++] = p.row.rules[i];
    return true;
}

const lu_row *lu_row_at(lu_object *object, uint64_t address) {
    static struct {
        uint64_t address;
        uint32_t object; /* its number and one; 0: free */
        bool found;
        lu_row row;
    } rows[ROWS];
    uint64_t hash = (address ^ (uint64_t)object->facts.number << 40) * 0x9e3779b97f4a7c15u;
    uint32_t slot = (uint32_t)(hash >> 50) & (ROWS - 1);
    if (rows[slot].address != address || rows[slot].object != object->facts.number + 1) {
        rows[slot].address = address;
        rows[slot].object = object->facts.number + 1;
        rows[slot].found = decode(object, address, &rows[slot].row);
    }
    return rows[slot].found ? &rows[slot].row : NULL;
}
