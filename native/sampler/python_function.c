/* Which function of Python a C frame of the interpreter ran when the kernel looked at it: frames of Python lie where no
 * copy of a stack has them, and change before anybody can read them. But the interpreter has the address of its next
 * instruction in a register that calls preserve, or in its C frame. So an address in the instructions of a code object,
 * in one of these, names that code and its line. What an earlier call has left in the frame may name another: registers
 * are believed first. */
#define _GNU_SOURCE
#include "python_function.h"

#include "procfs.h"

#include <stdlib.h>
#include <string.h>

#define NOT_KNOWN "(function not known)"
#define MOST_CODES 65536u
#define CALL_BYTES 20u /* of the longest instruction that calls, with its caches */

typedef struct sm_instructions {
    uint64_t first, bytes, code, known_by;
    uint32_t number;
} instructions;

/* The last that begins at or before `address`; -1: none. */
static int64_t last_before(const sm_process *p, uint64_t address) {
    uint32_t low = 0, high = p->instructions.count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (p->instructions.all[middle].first <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return (int64_t)low - 1;
}

/* Those of this code object; -1: none. */
static int64_t of_code(const sm_process *p, uint64_t code) {
    int64_t at = last_before(p, lu_python_first_instruction(p->python, code));
    return at >= 0 && p->instructions.all[at].code == code ? at : -1;
}

static instructions *room_at(sm_process *p, int64_t at) {
    if (p->instructions.count == p->instructions.room) {
        uint32_t room = p->instructions.room ? 2 * p->instructions.room : 256;
        instructions *larger = room > MOST_CODES ? NULL : realloc(p->instructions.all, room * sizeof *larger);
        if (!larger)
            return NULL;
        p->instructions.all = larger, p->instructions.room = room;
    }
    instructions *here = &p->instructions.all[at];
    memmove(here + 1, here, (p->instructions.count++ - (size_t)at) * sizeof *here);
    return here;
}

/* Code that is gone leaves its memory to other code, which is told by another name and line. */
static void learn(sm_process *p, const lu_python_frame *frame, uint32_t number) {
    uint64_t known_by = frame->name ^ frame->lines << 20 ^ (uint64_t)(uint32_t)frame->first_line << 40, first;
    uint8_t head[LU_PYTHON_CODE_BYTES];
    int32_t pid = p->pid;
    int64_t at = of_code(p, frame->code);
    if (at >= 0 && p->instructions.all[at].known_by == known_by)
        return;
    if (number == LT_NONE || sm_read_memory(&pid, frame->code, head, sizeof head))
        return;
    uint64_t bytes = lu_python_instructions(p->python, frame->code, head, &first);
    if (bytes >= 1u << 24)
        return;
    at = last_before(p, first);
    int is_there = at >= 0 && p->instructions.all[at].first == first;
    instructions *here = is_there ? &p->instructions.all[at] : room_at(p, at + 1);
    if (here)
        *here = (instructions){first, bytes, frame->code, known_by, number};
}

void sm_python_forget(sm_process *p) {
    free(p->instructions.all);
    p->instructions.all = NULL;
    p->instructions.count = p->instructions.room = 0;
}

void sm_python_learn(sm_process *p, const lu_python_frame *raw, const sm_python_frame *frames, int count) {
    for (int i = 0; i < count; i++)
        learn(p, &raw[i], frames[i].code);
}

/* The code whose instructions `word` is in; NULL: none. The first of them is no next one: a code object has it as the
 * beginning of all. */
static const instructions *at_word(const sm_process *p, uint64_t word) {
    int64_t at = last_before(p, word);
    const instructions *one = at < 0 ? NULL : &p->instructions.all[at];
    return one && word >= one->first + 2 && word - one->first <= one->bytes ? one : NULL;
}

uint32_t sm_python_code_known(const sm_process *p, uint64_t code) {
    int64_t at = of_code(p, code);
    return at < 0 ? LT_NONE : p->instructions.all[at].number;
}

static uint32_t place_of(const instructions *one, uint64_t word) { return (uint32_t)(word - one->first - 2) & ~1u; }

sm_python_frame sm_python_unknown(const sm_process *p) {
    const sm_code_text unknown = {.process = p->number, .python = p->python, .name = NOT_KNOWN, .file = "",
                                  .lines = (const uint8_t *)"", .name_bytes = sizeof NOT_KNOWN - 1,
                                  .known_as = LT_NONE};
    return (sm_python_frame){sm_code(&unknown), 0};
}

sm_python_frame sm_python_of_word(const sm_process *p, uint64_t word) {
    int64_t at = last_before(p, word);
    const instructions *one = at < 0 ? NULL : &p->instructions.all[at];
    if (!one || word - one->first > one->bytes)
        return (sm_python_frame){LT_NONE, 0};
    return (sm_python_frame){one->number, word == one->first ? 0 : place_of(one, word)};
}

static uint32_t votes_for(const sm_python_frame *seen, size_t count, uint32_t code) {
    uint32_t votes = 0;
    for (size_t i = 0; i < count; i++)
        votes += seen[i].code == code;
    return votes;
}

/* The code that most of them name, of those that the first `asked` do; LT_NONE: none, or as many name another. */
static uint32_t most_named(const sm_python_frame *seen, size_t asked, size_t count) {
    uint32_t best = LT_NONE, votes = 0;
    for (size_t i = 0; i < asked; i++) {
        if (seen[i].code == LT_NONE || seen[i].code == best)
            continue;
        uint32_t here = votes_for(seen, count, seen[i].code);
        if (here >= votes)
            best = here == votes ? LT_NONE : seen[i].code;
        votes = here > votes ? here : votes;
    }
    return best;
}

/* Compilers keep the next instruction in a register, in a slot of the frame, or in both. Then the slot is the newer one,
 * if it is not far ahead: else it is of an earlier instruction. */
static uint32_t place_in(const sm_python_frame *seen, size_t kept, size_t count, uint32_t code) {
    uint32_t first = LT_NONE, last = 0, ahead = LT_NONE;
    for (size_t i = 0; i < count; i++) {
        if (seen[i].code != code)
            continue;
        last = seen[i].place > last ? seen[i].place : last;
        first = i < kept && first == LT_NONE ? seen[i].place : first;
        for (size_t k = 0; i >= kept && k < kept; k++)
            if (seen[k].code == code && seen[i].place - seen[k].place <= CALL_BYTES)
                ahead = seen[i].place;
    }
    return ahead != LT_NONE ? ahead : first != LT_NONE ? first : last;
}

sm_python_frame sm_python_at(const sm_process *p, const sm_interpreter_words *from, uint64_t running) {
    sm_python_frame seen[SM_PYTHON_WORDS_MOST];
    size_t hits = 0, kept = 0;
    uint32_t code = LT_NONE;
    for (size_t i = 0; i < from->count; i++) {
        const instructions *one = at_word(p, from->words[i]);
        if (!one)
            continue;
        seen[hits++] = (sm_python_frame){one->number, place_of(one, from->words[i])};
        kept += i < from->kept;
        if (one->code == running)
            code = one->number;
    }
    code = code == LT_NONE ? most_named(seen, kept ? kept : hits, hits) : code;
    return code == LT_NONE ? (sm_python_frame){LT_NONE, 0} : (sm_python_frame){code, place_in(seen, kept, hits, code)};
}
