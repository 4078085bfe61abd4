/* How far the frame of a kernel of oneDNN reaches. Its functions end (jit_generator's postamble) with
 *     add rsp, n;  pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp;  vzeroupper;  ret
 * where the first and the one before the last may be missing and rbp come before rbx. Those of matrix products that have
 * pointed rsp into memory of their own begin that with
 *     mov rsp, [rsp + n];  vzeroupper */
#include "jit_frames.h"
#include "space.h"

#include <string.h>

/* Of the code behind an instruction: matrix products are unrolled into some hundred KB. */
#define CODE_MOST (512u << 10)
#define READ_ONCE (32u << 10)
#define PUSHED 48u
#define POPS 8u /* bytes of the first four */
#define END_MOST (POPS + 2u + 4u) /* of all, vzeroupper and ret */
#define BEFORE_MOST 24u
#define KNOWN 4096u
#define FUNCTIONS 64u

typedef struct {
    bool is_known, has_moved; /* moved: rsp points elsewhere, and `kept_at` bytes above it lies what it was */
    uint32_t kept_at;
    uint32_t bytes; /* from the stack pointer to the return address */
    uint64_t end;   /* where its pops begin; in bytes from where the search began */
} made_frame;

/* The number of 1 or 4 bytes in an instruction that ends before `end`. */
static bool number_at(const uint8_t *at, const uint8_t *end, bool is_long, uint32_t *number) {
    *number = *at;
    if (is_long && end - at >= 4)
        memcpy(number, at, 4);
    return !is_long || end - at >= 4;
}

/* What the function whose first pop is at `end` does with rsp before that: the nearest such instruction. */
static made_frame before_pops(const uint8_t *code, const uint8_t *end) {
    made_frame f = {.is_known = true, .bytes = PUSHED};
    uint32_t number;
    for (const uint8_t *at = end - 4; at >= code && end - at < (ptrdiff_t)BEFORE_MOST; at--) {
        bool adds = at[0] == 0x48 && (at[1] == 0x83 || at[1] == 0x81) && at[2] == 0xc4;
        if (adds && number_at(at + 3, end, at[1] == 0x81, &number)) {
            f.bytes += number;
            return f;
        }
        bool loads = at[0] == 0x48 && at[1] == 0x8b && (at[2] == 0x64 || at[2] == 0xa4) && at[3] == 0x24;
        if (loads && end - at >= 5 && number_at(at + 4, end, at[2] == 0xa4, &number)) {
            f.has_moved = true;
            f.kept_at = number;
            return f;
        }
    }
    return f;
}

static bool returns(const uint8_t *at, const uint8_t *end) {
    static const uint8_t zero_upper[] = {0xc5, 0xf8, 0x77};
    if (end - at >= 4 && !memcmp(at, zero_upper, 3))
        at += 3;
    return at < end && at[0] == 0xc3;
}

/* By the first end of a function in `code`. */
static made_frame frame_by(const uint8_t *code, size_t bytes) {
    static const uint8_t pops[POPS] = {0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c};
    const uint8_t *end = code + bytes;
    for (const uint8_t *at = code; end - at > (ptrdiff_t)POPS + 2; at++) {
        at = memchr(at, pops[0], (size_t)(end - at) - POPS - 2);
        if (!at)
            break;
        const uint8_t *last = at + POPS;
        bool both = (last[0] == 0x5b && last[1] == 0x5d) || (last[0] == 0x5d && last[1] == 0x5b);
        if (!memcmp(at, pops, POPS) && both && returns(last + 2, end)) {
            made_frame found = before_pops(code, at);
            found.end = (uint64_t)(at - code);
            return found;
        }
    }
    return (made_frame){0};
}

/* By the end of the function of `pc`. The code is read piece by piece, each with the end of the one before. */
static made_frame frame_at(const lu_space *space, uint64_t pc) {
    static uint8_t code[READ_ONCE];
    const lu_mapping *m = lu_space_mapping(space, pc);
    uint64_t end = m && m->end - pc < CODE_MOST ? m->end : pc + CODE_MOST;
    made_frame found = {0};
    for (uint64_t at = pc; m && at < end && !found.is_known; at += READ_ONCE - END_MOST - BEFORE_MOST) {
        size_t bytes = end - at < READ_ONCE ? end - at : READ_ONCE;
        if (!lu_space_read_code(space, at, code, bytes))
            break;
        found = frame_by(code, bytes);
        found.end += at;
    }
    return found;
}

/* The same, by what is known of its neighbours: between an instruction and the end of its function all have that end. */
static made_frame frame_near(const lu_space *space, uint64_t pc) {
    static struct {
        const lu_space *space;
        uint64_t from;
        made_frame frame;
    } functions[FUNCTIONS];
    static uint32_t next;
    for (uint32_t i = 0; i < FUNCTIONS; i++)
        if (functions[i].space == space && functions[i].from <= pc && pc < functions[i].frame.end)
            return functions[i].frame;
    made_frame found = frame_at(space, pc);
    if (!found.is_known)
        return found;
    uint32_t at = next;
    for (uint32_t i = 0; i < FUNCTIONS; i++)
        if (functions[i].space == space && functions[i].frame.end == found.end)
            at = i; /* this one lies before it */
    next = at == next ? (next + 1) % FUNCTIONS : next;
    functions[at].space = space;
    functions[at].from = pc;
    functions[at].frame = found;
    return found;
}

uint64_t lu_made_code_slot(lu_walk *walk, uint64_t pc, uint64_t *sp) {
    static struct {
        const lu_space *space;
        uint64_t pc;
        made_frame frame;
    } known[KNOWN];
    uint32_t at = (uint32_t)((pc * 0x9e3779b97f4a7c15u) >> 40) & (KNOWN - 1);
    if (known[at].space != walk->space || known[at].pc != pc) {
        known[at].frame = frame_near(walk->space, pc);
        known[at].space = walk->space;
        known[at].pc = pc;
    }
    const made_frame *f = &known[at].frame;
    if (f->is_known && f->has_moved)
        lu_walk_read(walk, *sp + f->kept_at, sp);
    return f->is_known ? (*sp + f->bytes) & ~7ull : 0;
}
