/* One step of a walk: what the caller had in its registers, by a row of unwind information. */
#include "steps.h"

#include "expression.h"

#include <string.h>

bool lu_walk_read(lu_walk *walk, uint64_t address, uint64_t *word) {
    const lu_stack_copy *stack = walk->stack;
    if (address >= stack->base && stack->bytes >= 8 && address - stack->base <= stack->bytes - 8) {
        memcpy(word, stack->copy + (address - stack->base), 8);
        return true;
    }
    if (stack->read)
        return !stack->read(stack->of, address, word, 8);
    if (walk->moved && stack->read_later)
        return !stack->read_later(stack->of, address, word, 8);
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

bool lu_walk_cfa(lu_walk *walk, const lu_state *state, lu_object *object, const lu_row *row, uint64_t *cfa) {
    if (row->cfa.kind == LU_EXPRESSION)
        return evaluate(walk, state, object, &row->cfa, NULL, cfa);
    *cfa = state->registers[row->cfa.of] + (uint64_t)(int64_t)row->cfa.value;
    return state->known >> row->cfa.of & 1;
}

/* Compilers do not say when the end of a function has popped a register. What is kept below the stack pointer is the
 * register itself by then; the copy of the stack does not have it. */
static bool is_popped(const lu_state *state, const lu_rule *rule, uint64_t slot) {
    enum { RED_ZONE = 128 };
    uint64_t sp = state->registers[LF_RSP];
    return state->exact && rule->of != LF_RIP && slot < sp && sp - slot <= RED_ZONE && state->known >> rule->of & 1;
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
    next.registers[LF_RSP] = cfa;
    next.known = (state->known | 1u << LF_RSP) & ~(1u << LF_RIP);
    next.exact = row->signal;
    for (unsigned i = 0; i < row->count; i++) {
        const lu_rule *rule = &row->rules[i];
        if (rule->of == LF_RIP && rule->kind == LU_UNDEFINED)
            return LU_STEP_ROOT;
        if (recover(walk, state, object, rule, cfa, &next.registers[rule->of]))
            next.known |= 1u << rule->of;
        else
            next.known &= ~(1u << rule->of);
    }
    if (!(next.known >> LF_RIP & 1))
        return LU_STEP_LOST;
    *state = next;
    return next.registers[LF_RIP] ? LU_STEP_DONE : LU_STEP_ROOT;
}
