/* Which function of Python a thread was in when the kernel looked at it: frames of Python lie where no copy of a stack
 * has them, and change before anybody can read them. But the interpreter has the address of its next instruction in a
 * register that calls preserve, or in its C frame. So an address in the instructions of a code object, in what lies
 * between the leaf and the end of the interpreter's frame, names that code and its line. */
#define _GNU_SOURCE
#include "python_function.h"

#include "procfs.h"

#include <stdlib.h>
#include <string.h>

#define MOST_CODES 65536u

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
    int64_t at = last_before(p, frame->code + sizeof head);
    for (int64_t i = at; i >= 0 && i >= at - 2; i--)
        if (p->instructions.all[i].code == frame->code && p->instructions.all[i].known_by == known_by)
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

sm_python_frame sm_python_at(sm_process *p, const lu_python_frame *raw, const sm_python_frame *frames, int count,
                             const uint64_t *words, size_t words_count) {
    sm_python_frame found = {LT_NONE, 0};
    for (int i = 0; i < count; i++)
        learn(p, &raw[i], frames[i].code);
    for (size_t i = 0; i < words_count; i++) {
        int64_t at = last_before(p, words[i]);
        const instructions *one = at < 0 ? NULL : &p->instructions.all[at];
        /* The first is no next instruction: a code object has it as the beginning of all. */
        if (!one || words[i] < one->first + 2 || words[i] - one->first > one->bytes)
            continue;
        if (found.code != LT_NONE && found.code != one->number)
            return (sm_python_frame){LT_NONE, 0};
        if (found.code == LT_NONE)
            found = (sm_python_frame){one->number, (uint32_t)(words[i] - one->first - 2) & ~1u};
    }
    return found;
}
