/* Frames of which nobody tells how they end: code that oneDNN makes while it runs, assembly of MKL, functions that end
 * where a register says that is not known. Their return address lies somewhere up the stack: it points behind a CALL,
 * and from it on the walk comes to the root. */
#include "repair.h"

#include "jit_frames.h"
#include "jumps.h"


#define WORDS_MOST 1024u
#define NESTED_MOST 6
/* A walk through so many frames up to where the copy of the stack ends is not tried again elsewhere: where the root is
 * not in the copy no walk comes to it. */
#define CERTAIN_FRAMES 12

/* Where the registers of the caller are: pushed in an order that is known, kept, or nobody knows. The orders are those
 * of oneDNN's kernels (jit_generator's abi_save_gpr_regs): rbp, rbx, r12 to r15; before oneDNN 2.7 rbx came first. */
enum { RBP_FIRST, RBX_FIRST, KEPT, UNKNOWN, CHOICES };

typedef struct {
    lu_walk *walk;
    lu_state *state;
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

/* Whether a CALL of `target` can have led to the frame. */
static bool leads_here(const repair *r, uint64_t target) {
    if (r->row)
        return lu_leads_to(r->walk->space, target, r->mapping->bias + r->row->start);
    /* Who has a row would not be here without. */
    return lu_jumps_on(r->walk->space, target) && !(r->made && !lu_row_in(r->walk->space, target));
}

/* Whether `word` can be the return address. Not `lenient`: the CALL before it can have led to the frame. */
static bool is_caller(const repair *r, uint64_t word) {
    lu_range code = lu_space_code(r->walk->space);
    uint64_t target;
    if (word <= code.start || word >= code.end)
        return false;
    const lu_mapping *m = lu_space_mapping(r->walk->space, word - 1);
    if (!m || (m->object && !lu_row_in(r->walk->space, word - 1)))
        return false;
    int call = lu_space_call_before(r->walk->space, word, &target);
    if (!call || r->walk->lenient)
        return call;
    if (!m->object)
        return r->made;
    return call == LU_CALL_INDIRECT || leads_here(r, target);
}

static void take_slot(const repair *r, lu_state *next, unsigned of, uint64_t slot) {
    bool known = slot >= r->state->registers[LF_RSP] && lu_walk_read(r->walk, slot, &next->registers[of]);
    next->known = (next->known & ~(1u << of)) | (uint32_t)known << of;
}

/* The state of the caller whose return address lies in `slot`; false: not in this way. */
static bool resume(const repair *r, uint64_t slot, int choice, lu_state *next) {
    static const uint8_t pushed[][6] = {{LF_RBP, LF_RBX, LF_R12, LF_R13, LF_R14, LF_R15},
                                        {LF_RBX, LF_RBP, LF_R12, LF_R13, LF_R14, LF_R15}};
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
    if (choice <= RBX_FIRST && slot - 8 < r->state->registers[LF_RSP])
        return false;
    if (!lu_walk_read(r->walk, slot, &next->registers[LF_RIP]))
        return false;
    if (choice != KEPT)
        next->known = 0;
    for (unsigned i = 0; choice <= RBX_FIRST && i < 6; i++)
        take_slot(r, next, pushed[choice][i], slot - 8 * (i + 1));
    next->registers[LF_RSP] = slot + 8;
    next->known |= 1u << LF_RSP | 1u << LF_RIP;
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
    a->walked = lu_walk_through(r->walk, &next, r->at);
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

typedef enum { NOT_THE_ONE, THE_ONE, NO_OTHER } verdict;

/* The caller in `slot`, its registers kept as `choice` says. NO_OTHER: nor will another choice for this slot be it. What
 * earlier calls have left on the stack may lead to what looks like a root as well: it lies below the real one. */
static verdict try_choice(const repair *r, uint64_t slot, int choice, attempt *best) {
    attempt a = {.slot = slot, .choice = choice};
    if (!go(r, &a))
        return NOT_THE_ONE;
    /* If rbp is a frame pointer, of this frame or of a caller, the way to the root leads over it. */
    bool skips = r->chained > slot && !passes(r, a.walked.count, r->chained + 8);
    if (skips)
        a.walked.outcome = LU_LOST;
    if (better(&a.walked, &best->walked))
        *best = a;
    if (a.walked.outcome == LU_FULL)
        return THE_ONE;
    if (a.walked.outcome == LU_BEYOND && a.walked.count - r->at >= CERTAIN_FRAMES)
        return THE_ONE;
    if (a.walked.outcome != LU_ROOT)
        return NOT_THE_ONE;
    return lu_space_is_root(r->walk->space, a.walked.reached) ? THE_ONE : NO_OTHER;
}

/* Tries what lies in `slot`; true: it is the one. */
static bool try_slot(const repair *r, uint64_t slot, attempt *best) {
    verdict found = NOT_THE_ONE;
    for (int choice = 0; choice < CHOICES && found == NOT_THE_ONE; choice++)
        found = try_choice(r, slot, choice, best);
    return found == THE_ONE;
}

static bool scan(const repair *r, attempt *best) {
    uint64_t slot = (r->state->registers[LF_RSP] + 7) & ~7ull, word;
    for (unsigned i = 0; i < WORDS_MOST && r->walk->steps > 0 && r->walk->words-- > 0; i++, slot += 8) {
        if (!lu_walk_read(r->walk, slot, &word))
            return false;
        if (is_caller(r, word) && try_slot(r, slot, best))
            return true;
    }
    return r->chained >= slot && try_slot(r, r->chained, best);
}

static uint64_t frame_pointer(const repair *r) {
    uint64_t rbp = r->state->registers[LF_RBP], sp = r->state->registers[LF_RSP], word;
    if (r->row || !(r->state->known >> LF_RBP & 1) || rbp < sp || rbp - sp > 1u << 20 || rbp & 7 ||
        !lu_walk_read(r->walk, rbp + 8, &word) || !is_caller(r, word))
        return 0;
    return rbp + 8;
}

static bool try_caller(const repair *r, uint64_t slot, attempt *best) {
    uint64_t word;
    return lu_walk_read(r->walk, slot, &word) && is_caller(r, word) && try_slot(r, slot, best);
}

/* Whether the return address lies in `slot` where rsp was `own` before code pointed it elsewhere: then that is rsp. */
static bool was_moved(const repair *r, uint64_t own, uint64_t slot) {
    uint64_t word;
    r->walk->moved = true;
    r->walk->moved = lu_walk_read(r->walk, slot, &word) && is_caller(r, word);
    if (r->walk->moved)
        r->state->registers[LF_RSP] = own;
    return r->walk->moved;
}

/* Code of oneDNN tells by its end where its frame ends; a little above if it has pushed something in between; and if it
 * has no frame, then the end is that of the function behind. */
static bool try_end(const repair *r, attempt *best) {
    enum { PUSHED_MOST = 8 };
    uint64_t sp = r->state->registers[LF_RSP], own = sp;
    uint64_t slot = r->made ? lu_made_code_slot(r->walk, r->state->registers[LF_RIP], &own) : 0;
    if (!slot || (own != sp && !was_moved(r, own, slot)))
        return false;
    if (try_caller(r, slot, best) || try_caller(r, sp, best))
        return true;
    for (int i = 1; i < PUSHED_MOST; i++)
        if (try_caller(r, slot + 8 * (uint64_t)i, best))
            return true;
    return false;
}

/* The same code has its caller at the same place of the stack nearly always. */
static bool try_known(const repair *r, attempt *best) {
    const lu_state *state = r->state;
    const lu_caller *known = lu_space_known_caller(r->walk->space, state->registers[LF_RIP]);
    uint64_t slot = known ? state->registers[LF_RSP] + known->above : 0, word;
    if (!known || !lu_walk_read(r->walk, slot, &word) || !is_caller(r, word))
        return false;
    attempt a = {.walked = {LU_LOST, r->at, 0}};
    if (try_choice(r, slot, known->choice, &a) != THE_ONE || a.walked.outcome != LU_ROOT)
        return false;
    *best = a;
    return true;
}

static void learn(const repair *r, const attempt *found) {
    uint64_t above = found->slot - r->state->registers[LF_RSP];
    bool is_certain = found->walked.outcome == LU_ROOT && !r->walk->lenient && !r->walk->moved;
    if (is_certain && above < WORDS_MOST * 8)
        lu_space_learn_caller(r->walk->space, (lu_caller){r->state->registers[LF_RIP], (uint32_t)above, found->choice});
}

/* Looks on the stack for the caller of frame number `at` - 1. `row` tells, if it is not NULL, where that frame keeps
 * registers, but not where it ends. */
static lu_walked look_for_caller(lu_walk *walk, const lu_state *state, const lu_row *row, int at) {
    lu_state own = *state;
    repair r = {.walk = walk, .state = &own, .at = at};
    attempt best = {.walked = {LU_LOST, at, 0}};
    if (walk->repairs == NESTED_MOST)
        return best.walked;
    if (row) {
        r.copy = *row; /* the next row may take its place */
        r.row = &r.copy;
    }
    r.mapping = lu_space_mapping(walk->space, own.registers[LF_RIP] - !own.exact);
    r.made = !r.mapping || !r.mapping->object;
    r.chained = frame_pointer(&r);
    walk->repairs++;
    walk->beyond = false;
    bool strict = !walk->lenient, known = strict && try_known(&r, &best);
    bool found = known || try_end(&r, &best) || scan(&r, &best);
    if (found && !known)
        learn(&r, &best);
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

lu_walked lu_walk_through(lu_walk *walk, lu_state *state, int at) {
    const lu_row *row = NULL;
    lu_walked walked = lu_walk_on(walk, state, at, &row);
    return walked.outcome == LU_STOPPED ? look_for_caller(walk, state, row, walked.count) : walked;
}
