/* From frame to frame by the rows of cfi.c, and by rbp where there are none. */
#include "walk.h"

#include "frame_pointer.h"
#include "jumps.h"

#include <string.h>

/* Whether the function that begins at `function` can return here: behind a CALL, or at the code to which the kernel
 * sends a handler back. After a repair the CALL must have led to that function. */
static bool may_return_to(lu_walk *walk, uint64_t address, uint64_t function) {
    uint64_t target;
    int call = lu_space_call_before(walk->space, address, &target);
    if (call)
        return call == LU_CALL_INDIRECT || !walk->repairs || walk->lenient || lu_leads_to(walk->space, target, function);
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
    if (outcome == LU_LOST && walk->beyond)
        outcome = LU_BEYOND;
    return (lu_walked){outcome, count, count ? walk->into[count - 1].frame : 0};
}

/* The walk came to a frame that nobody called, or to a return address of 0: that is what unused stack is full of. */
static lu_walked ended_at_root(lu_walk *walk, const lu_state *state, uint64_t cfa, int count) {
    bool zero = state->known >> LF_RIP & 1 && !state->registers[LF_RIP];
    if (!walk->repairs)
        lu_space_learn_root(walk->space, cfa);
    else if (zero && !lu_space_is_root(walk->space, cfa))
        return ended(walk, LU_LOST, count);
    return ended(walk, LU_ROOT, count);
}

/* Nobody tells how the last of `count` frames ends; `row` of it, NULL: there is none, or it is wrong. */
static lu_walked stopped(const lu_row **of, const lu_row *row, int count) {
    *of = row;
    return (lu_walked){LU_STOPPED, count, 0};
}

lu_walked lu_walk_on(lu_walk *walk, lu_state *state, int at, const lu_row **last) {
    for (;; at++) {
        if (at == walk->most)
            return ended(walk, LU_FULL, at);
        if (walk->steps-- <= 0)
            return ended(walk, LU_LOST, at);
        uint64_t address = state->registers[LF_RIP] - !state->exact, sp = state->registers[LF_RSP], cfa;
        const lu_mapping *m = lu_space_mapping(walk->space, address);
        walk->nowhere |= !m;
        walk->into[at] = (lu_native_frame){address, sp};
        if (walk->had) {
            memcpy(walk->had[at].registers, state->registers, sizeof state->registers);
            walk->had[at].known = state->known;
        }
        const lu_row *row = m && m->object ? lu_row_at(m->object, address - m->bias) : NULL;
        if (!row && !is_entry(m, address) && lu_walk_framed(walk, state, &walk->into[at].frame))
            continue;
        if (!row)
            return is_entry(m, address) ? ended_at_root(walk, state, sp, at + 1) : stopped(last, NULL, at + 1);
        bool signal = row->signal;
        uint64_t function = m->bias + row->start;
        if (!lu_walk_cfa(walk, state, m->object, row, &cfa)) {
            bool unknown = row->cfa.kind == LU_EXPRESSION || !(state->known >> row->cfa.of & 1);
            return unknown && !walk->beyond ? stopped(last, row, at + 1) : ended(walk, LU_LOST, at + 1);
        }
        lu_state before = *state;
        walk->into[at].frame = cfa;
        int step = lu_walk_step(walk, state, m->object, row, cfa);
        if (step == LU_STEP_ROOT)
            return ended_at_root(walk, state, cfa, at + 1);
        walk->signal |= signal;
        if (step == LU_STEP_DONE && walk->repairs && signal)
            return ended(walk, LU_LOST, at + 1); /* what an earlier signal has left there */
        if (step == LU_STEP_DONE && (signal || (cfa > sp && may_return_to(walk, state->registers[LF_RIP], function))))
            continue;
        /* The row is wrong, as in assembly whose author has described only its first instruction. */
        if (walk->repairs || walk->beyond)
            return ended(walk, LU_LOST, at + 1);
        walk->into[at].frame = sp;
        *state = before;
        return stopped(last, NULL, at + 1);
    }
}
