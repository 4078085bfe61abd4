/* Which functions the C frames of the interpreter ran, by a copy of the stack. The next instruction that lies there tells
 * it (python_function.c), where an earlier one does not lie there too. Then the frame of Python decides that the C frame
 * names: CPython 3.11 and 3.12 have a _PyCFrame in it, always at the same distance from its end, which is learned from
 * what the thread itself names. */
#define _GNU_SOURCE
#include "interpreter_frames.h"

#include "joined_stacks.h"
#include "procfs.h"
#include "python_stacks.h"

#include <string.h>

#define C_FRAMES_MOST 64u
/* Of a C frame of the interpreter. */
#define INTERPRETER_BYTES 1024u

/* What a C frame of the interpreter may have its next instruction in: registers that calls preserve, and what lies in
 * the frame up to where it has kept those of its caller. */
static const int preserved[] = {LF_RBX, LF_RBP, LF_R12, LF_R13, LF_R14, LF_R15};
enum { PRESERVED = sizeof preserved / sizeof *preserved };

static void words_of(const lu_frame_registers *had, const lu_stack_copy *stack, uint64_t frame_end,
                     sm_interpreter_words *into) {
    enum { SAVED_BYTES = 8 * (1 + PRESERVED) };
    size_t count = 0;
    into->kept = into->count = 0;
    for (size_t i = 0; i < PRESERVED; i++)
        if (had->known >> preserved[i] & 1)
            into->words[count++] = had->registers[preserved[i]];
    into->kept = into->count = count;
    uint64_t begin = had->registers[LF_RSP], end = stack->base + stack->bytes;
    end = frame_end - SAVED_BYTES < end ? frame_end - SAVED_BYTES : end;
    if (begin < stack->base || begin % 8)
        return;
    for (uint64_t at = begin; at + 8 <= end && count < SM_PYTHON_WORDS_MOST; at += 8)
        memcpy(&into->words[count++], stack->copy + (at - stack->base), 8);
    into->count = count;
}

/* A word of the copy; 0: it is not there. */
static uint64_t word_of(const lu_stack_copy *stack, uint64_t address) {
    uint64_t word = 0;
    if (address >= stack->base && stack->bytes >= 8 && address - stack->base <= stack->bytes - 8)
        memcpy(&word, stack->copy + (address - stack->base), 8);
    return word;
}

uint64_t sm_interpreter_word(const lu_native_frame *native, const lu_frame_registers *had, const lu_stack_copy *stack,
                             uint32_t where) {
    if (where < PRESERVED)
        return had->known >> preserved[where] & 1 ? had->registers[preserved[where]] : 0;
    uint64_t at = native->frame - 8 * (uint64_t)(where - PRESERVED + 1);
    return at >= had->registers[LF_RSP] ? word_of(stack, at) : 0;
}

/* How far before its end a C frame of the interpreter has its _PyCFrame, if one that ends at `frame_end` is among those
 * that the thread has now. */
static void learn_distance(sm_thread *t, uint64_t frame_end) {
    sm_process *p = t->process;
    int32_t pid = p->pid;
    uint64_t state = sm_python_state(t), c_frames[C_FRAMES_MOST];
    int count = state ? lu_python_c_frames(p->python, state, sm_read_memory, &pid, c_frames, C_FRAMES_MOST) : 0;
    for (int i = 0; i < count; i++)
        if (c_frames[i] < frame_end && frame_end - c_frames[i] < INTERPRETER_BYTES)
            p->c_frame_distance = (uint32_t)(frame_end - c_frames[i]);
}

/* The frame of Python that the C frame named then, in its _PyCFrame; 0: it is not known. */
static uint64_t named_frame(sm_thread *t, const lu_stack_copy *stack, uint64_t frame_end) {
    const sm_process *p = t->process;
    if (!p->c_frame_distance)
        learn_distance(t, frame_end);
    if (!p->c_frame_distance)
        return 0;
    return word_of(stack, frame_end - p->c_frame_distance + lu_python_frame_in_c_frame(p->python));
}

/* The code that this frame has now; 0: it is not known. */
static uint64_t running(sm_thread *t, const lu_stack_copy *stack, uint64_t frame_end) {
    const sm_process *p = t->process;
    int32_t pid = p->pid;
    uint64_t frame = named_frame(t, stack, frame_end);
    return frame ? lu_python_code_of(p->python, frame, sm_read_memory, &pid) : 0;
}

/* Among what the C frame had in registers and in itself: a frame that has this code now. */
static uint64_t held_frame(const sm_process *p, const lu_frame_registers *had, const lu_stack_copy *stack,
                           uint64_t frame_end, uint32_t code) {
    static sm_interpreter_words words;
    int32_t pid = p->pid;
    words_of(had, stack, frame_end, &words);
    for (size_t i = 0; i < words.count; i++) {
        uint64_t at = words.words[i];
        lu_python_frame raw = {.code = at && at % 8 == 0 ? lu_python_code_of(p->python, at, sm_read_memory, &pid) : 0};
        if (raw.code && raw.code % 8 == 0 && sm_python_code_known(p, raw.code) == code)
            return at;
    }
    return 0;
}

uint64_t sm_interpreted_frame(sm_thread *t, const lu_native_frame *native, const lu_frame_registers *had,
                              const lu_stack_copy *stack, uint32_t code) {
    uint64_t named = named_frame(t, stack, native->frame);
    if (named || code == LT_NONE)
        return named;
    return held_frame(t->process, had, stack, native->frame, code);
}

int sm_interpreted(sm_thread *t, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                   const lu_stack_copy *stack, sm_python_frame *into, sm_interpreter_words *first) {
    static sm_interpreter_words others;
    sm_process *p = t->process;
    int found = 0;
    for (int i = 0; i < natives; i++) {
        if (sm_interpreter_at(p, native, i) != SM_INTERPRETS)
            continue;
        sm_interpreter_words *words = found ? &others : first;
        words_of(&had[i], stack, native[i].frame, words);
        into[found] = sm_python_at(p, words, 0);
        uint64_t code = into[found].code == LT_NONE ? running(t, stack, native[i].frame) : 0;
        if (code) {
            lu_python_frame raw = {.code = code};
            sm_python_frame frame = {sm_python_code(p, &raw), 0};
            sm_python_learn(p, &raw, &frame, 1);
            into[found] = sm_python_at(p, words, code);
        }
        found++;
    }
    return found;
}
