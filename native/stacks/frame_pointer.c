/* Frames without unwind information whose functions set up rbp, as those of Go do. */
#include "frame_pointer.h"

#include "jumps.h"

#include <string.h>

/* How functions begin that set up rbp: push rbp; mov rbp, rsp. */
#define PROLOGUE "\x55\x48\x89\xe5"
enum { PROLOGUE_BYTES = 4 };

/* Where the function begins that `pc` is in, by its first instructions. 0: it has none, or is not behind them. */
static uint64_t framed_function(const lu_walk *walk, uint64_t pc) {
    enum { BYTES = 4096 };
    static uint8_t code[BYTES];
    const lu_mapping *m = lu_space_mapping(walk->space, pc);
    size_t bytes = m && pc - m->start < BYTES ? pc - m->start : BYTES;
    if (!m || bytes < PROLOGUE_BYTES || !lu_space_read_code(walk->space, pc - bytes, code, bytes))
        return 0;
    for (size_t at = bytes - PROLOGUE_BYTES + 1; at-- > 0;)
        if (!memcmp(code + at, PROLOGUE, PROLOGUE_BYTES))
            return pc - bytes + at;
    return 0;
}

/* Bytes from the stack pointer to the return address where rbp is not set up yet, or no more: at the first two
 * instructions of a function, endbr64 before them, and at its RET. -1: elsewhere. */
static int bare_bytes(const lu_walk *walk, const lu_state *state) {
    uint8_t code[1 + PROLOGUE_BYTES];
    if (!state->exact || !lu_space_read_code(walk->space, state->registers[LF_RIP] - 1, code, sizeof code))
        return -1;
    if (code[1] == 0xc3 || !memcmp(code + 1, PROLOGUE, PROLOGUE_BYTES) || !memcmp(code + 1, "\xf3\x0f\x1e\xfa", 4))
        return 0;
    return memcmp(code, PROLOGUE, PROLOGUE_BYTES) ? -1 : 8;
}

static bool go_to(lu_state *state, uint64_t caller, uint64_t cfa) {
    state->registers[LF_RIP] = caller;
    state->registers[LF_RSP] = cfa;
    state->exact = false;
    return true;
}

/* From a frame without unwind information to its caller, where its function has set up rbp for that and the CALL before
 * the return address can have led to it, or is about to. */
bool lu_walk_framed(lu_walk *walk, lu_state *state, uint64_t *cfa) {
    enum { BEFORE = 32 }; /* what may come first: endbr64, Go's look at its stack */
    uint64_t rbp = state->registers[LF_RBP], sp = state->registers[LF_RSP], words[2], target, function;
    int bare = bare_bytes(walk, state);
    if (bare >= 0 && lu_walk_read(walk, sp + (uint64_t)bare, &words[1]) &&
        lu_space_call_before(walk->space, words[1], &target))
        return go_to(state, words[1], *cfa = sp + (uint64_t)bare + 8);
    if (!(state->known >> LF_RBP & 1) || rbp < sp || rbp - sp > 1u << 20 || rbp & 7 ||
        !lu_walk_read(walk, rbp, &words[0]) || !lu_walk_read(walk, rbp + 8, &words[1]))
        return false;
    int call = lu_space_call_before(walk->space, words[1], &target);
    if (!call || !(function = framed_function(walk, state->registers[LF_RIP] - !state->exact)))
        return false;
    if (call == LU_CALL_DIRECT && target - (function - BEFORE) > BEFORE && !lu_jumps_on(walk->space, target))
        return false;
    state->registers[LF_RBP] = words[0];
    state->known = 1u << LF_RBP | 1u << LF_RSP | 1u << LF_RIP;
    walk->repaired = true;
    return go_to(state, words[1], *cfa = rbp + 16);
}
