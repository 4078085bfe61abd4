/* One stack of native frames and those of Python.
 *
 * Each C frame of the interpreter (_PyEval_EvalFrameDefault) is replaced by one group of frames of Python, which ends
 * with LF_ENTRY. With as many of the one as of the other that is exact. If the stack was not unwound to its root they
 * are matched from the leaf on, and the groups that are left lie outside; if the frames of Python were cut, the outer
 * frames of the interpreter stay. A leaf in the interpreter may have no group yet, or no more: it stays too. Else they
 * do not fit: all frames of Python lie inside. */
#define _GNU_SOURCE
#include "joined_stacks.h"

#include "intern.h"
#include "jit_code.h"
#include "output.h"
#include "recording.h"

#include <string.h>

/* Reading what is mapped takes at most one part in so many of the time. */
#define REFRESH_SHARE 20u

static uint64_t cut_stacks; /* that had no room */

uint64_t sm_cut_stacks(void) {
    return cut_stacks;
}

/* --- Where code lies --- */

/* The address space of the process as it is now, or was. NULL: it is gone, and was never read. */
lu_space *sm_space(sm_process *p, int is_urgent) {
    if (p->space && !p->is_stale && !is_urgent)
        return p->space;
    uint64_t before = sm_clock(CLOCK_MONOTONIC);
    if (p->end_ns || before < p->refreshed_ns + p->refresh_cost_ns * REFRESH_SHARE)
        return p->space;
    if (!p->space)
        p->space = lu_space_of(p->pid);
    else
        lu_space_refresh(p->space);
    p->is_stale = 0;
    p->refreshed_ns = sm_clock(CLOCK_MONOTONIC);
    p->refresh_cost_ns = p->refreshed_ns - before;
    return p->space;
}

void sm_space_forget(sm_process *p) {
    if (p->space)
        lu_space_free(p->space);
}

static uint32_t native_frame(sm_process *p, uint64_t address, int is_caller) {
    uint64_t offset;
    lu_place place = lu_space_find(p->space, address);
    if (place.kind == LU_PLACE_FILE)
        return sm_frame(LT_NATIVE, place.object, place.address, (uint32_t)is_caller);
    uint32_t made = sm_made_at(p, address, &offset);
    if (made != LT_NONE)
        return sm_frame(LT_MADE, made, offset, (uint32_t)is_caller);
    return sm_frame(LT_JIT, p->number, address, (uint32_t)is_caller);
}

/* --- Putting them together --- */

typedef struct {
    const sm_python_frame *frames;
    int count, at; /* at: the outermost that is not placed yet, counted from the innermost */
} python_stack;

static void place_group(const sm_taker *to, python_stack *python) {
    for (int is_first = 1; python->at > 0; is_first = 0) {
        const sm_python_frame *frame = &python->frames[python->at - 1];
        if (!is_first && frame->place & LF_ENTRY)
            break;
        if (frame->code == LF_BETWEEN)
            to->cut(to->of, LT_CUT_BETWEEN);
        else if (frame->code != LT_NONE)
            to->python(to->of, frame->code, frame->place & ~LF_ENTRY);
        python->at--;
    }
}

static int groups_of(const sm_python_frame *python, int frames) {
    int groups = frames && !(python[frames - 1].place & LF_ENTRY); /* the outermost was cut */
    for (int i = 0; i < frames; i++)
        groups += !!(python[i].place & LF_ENTRY);
    return groups;
}

static int has_left_out(const sm_python_frame *python, int frames) {
    for (int i = 0; i < frames; i++)
        if (python[i].code == LF_BETWEEN)
            return 1;
    return 0;
}

int sm_interpreter_at(const sm_process *p, const lu_native_frame *native, int i) {
    int here = lu_space_in_function(p->space, native[i].address, SM_INTERPRETER);
    if (here != LU_IN_FUNCTION)
        return here ? SM_INTERPRETS : SM_NO_INTERPRETER;
    int inside = i ? lu_space_in_function(p->space, native[i - 1].address, SM_INTERPRETER) : 0;
    return inside == LU_JUMPED_TO ? SM_CALLED_INTERPRETER : SM_INTERPRETS;
}

/* Marks the C frames that groups replace, and returns how many groups lie outside of all; -1: they do not fit. */
static int match(const sm_process *p, const lu_native_frame *native, int count, uint32_t how, int groups, int is_cut,
                 uint8_t *replaced) {
    int evals = 0;
    memset(replaced, 0, (size_t)count);
    for (int i = 0; i < count; i++)
        if (sm_interpreter_at(p, native, i) == SM_INTERPRETS) {
            replaced[i] = 1;
            evals++;
        }
    if (evals == groups + 1 && how & LU_UNWOUND_ROOT && !is_cut && replaced[0]) {
        replaced[0] = 0;
        return 0;
    }
    if (evals <= groups)
        return evals == groups || !(how & LU_UNWOUND_ROOT) ? groups - evals : -1;
    if (!is_cut)
        return -1;
    for (int i = count - 1; evals > groups && i >= 0; i--)
        if (replaced[i]) {
            replaced[i] = 0;
            evals--;
        }
    return 0;
}

void sm_place(sm_process *p, const lu_native_frame *native, int count, uint32_t how, const sm_python_frame *python,
              int frames, uint32_t *flags, const sm_taker *to) {
    static uint8_t replaced[SM_FRAMES_MOST];
    python_stack rest = {python, frames, frames};
    int is_cut = frames && !(python[frames - 1].place & LF_ENTRY), groups = groups_of(python, frames), outside = 0;
    if (frames)
        outside = match(p, native, count, how, groups, is_cut || has_left_out(python, frames), replaced);
    if (frames && outside < 0)
        *flags |= LT_NO_SPLICE;
    if (!(how & LU_UNWOUND_ROOT) || is_cut)
        to->cut(to->of, LT_CUT_OUTER);
    for (int i = 0; i < outside; i++)
        place_group(to, &rest);
    for (int i = count - 1; i >= 0; i--)
        if (frames && outside >= 0 && replaced[i])
            place_group(to, &rest);
        else if (!frames || outside < 0 || sm_interpreter_at(p, native, i) != SM_CALLED_INTERPRETER)
            to->native(to->of, native[i].address, i > 0);
    while (rest.at > 0)
        place_group(to, &rest);
}

/* The stack as far as it is put together, from the outside in. */
typedef struct {
    sm_process *process;
    uint32_t stack;
    int is_cut; /* there was no room for more of it */
} growing;

static void push(growing *g, uint32_t frame) {
    uint32_t stack = g->is_cut || frame == LT_NONE ? LT_NONE : sm_stack(g->stack, frame);
    g->is_cut |= stack == LT_NONE;
    g->stack = g->is_cut ? g->stack : stack;
}

static void push_native(void *of, uint64_t address, int is_caller) {
    push(of, native_frame(((growing *)of)->process, address, is_caller));
}

static void push_python(void *of, uint32_t code, uint32_t place) {
    push(of, sm_frame(LT_PYTHON, code, place, 0));
}

static void push_cut(void *of, uint32_t kind) {
    push(of, sm_frame(LT_CUT, kind, 0, 0));
}

uint32_t sm_join(sm_process *p, const lu_native_frame *native, int count, uint32_t how, const sm_python_frame *python,
                 int frames, uint32_t *flags) {
    growing g = {p, LT_NONE, 0};
    sm_taker to = {push_native, push_python, push_cut, &g};
    if (sm_is_full())
        return LT_NONE;
    sm_place(p, native, count, how, python, frames, flags, &to);
    cut_stacks += (uint64_t)g.is_cut;
    return g.stack;
}
