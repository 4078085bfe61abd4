/* How far the frame of a kernel of oneDNN reaches. Its functions end (jit_generator's postamble) with
 *     add rsp, n;  pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp;  vzeroupper;  ret
 * where the first and the one before the last may be missing and rbp come before rbx. */
#include "jit_frames.h"
#include "space.h"

#include <string.h>

#define CODE_MOST 32768u
#define PUSHED 48u
#define KNOWN 4096u

/* Bytes that the function at `end` (its first pop) gives back before, as `add rsp, n` with 1 or 4 bytes. */
static uint32_t given_back(const uint8_t *code, const uint8_t *end) {
    enum { NEAR = 24 };
    for (const uint8_t *at = end - 4; at >= code && end - at < NEAR; at--) {
        uint32_t bytes;
        if (at[0] != 0x48 || at[2] != 0xc4)
            continue;
        if (at[1] == 0x83)
            return at[3];
        if (at[1] == 0x81 && end - at >= 7) {
            memcpy(&bytes, at + 3, 4);
            return bytes;
        }
    }
    return 0;
}

static bool returns(const uint8_t *at, const uint8_t *end) {
    static const uint8_t zero_upper[] = {0xc5, 0xf8, 0x77};
    if (end - at >= 4 && !memcmp(at, zero_upper, 3))
        at += 3;
    return at < end && at[0] == 0xc3;
}

/* Bytes from the stack pointer to the return address, 0: not known. */
static uint32_t frame_bytes(const uint8_t *code, size_t bytes) {
    static const uint8_t pops[] = {0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c};
    const uint8_t *end = code + bytes;
    for (const uint8_t *at = code; end - at > (ptrdiff_t)sizeof pops + 2; at++) {
        at = memchr(at, pops[0], (size_t)(end - at) - sizeof pops - 2);
        if (!at)
            return 0;
        const uint8_t *last = at + sizeof pops;
        bool both = (last[0] == 0x5b && last[1] == 0x5d) || (last[0] == 0x5d && last[1] == 0x5b);
        if (!memcmp(at, pops, sizeof pops) && both && returns(last + 2, end))
            return given_back(code, at) + PUSHED;
    }
    return 0;
}

uint64_t lu_made_code_slot(lu_space *space, uint64_t pc, uint64_t sp) {
    static uint8_t code[CODE_MOST];
    static struct {
        const lu_space *space;
        uint64_t pc;
        uint32_t bytes;
    } known[KNOWN];
    uint32_t slot = (uint32_t)((pc * 0x9e3779b97f4a7c15u) >> 40) & (KNOWN - 1);
    if (known[slot].space != space || known[slot].pc != pc) {
        const lu_mapping *m = lu_space_mapping(space, pc);
        size_t bytes = m && m->end - pc < CODE_MOST ? m->end - pc : CODE_MOST;
        known[slot].bytes = m && lu_space_read_code(space, pc, code, bytes) ? frame_bytes(code, bytes) : 0;
        known[slot].space = space;
        known[slot].pc = pc;
    }
    return known[slot].bytes ? (sp + known[slot].bytes) & ~7ull : 0;
}
