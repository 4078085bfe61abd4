/* Frames of which nobody tells how they end: code that oneDNN makes while it runs, assembly of MKL, functions that end
 * where a register says that is not known. Their return address lies somewhere up the stack: it points behind a CALL,
 * and from it on the walk comes to the root. */
#include "unwinding.h"

#include <string.h>

#define WORDS_MOST 1024u
#define NESTED_MOST 6

/* Where the registers of the caller are: pushed in an order that is known, kept, or nobody knows. The orders are those
 * of oneDNN's kernels (jit_generator's abi_save_gpr_regs): rbp, rbx, r12 to r15; before oneDNN 2.7 rbx came first. */
enum { RBP_FIRST, RBX_FIRST, KEPT, UNKNOWN, CHOICES };

typedef struct {
    lu_walk *walk;
    const lu_state *state;
    const lu_row *row;
    lu_row copy;
    const lu_mapping *mapping; /* of the frame, NULL: nowhere */
    bool made;                 /* its code is of no file */
    uint64_t chained; /* where a return address is if rbp is a frame pointer, 0: it is none */
    int at;
} repair;

typedef struct {
    uint64_t slot;
    int choice;
    lu_walked walked;
} attempt;

static const lu_row *row_at(const lu_walk *walk, uint64_t address) {
    const lu_mapping *m = lu_space_mapping(walk->space, address);
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
static bool jumps_on(const lu_walk *walk, uint64_t target) {
    enum { BYTES = 4096 };
    static uint8_t code[BYTES];
    const lu_mapping *m = lu_space_mapping(walk->space, target);
    const lu_row *row = row_at(walk, target);
    if (!m || !row)
        return m && m->object; /* a stub, or assembly */
    uint64_t start = m->bias + row->start, end = m->bias + row->end, bytes = end - target;
    if (bytes > BYTES || !lu_space_read_code(walk->space, target, code, bytes))
        return true;
    for (size_t i = 0; i < bytes; i++)
        if (is_jump_out(code + i, bytes - i, target + i, start, end))
            return true;
    return false;
}

bool lu_leads_to(const lu_walk *walk, uint64_t target, uint64_t function) {
    return target == function || jumps_on(walk, target);
}

/* Whether a CALL of `target` can have led to the frame. */
static bool leads_here(const repair *r, uint64_t target) {
    if (r->row)
        return lu_leads_to(r->walk, target, r->mapping->bias + r->row->start);
    /* Who has a row would not be here without. */
    return jumps_on(r->walk, target) && !(r->made && !row_at(r->walk, target));
}

/* Whether `word` can be the return address. Not `lenient`: the CALL before it can have led to the frame. */
static bool is_caller(const repair *r, uint64_t word) {
    lu_range code = lu_space_code(r->walk->space);
    uint64_t target;
    if (word <= code.start || word >= code.end)
        return false;
    const lu_mapping *m = lu_space_mapping(r->walk->space, word - 1);
    if (!m || (m->object && !row_at(r->walk, word - 1)))
        return false;
    int call = lu_space_call_before(r->walk->space, word, &target);
    if (!call || r->walk->lenient)
        return call;
    if (!m->object)
        return r->made;
    return call == LU_CALL_INDIRECT || leads_here(r, target);
}

static void take_slot(const repair *r, lu_state *next, unsigned of, uint64_t slot) {
    bool known = slot >= r->state->registers[LS_RSP] && lu_walk_read(r->walk, slot, &next->registers[of]);
    next->known = (next->known & ~(1u << of)) | (uint32_t)known << of;
}

/* The state of the caller whose return address lies in `slot`; false: not in this way. */
static bool resume(const repair *r, uint64_t slot, int choice, lu_state *next) {
    static const uint8_t pushed[][6] = {{LS_RBP, LS_RBX, LS_R12, LS_R13, LS_R14, LS_R15},
                                        {LS_RBX, LS_RBP, LS_R12, LS_R13, LS_R14, LS_R15}};
    *next = *r->state;
    if (r->row) {
        /* Of a frame that ends at rbp + n, the place of its end tells rbp. */
        if (r->row->cfa.kind == LU_REGISTER) {
            next->registers[r->row->cfa.of] = slot + 8 - (uint64_t)(int64_t)r->row->cfa.value;
            next->known |= 1u << r->row->cfa.of;
        }
        return choice == RBP_FIRST &&
               lu_walk_step(r->walk, next, r->mapping->object, r->row, slot + 8) == LU_STEP_DONE;
    }
    if (choice <= RBX_FIRST && slot - 8 < r->state->registers[LS_RSP])
        return false;
    if (!lu_walk_read(r->walk, slot, &next->registers[LS_RIP]))
        return false;
    if (choice != KEPT)
        next->known = 0;
    for (unsigned i = 0; choice <= RBX_FIRST && i < 6; i++)
        take_slot(r, next, pushed[choice][i], slot - 8 * (i + 1));
    next->registers[LS_RSP] = slot + 8;
    next->known |= 1u << LS_RSP | 1u << LS_RIP;
    next->exact = false;
    return true;
}

static bool passes(const repair *r, int count, uint64_t cfa) {
    for (int i = r->at - 1; i < count; i++)
        if (r->walk->into[i].frame == cfa)
            return true;
    return false;
}

static bool go(const repair *r, attempt *a) {
    lu_state next;
    if (!resume(r, a->slot, a->choice, &next))
        return false;
    r->walk->into[r->at - 1].frame = a->slot + 8;
    r->walk->beyond = false;
    a->walked = lu_walk_on(r->walk, &next, r->at);
    return true;
}

/* None is certain: the one that came farthest. What there was for attempts may be used up; the last walk of all, which
 * is what is told, has as much once more. */
static void go_again(const repair *r, attempt *best) {
    lu_walk *walk = r->walk;
    if (walk->repairs == 1) {
        walk->again = LU_STEPS_MOST;
        walk->words = LU_WORDS_MOST;
    }
    int steps = walk->steps, given = walk->again < walk->most ? walk->again : walk->most;
    walk->again -= given;
    walk->steps = given;
    go(r, best);
    walk->again += walk->steps > 0 ? walk->steps : 0;
    walk->steps = steps;
}

static bool better(const lu_walked *a, const lu_walked *b) {
    /* Of walks that were cut, those that have left out frames come farther. */
    bool cut = a->outcome == LU_FULL || a->outcome == LU_BEYOND;
    return a->outcome > b->outcome || (a->outcome == b->outcome && !cut && a->reached > b->reached);
}

/* Tries what lies in `slot`; true: it is the one. What earlier calls have left on the stack may lead to what looks like
 * a root as well: it lies below the real one. */
static bool try_slot(const repair *r, uint64_t slot, attempt *best) {
    for (int choice = 0; choice < CHOICES; choice++) {
        attempt a = {.slot = slot, .choice = choice};
        if (!go(r, &a))
            continue;
        /* If rbp is a frame pointer, of this frame or of a caller, the way to the root leads over it. */
        bool skips = r->chained > slot && !passes(r, a.walked.count, r->chained + 8);
        if (skips)
            a.walked.outcome = LS_LOST;
        if (better(&a.walked, &best->walked))
            *best = a;
        if (a.walked.outcome == LU_FULL)
            return true;
        if (a.walked.outcome == LU_ROOT)
            return lu_space_is_root(r->walk->space, a.walked.reached);
    }
    return false;
}

static bool scan(const repair *r, attempt *best) {
    uint64_t slot = (r->state->registers[LS_RSP] + 7) & ~7ull, word;
    for (unsigned i = 0; i < WORDS_MOST && r->walk->steps > 0 && r->walk->words-- > 0; i++, slot += 8) {
        if (!lu_walk_read(r->walk, slot, &word))
            return false;
        if (is_caller(r, word) && try_slot(r, slot, best))
            return true;
    }
    return r->chained >= slot && try_slot(r, r->chained, best);
}

static uint64_t frame_pointer(const repair *r) {
    uint64_t rbp = r->state->registers[LS_RBP], sp = r->state->registers[LS_RSP], word;
    if (r->row || !(r->state->known >> LS_RBP & 1) || rbp < sp || rbp - sp > 1u << 20 || rbp & 7 ||
        !lu_walk_read(r->walk, rbp + 8, &word) || !is_caller(r, word))
        return 0;
    return rbp + 8;
}

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
    if (!state->exact || !lu_space_read_code(walk->space, state->registers[LS_RIP] - 1, code, sizeof code))
        return -1;
    if (code[1] == 0xc3 || !memcmp(code + 1, PROLOGUE, PROLOGUE_BYTES) || !memcmp(code + 1, "\xf3\x0f\x1e\xfa", 4))
        return 0;
    return memcmp(code, PROLOGUE, PROLOGUE_BYTES) ? -1 : 8;
}

static bool go_to(lu_state *state, uint64_t caller, uint64_t cfa) {
    state->registers[LS_RIP] = caller;
    state->registers[LS_RSP] = cfa;
    state->exact = false;
    return true;
}

/* From a frame without unwind information to its caller, where its function has set up rbp for that and the CALL before
 * the return address can have led to it, or is about to. */
bool lu_walk_framed(lu_walk *walk, lu_state *state, uint64_t *cfa) {
    enum { BEFORE = 32 }; /* what may come first: endbr64, Go's look at its stack */
    uint64_t rbp = state->registers[LS_RBP], sp = state->registers[LS_RSP], words[2], target, function;
    int bare = bare_bytes(walk, state);
    if (bare >= 0 && lu_walk_read(walk, sp + (uint64_t)bare, &words[1]) &&
        lu_space_call_before(walk->space, words[1], &target))
        return go_to(state, words[1], *cfa = sp + (uint64_t)bare + 8);
    if (!(state->known >> LS_RBP & 1) || rbp < sp || rbp - sp > 1u << 20 || rbp & 7 ||
        !lu_walk_read(walk, rbp, &words[0]) || !lu_walk_read(walk, rbp + 8, &words[1]))
        return false;
    int call = lu_space_call_before(walk->space, words[1], &target);
    if (!call || !(function = framed_function(walk, state->registers[LS_RIP] - !state->exact)))
        return false;
    if (call == LU_CALL_DIRECT && target - (function - BEFORE) > BEFORE && !jumps_on(walk, target))
        return false;
    state->registers[LS_RBP] = words[0];
    state->known = 1u << LS_RBP | 1u << LS_RSP | 1u << LS_RIP;
    walk->repaired = true;
    return go_to(state, words[1], *cfa = rbp + 16);
}

static bool try_caller(const repair *r, uint64_t slot, attempt *best) {
    uint64_t word;
    return lu_walk_read(r->walk, slot, &word) && is_caller(r, word) && try_slot(r, slot, best);
}

/* Code of oneDNN tells by its end where its frame ends; a little above if it has pushed something in between; and if it
 * has no frame, then the end is that of the function behind. */
static bool try_end(const repair *r, attempt *best) {
    enum { PUSHED_MOST = 8 };
    uint64_t sp = r->state->registers[LS_RSP];
    uint64_t slot = r->made ? lu_made_code_slot(r->walk->space, r->state->registers[LS_RIP], sp) : 0;
    if (!slot)
        return false;
    if (try_caller(r, slot, best) || try_caller(r, sp, best))
        return true;
    for (int i = 1; i < PUSHED_MOST; i++)
        if (try_caller(r, slot + 8 * (uint64_t)i, best))
            return true;
    return false;
}

lu_walked lu_repair(lu_walk *walk, const lu_state *state, const lu_row *row, int at) {
    repair r = {.walk = walk, .state = state, .at = at};
    attempt best = {.walked = {LS_LOST, at, 0}};
    if (walk->repairs == NESTED_MOST)
        return best.walked;
    lu_state own = *state;
    r.state = &own;
    if (row) {
        r.copy = *row; /* the next row may take its place */
        r.row = &r.copy;
    }
    r.mapping = lu_space_mapping(walk->space, own.registers[LS_RIP] - !own.exact);
    r.made = !r.mapping || !r.mapping->object;
    r.chained = frame_pointer(&r);
    walk->repairs++;
    walk->beyond = false;
    bool found = try_end(&r, &best) || scan(&r, &best), strict = !walk->lenient;
    if (!found && strict && best.walked.outcome != LU_ROOT) {
        walk->lenient = true;
        found = scan(&r, &best);
    }
    if (!found && best.slot)
        go_again(&r, &best);
    walk->lenient = !strict;
    walk->repairs--;
    /* Of all that was tried this lies highest: a thread that runs nothing but such code is not searched every time. */
    if (!walk->repairs && best.walked.outcome == LU_ROOT)
        lu_space_learn_root(walk->space, best.walked.reached);
    walk->repaired |= best.slot != 0;
    return best.walked;
}
