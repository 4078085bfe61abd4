/* Frames of Python of a thread whose stack the kernel has copied, read from outside a moment later, while it runs on.
 *
 * What the copy has is of the moment of the sample: the C frames of the interpreter, and in each of them the frame of
 * Python that it ran and the address of its next instruction. Frames of Python lie elsewhere in memory and may have
 * changed. They are read twice, for what changes while it is read is no stack that there was; believed are those from
 * the frame on that the copy names, if the thread had it both times, and each C frame runs the frame and the function
 * of Python that its copy tells. Else what the copy tells is all that is known of the inner C frames: of each the
 * function, and not who called it. */
#define _GNU_SOURCE
#include "outside_frames.h"

#include "interpreter_frames.h"
#include "procfs.h"
#include "python_stacks.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const sm_thread *thread;
    int count;
    sm_python_frame frames[LF_SAMPLES_FRAMES_MOST]; /* the innermost first */
    lu_python_frame raw[LF_SAMPLES_FRAMES_MOST];
} look;
static look first, again; /* as they were when they were read last */

/* Of each C frame of the interpreter, the innermost first, as the copy tells: the function, and where its frame lies. */
static sm_python_frame then[SM_FRAMES_MOST];
static uint64_t then_at[SM_FRAMES_MOST];

static void read_now(sm_thread *t, look *into) {
    into->thread = t;
    into->count = sm_python_frames(t, into->raw, into->frames);
}

/* How many of the outermost frames are the same in both. */
static int steady(void) {
    int most = first.count < again.count ? first.count : again.count, same = 0;
    while (same < most) {
        const lu_python_frame *a = &first.raw[first.count - 1 - same], *b = &again.raw[again.count - 1 - same];
        if (a->at != b->at || a->code != b->code)
            break;
        same++;
    }
    return same;
}

void sm_outside_look(sm_thread *t) {
    read_now(t, &first);
    read_now(t, &again);
    sm_python_learn(t->process, again.raw, again.frames, again.count);
}

static int is_entry(int i) { return !!(again.frames[i].place & LF_ENTRY); }

/* Whether the frames from `from` on are what these C frames ran: each has the innermost frame of one group. Of a stack
 * that is not whole the outer groups have no C frame. */
static int agree(int from, int evals, int is_root) {
    int eval = 0;
    for (int i = from, is_first = 1; i < again.count; is_first = is_entry(i++)) {
        if (again.frames[i].code == LT_NONE)
            return 0;
        if (!is_first)
            continue;
        if (eval == evals)
            return !is_root;
        if (again.raw[i].at != then_at[eval] || (then[eval].code != LT_NONE && again.frames[i].code != then[eval].code))
            return 0;
        eval++;
    }
    return eval == evals;
}

/* Where the frames begin that the thread had, of those that were read; -1: they are not there. */
static int beginning(int evals, int is_root) {
    for (int i = again.count - steady(); evals && then[0].code != LT_NONE && i < again.count; i++)
        if (again.raw[i].at == then_at[0])
            return agree(i, evals, is_root) ? i : -1;
    return -1;
}

/* What the copy alone tells: of each C frame its function, if it is sure where that stands. */
static int functions_alone(const sm_process *p, int evals, int is_sure, sm_python_frame *into) {
    int count = 0;
    for (int i = 0; i < evals && count + 2 <= (int)LF_SAMPLES_FRAMES_MOST; i++) {
        sm_python_frame one = is_sure && then[i].code != LT_NONE ? then[i] : sm_python_unknown(p);
        into[count++] = (sm_python_frame){one.code, one.place & ~LF_ENTRY};
        into[count++] = (sm_python_frame){LF_BETWEEN, 1 | LF_ENTRY};
    }
    return count;
}

/* --- What C frames of the interpreter have always in the same place --- */

/* One register or word of them has the next instruction, another one the frame: what an earlier call has left lies in
 * others. They are learned from frames that are known. CPython 3.11 and 3.12 name the frame otherwise. */
#define LEARNED 16u
#define MOST_LEARNED 400u
#define SURE_SHARE 50u /* of so many, one may be otherwise: a frame that was just made */
enum { INSTRUCTION, FRAME, KINDS };
typedef struct sm_told {
    uint32_t seen, hits[KINDS][SM_PLACES_MOST];
} told;

static void learn_places(sm_process *p, const lu_native_frame *native, const lu_frame_registers *had,
                         const lu_stack_copy *stack, const lu_python_frame *raw, uint32_t code) {
    if (!p->outside.told)
        p->outside.told = calloc(1, sizeof *p->outside.told);
    told *to = p->outside.told;
    if (!to || code == LT_NONE || to->seen == MOST_LEARNED)
        return;
    to->seen++;
    for (uint32_t where = 0; where < SM_PLACES_MOST; where++) {
        uint64_t word = sm_interpreter_word(native, had, stack, where);
        to->hits[INSTRUCTION][where] += sm_python_of_word(p, word).code == code;
        to->hits[FRAME][where] += word == raw->at;
    }
}

/* -1: not known (yet). */
static int place_of(const sm_process *p, int kind) {
    const told *of = p->outside.told;
    int best = 0;
    if (!of || of->seen < LEARNED)
        return -1;
    for (int where = 1; where < (int)SM_PLACES_MOST; where++)
        if (of->hits[kind][where] > of->hits[kind][best])
            best = where;
    return (of->seen - of->hits[kind][best]) * SURE_SHARE <= of->seen ? best : -1;
}

void sm_outside_forget(sm_process *p) {
    free(p->outside.told);
    p->outside.told = NULL;
}

/* --- A stack --- */

static int is_interpreter(const sm_process *p, const lu_native_frame *native, int i) {
    return sm_interpreter_at(p, native, i) == SM_INTERPRETS;
}

/* What this C frame of the interpreter has in its learned places; 0: not known. */
static void told_here(const lu_native_frame *native, const lu_frame_registers *had, const lu_stack_copy *stack,
                      const int where[KINDS], uint64_t into[KINDS]) {
    for (int kind = 0; kind < KINDS; kind++)
        into[kind] = where[kind] < 0 ? 0 : sm_interpreter_word(native, had, stack, (uint32_t)where[kind]);
}

/* A C frame that has called another one of the interpreter may keep its next instruction elsewhere meanwhile, and have
 * that of an earlier call in the place. Its function is believed if the frame of Python that it names is of it too. */
static int is_confirmed(const sm_process *p, uint64_t frame, uint32_t code) {
    int32_t pid = p->pid;
    uint64_t running = frame ? lu_python_code_of(p->python, frame, sm_read_memory, &pid) : 0;
    return running && code != LT_NONE && sm_python_code_known(p, running) == code;
}

/* What each C frame of the interpreter ran; how many there are. `where`: what they have always in the same place. */
static int interpreted(sm_thread *t, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                       const lu_stack_copy *stack, const int where[KINDS]) {
    static sm_interpreter_words words;
    int evals = sm_interpreted(t, native, had, natives, stack, then, &words);
    for (int i = 0, eval = 0; i < natives && eval < evals; i++) {
        if (!is_interpreter(t->process, native, i))
            continue;
        uint64_t told[KINDS];
        told_here(&native[i], &had[i], stack, where, told);
        if (where[INSTRUCTION] >= 0)
            then[eval] = sm_python_of_word(t->process, told[INSTRUCTION]);
        then_at[eval] = where[FRAME] >= 0 ? told[FRAME]
                                          : sm_interpreted_frame(t, &native[i], &had[i], stack, then[eval].code);
        if (eval && !is_confirmed(t->process, then_at[eval], then[eval].code))
            then[eval].code = LT_NONE;
        eval++;
    }
    return evals;
}

int sm_outside_instructions(sm_thread *t, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                            const lu_stack_copy *stack, sm_python_frame *into) {
    const int where[KINDS] = {place_of(t->process, INSTRUCTION), place_of(t->process, FRAME)};
    int evals = interpreted(t, native, had, natives, stack, where);
    for (int i = 0; i < evals; i++)
        into[i] = where[INSTRUCTION] < 0 ? (sm_python_frame){LT_NONE, 0} : then[i];
    return evals;
}

/* The innermost C frame has this frame and its code, which have been read. */
static void learn_from(sm_process *p, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                       const lu_stack_copy *stack, const lu_python_frame *raw, uint32_t code) {
    for (int i = 0; i < natives; i++)
        if (is_interpreter(p, native, i)) {
            learn_places(p, &native[i], &had[i], stack, raw, code);
            return;
        }
}

int sm_outside_frames(sm_thread *t, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                      uint32_t how, const lu_stack_copy *stack, sm_python_frame *into, int *is_torn) {
    sm_process *p = t->process;
    const int where[KINDS] = {place_of(p, INSTRUCTION), place_of(p, FRAME)};
    int evals = interpreted(t, native, had, natives, stack, where);
    *is_torn = 0;
    if (!evals || again.thread != t || !sm_python_state(t))
        return 0;
    int from = beginning(evals, !!(how & LU_UNWOUND_ROOT)), count = again.count - from;
    *is_torn = from < 0;
    if (*is_torn)
        return functions_alone(p, evals, where[INSTRUCTION] >= 0, into);
    learn_from(p, native, had, natives, stack, &again.raw[from], again.frames[from].code);
    memcpy(into, &again.frames[from], (size_t)count * sizeof *into);
    into[0].place = then[0].place | (into[0].place & LF_ENTRY); /* where it was, not where it is by now */
    return count;
}
