/* Whether a CALL of one function can have come to another: that one may have ended in a jump. */
#include "jumps.h"

#include <string.h>

const lu_row *lu_row_in(const lu_space *space, uint64_t address) {
    const lu_mapping *m = lu_space_mapping(space, address);
    return m && m->object ? lu_row_at(m->object, address - m->bias) : NULL;
}

/* Whether the code at `address` may be a jump out of its function: opcode ff /4 to what was computed, or e9 with 4
 * bytes. Data that looks like it does no harm: a stack is believed then that could have been doubted. */
static bool is_jump_out(const uint8_t *code, size_t left, uint64_t address, uint64_t start, uint64_t end) {
    int32_t by;
    if (left >= 2 && code[0] == 0xff && (code[1] >> 3 & 7) == 4)
        return true;
    if (left < 5 || code[0] != 0xe9)
        return false;
    memcpy(&by, code + 1, 4);
    uint64_t to = address + 5 + (uint64_t)(int64_t)by;
    return to < start || to >= end;
}

/* Whether the function that begins at `target` may end in a jump to another one. */
bool lu_jumps_on(const lu_space *space, uint64_t target) {
    enum { BYTES = 4096 };
    static uint8_t code[BYTES];
    const lu_mapping *m = lu_space_mapping(space, target);
    const lu_row *row = lu_row_in(space, target);
    if (!m || !row)
        return m && m->object; /* a stub, or assembly */
    uint64_t start = m->bias + row->start, end = m->bias + row->end, bytes = end - target;
    if (bytes > BYTES || !lu_space_read_code(space, target, code, bytes))
        return true;
    for (size_t i = 0; i < bytes; i++)
        if (is_jump_out(code + i, bytes - i, target + i, start, end))
            return true;
    return false;
}

bool lu_leads_to(const lu_space *space, uint64_t target, uint64_t function) {
    return target == function || lu_jumps_on(space, target);
}
