/* Frames of Python of a thread whose stack the kernel has copied, read from outside a moment later, while it runs on.
 *
 * What the copy has is of the moment of the sample: the C frames of the interpreter, and in each of them the frame of
 * Python that it ran and the address of its next instruction. Frames of Python lie elsewhere in memory and may have
 * changed. So they are read from the frame on that the copy names, which keeps what it had until another call takes its
 * place, and believed if each C frame has the function of Python that its copy tells. Else what the copy tells is all
 * that is known of the inner C frames: of each the function, and not who called it. */
#define _GNU_SOURCE
#include "outside_frames.h"

#include "interpreter_frames.h"
#include "python_stacks.h"

#include <string.h>

static sm_python_frame then[SM_FRAMES_MOST]; /* of each C frame of the interpreter, as the copy tells */
static lu_python_frame raw[LF_SAMPLES_FRAMES_MOST];
static struct {
    const sm_thread *thread;
    int count;
    sm_python_frame frames[LF_SAMPLES_FRAMES_MOST];
} now; /* as they were when they were read last */
static int groups[LF_SAMPLES_FRAMES_MOST + 1]; /* where the frames of each C frame begin, and the end of all */

static uint32_t place_of(uint32_t place, const sm_python_frame *frame) { return place | (frame->place & LF_ENTRY); }

static int divide(const sm_python_frame *frames, int count) {
    int found = 0;
    for (int i = 0; i < count; i++)
        if (!i || frames[i - 1].place & LF_ENTRY)
            groups[found++] = i;
    groups[found] = count;
    return found;
}

static int is_function(const sm_python_frame *frame, const sm_python_frame *told) {
    return told->code == LT_NONE || frame->code == told->code;
}

/* Whether these frames are what the `evals` C frames ran. Of a stack that is not whole the outer ones are missing. */
static int agree(const sm_python_frame *frames, int count, int evals, int is_root) {
    int found = divide(frames, count);
    if (then[0].code == LT_NONE || found < evals || (is_root && found != evals))
        return 0;
    for (int i = 0; i < evals; i++)
        if (!is_function(&frames[groups[i]], &then[i]))
            return 0;
    return 1;
}

/* How many of the outermost C frames have the function that the copy tells. */
static int agreeing(const sm_python_frame *frames, int count, int evals, int is_root) {
    int found = divide(frames, count), same = 0;
    if (!is_root)
        return 0;
    while (same < evals - 1 && same < found
           && is_function(&frames[groups[found - 1 - same]], &then[evals - 1 - same])
           && then[evals - 1 - same].code != LT_NONE)
        same++;
    return same;
}

/* Of the inner C frames the function, of the others what was read; how many frames that makes. */
static int put_together(sm_python_frame *frames, int count, int evals, int is_root) {
    int same = agreeing(frames, count, evals, is_root), found = divide(frames, count), inner = 0;
    int from = same ? groups[found - same] : count, kept = count - from;
    for (int i = 0; i < evals - same; i++)
        inner += 1 + (then[i].code != LT_NONE);
    if (inner + kept > (int)LF_SAMPLES_FRAMES_MOST)
        return 0;
    memmove(&frames[inner], &frames[from], (size_t)kept * sizeof *frames);
    for (int i = 0, at = 0; i < evals - same; i++) {
        if (then[i].code != LT_NONE)
            frames[at++] = (sm_python_frame){then[i].code, then[i].place & ~LF_ENTRY};
        frames[at++] = (sm_python_frame){LF_BETWEEN, 1 | LF_ENTRY};
    }
    return inner + kept;
}

/* As soon as there is a sample: every moment counts. */
void sm_outside_look(sm_thread *t) {
    now.thread = t;
    now.count = sm_python_frames(t, raw, now.frames);
    sm_python_learn(t->process, raw, now.frames, now.count);
}

/* What the C frames ran, with the functions known that they have now. */
static int interpreted(sm_thread *t, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                       const lu_stack_copy *stack) {
    static sm_interpreter_words words;
    return sm_interpreted(t, native, had, natives, stack, then, &words);
}

int sm_outside_frames(sm_thread *t, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                      uint32_t how, const lu_stack_copy *stack, sm_python_frame *into, int *is_torn) {
    sm_process *p = t->process;
    int is_root = !!(how & LU_UNWOUND_ROOT), leaf = 0;
    *is_torn = 0;
    while (leaf < natives && !lu_space_in_function(p->space, native[leaf].address, SM_INTERPRETER))
        leaf++;
    if (leaf == natives || now.thread != t || !sm_python_state(t))
        return 0;
    int evals = interpreted(t, native, had, natives, stack), count = now.count;
    memcpy(into, now.frames, (size_t)count * sizeof *into);
    if (!agree(into, count, evals, is_root)) {
        uint64_t frame = sm_interpreted_frame(t, &native[leaf], &had[leaf], stack, then[0].code);
        count = frame ? sm_python_frames_from(p, frame, raw, into) : 0;
        *is_torn = !agree(into, count, evals, is_root);
    }
    if (*is_torn) {
        memcpy(into, now.frames, (size_t)now.count * sizeof *into);
        return put_together(into, now.count, evals, is_root);
    }
    into[0].place = place_of(then[0].place & ~LF_ENTRY, &into[0]); /* where it was, not where it is by now */
    return count;
}
