/* From registers and a copy of the stack to frames, by the rows of cfi.c; where there are none, repair.c looks. */
#include "unwinding.h"

#include <string.h>

bool lu_walk_read(lu_walk *walk, uint64_t address, uint64_t *word) {
    const lu_stack_copy *stack = walk->stack;
    if (address >= stack->base && stack->bytes >= 8 && address - stack->base <= stack->bytes - 8) {
        memcpy(word, stack->copy + (address - stack->base), 8);
        return true;
    }
    if (stack->read)
        return !stack->read(stack->of, address, word, 8);
    walk->beyond |= walk->signal || (address >= stack->base && address - stack->base < 1u << 30);
    return false;
}

static bool machine_read(void *of, uint64_t address, uint64_t *word) { return lu_walk_read(of, address, word); }

static bool evaluate(lu_walk *walk, const lu_state *state, lu_object *object, const lu_rule *rule,
                     const uint64_t *given, uint64_t *value) {
    lu_machine machine = {state->registers, state->known, machine_read, walk};
    const uint8_t *code = lu_section_at(&object->frames, (size_t)rule->value, rule->bytes);
    *value = given ? *given : 0;
    return code && lu_expression(&machine, code, rule->bytes, given, value);
}

static bool find_cfa(lu_walk *walk, const lu_state *state, lu_object *object, const lu_row *row, uint64_t *cfa) {
    if (row->cfa.kind == LU_EXPRESSION)
        return evaluate(walk, state, object, &row->cfa, NULL, cfa);
    *cfa = state->registers[row->cfa.of] + (uint64_t)(int64_t)row->cfa.value;
    return state->known >> row->cfa.of & 1;
}

/* Compilers do not say when the end of a function has popped a register. What is kept below the stack pointer is the
 * register itself by then; the copy of the stack does not have it. */
static bool is_popped(const lu_state *state, const lu_rule *rule, uint64_t slot) {
    enum { RED_ZONE = 128 };
    uint64_t sp = state->registers[LS_RSP];
    return state->exact && rule->of != LS_RIP && slot < sp && sp - slot <= RED_ZONE && state->known >> rule->of & 1;
}

static bool read_saved(lu_walk *walk, const lu_state *state, const lu_rule *rule, uint64_t slot, uint64_t *value) {
    if (lu_walk_read(walk, slot, value))
        return true;
    *value = state->registers[rule->of];
    return is_popped(state, rule, slot);
}

/* The value of a register in the caller; false: it is not known. */
static bool recover(lu_walk *walk, const lu_state *state, lu_object *object, const lu_rule *rule, uint64_t cfa,
                    uint64_t *value) {
    switch (rule->kind) {
    case LU_AT_CFA: return read_saved(walk, state, rule, cfa + (uint64_t)(int64_t)rule->value, value);
    case LU_CFA_PLUS: *value = cfa + (uint64_t)(int64_t)rule->value; return true;
    case LU_REGISTER: *value = state->registers[rule->value]; return state->known >> rule->value & 1;
    case LU_EXPRESSION:
        return evaluate(walk, state, object, rule, &cfa, value) && lu_walk_read(walk, *value, value);
    case LU_VALUE_EXPRESSION: return evaluate(walk, state, object, rule, &cfa, value);
    default: return false;
    }
}

int lu_walk_step(lu_walk *walk, lu_state *state, lu_object *object, const lu_row *row, uint64_t cfa) {
    lu_state next = *state;
    next.registers[LS_RSP] = cfa;
    next.known = (state->known | 1u << LS_RSP) & ~(1u << LS_RIP);
    next.exact = row->signal;
    for (unsigned i = 0; i < row->count; i++) {
        const lu_rule *rule = &row->rules[i];
        if (rule->of == LS_RIP && rule->kind == LU_UNDEFINED)
            return LU_STEP_ROOT;
        if (recover(walk, state, object, rule, cfa, &next.registers[rule->of]))
            next.known |= 1u << rule->of;
        else
            next.known &= ~(1u << rule->of);
    }
    if (!(next.known >> LS_RIP & 1))
        return LU_STEP_LOST;
    *state = next;
    return next.registers[LS_RIP] ? LU_STEP_DONE : LU_STEP_ROOT;
}

/* Whether the function that begins at `function` can return here: behind a CALL, or at the code to which the kernel
 * sends a handler back. After a repair the CALL must have led to that function. */
static bool may_return_to(lu_walk *walk, uint64_t address, uint64_t function) {
    uint64_t target;
    int call = lu_space_call_before(walk->space, address, &target);
    if (call)
        return call == LU_CALL_INDIRECT || !walk->repairs || walk->lenient || lu_leads_to(walk, target, function);
    const lu_mapping *m = lu_space_mapping(walk->space, address);
    if (!m)
        walk->nowhere = true;
    const lu_row *row = m && m->object ? lu_row_at(m->object, address - m->bias) : NULL;
    return row && row->signal;
}

static bool is_entry(const lu_mapping *m, uint64_t address) {
    enum { BYTES = 96 }; /* the code at the entry is shorter in all C libraries and calls nothing that returns */
    return m && m->object && m->object->entry && address - m->bias - m->object->entry < BYTES;
}

static lu_walked ended(lu_walk *walk, int outcome, int count) {
    if (outcome == LS_LOST && walk->beyond)
        outcome = LU_BEYOND;
    return (lu_walked){outcome, count, count ? walk->into[count - 1].frame : 0};
}

/* The walk came to a frame that nobody called, or to a return address of 0: that is what unused stack is full of. */
static lu_walked ended_at_root(lu_walk *walk, const lu_state *state, uint64_t cfa, int count) {
    bool zero = state->known >> LS_RIP & 1 && !state->registers[LS_RIP];
    if (!walk->repairs)
        lu_space_learn_root(walk->space, cfa);
    else if (zero && !lu_space_is_root(walk->space, cfa))
        return ended(walk, LS_LOST, count);
    return ended(walk, LU_ROOT, count);
}

lu_walked lu_walk_on(lu_walk *walk, lu_state *state, int at) {
    for (;; at++) {
        if (at == walk->most)
            return ended(walk, LU_FULL, at);
        if (walk->steps-- <= 0)
            return ended(walk, LS_LOST, at);
        uint64_t address = state->registers[LS_RIP] - !state->exact, sp = state->registers[LS_RSP], cfa;
        const lu_mapping *m = lu_space_mapping(walk->space, address);
        walk->nowhere |= !m;
        walk->into[at] = (lu_native_frame){address, sp};
        const lu_row *row = m && m->object ? lu_row_at(m->object, address - m->bias) : NULL;
        if (!row && !is_entry(m, address) && lu_walk_framed(walk, state, &walk->into[at].frame))
            continue;
        if (!row)
            return is_entry(m, address) ? ended_at_root(walk, state, sp, at + 1) : lu_repair(walk, state, NULL, at + 1);
        bool signal = row->signal;
        uint64_t function = m->bias + row->start;
        if (!find_cfa(walk, state, m->object, row, &cfa)) {
            bool unknown = row->cfa.kind == LU_EXPRESSION || !(state->known >> row->cfa.of & 1);
            return unknown && !walk->beyond ? lu_repair(walk, state, row, at + 1) : ended(walk, LS_LOST, at + 1);
        }
        lu_state before = *state;
        walk->into[at].frame = cfa;
        int step = lu_walk_step(walk, state, m->object, row, cfa);
        if (step == LU_STEP_ROOT)
            return ended_at_root(walk, state, cfa, at + 1);
        walk->signal |= signal;
        if (step == LU_STEP_DONE && walk->repairs && signal)
            return ended(walk, LS_LOST, at + 1); /* what an earlier signal has left there */
        if (step == LU_STEP_DONE && (signal || (cfa > sp && may_return_to(walk, state->registers[LS_RIP], function))))
            continue;
        /* The row is wrong, as in assembly whose author has described only its first instruction. */
        if (walk->repairs || walk->beyond)
            return ended(walk, LS_LOST, at + 1);
        walk->into[at].frame = sp;
        return lu_repair(walk, &before, NULL, at + 1);
    }
}

int lu_unwind(lu_space *space, const uint64_t registers[LS_REGISTERS], uint32_t known, const lu_stack_copy *stack,
              lu_native_frame *into, int most, uint32_t *how) {
    lu_walk walk = {.space = space, .stack = stack, .into = into, .most = most, .steps = LU_STEPS_MOST,
                    .again = LU_STEPS_MOST, .words = LU_WORDS_MOST};
    lu_state state = {.known = known, .exact = true};
    *how = 0;
    if (most <= 0 || ~known & (1u << LS_RSP | 1u << LS_RIP))
        return 0;
    memcpy(state.registers, registers, sizeof state.registers);
    const lu_mapping *m = lu_space_mapping(space, registers[LS_RIP]);
    if (!m || !m->object)
        *how |= LU_UNWOUND_JIT;
    lu_walked walked = lu_walk_on(&walk, &state, 0);
    if (walked.outcome == LU_ROOT)
        *how |= LU_UNWOUND_ROOT;
    if (!m || (walk.nowhere && walked.outcome != LU_ROOT))
        *how |= LU_UNWOUND_STALE;
    if (walked.outcome == LU_BEYOND || walked.outcome == LU_FULL)
        *how |= LU_UNWOUND_CUT;
    if (walk.repaired)
        *how |= LU_UNWOUND_REPAIRED;
    return walked.count;
}
