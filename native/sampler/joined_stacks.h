/* Where code of a process lies, and its stacks. */
#ifndef LAYERSCOPE_SAMPLER_JOINED_STACKS_H
#define LAYERSCOPE_SAMPLER_JOINED_STACKS_H

#include "intern.h"
#include "threads.h"

#define SM_FRAMES_MOST 1024
#define SM_INTERPRETER "_PyEval_EvalFrameDefault"

/* What the frame `i` of these is, the leaf first. SM_CALLED_INTERPRETER: it has called the frame inside of it, which
 * stands for both. */
enum { SM_NO_INTERPRETER = 0, SM_INTERPRETS = 1, SM_CALLED_INTERPRETER = 2 };
int sm_interpreter_at(const sm_process *process, const lu_native_frame *native, int i);

/* What a sample tells of its thread: native frames, the leaf first, those of Python, and both as one stack. */
typedef struct {
    uint32_t stack, how;
    const lu_native_frame *native;
    const sm_python_frame *python;
    int count, frames;
    int has_fitted; /* each frame of the interpreter has its frames of Python */
} sm_user_stack;

lu_space *sm_space(sm_process *process, int is_urgent);
void sm_space_forget(sm_process *process);
/* What takes the frames of a stack, from the outside in. */
typedef struct {
    void (*native)(void *of, uint64_t address, int is_caller);
    void (*python)(void *of, uint32_t code, uint32_t place);
    void (*cut)(void *of, uint32_t kind); /* LT_CUT_OUTER, LT_CUT_BETWEEN */
    void *of;
} sm_taker;
/* Gives a stack of native frames (the leaf first) with these of Python in it to `to`. */
void sm_place(sm_process *process, const lu_native_frame *native, int count, uint32_t how,
              const sm_python_frame *python, int frames, uint32_t *flags, const sm_taker *to);
/* Interns a stack of native frames (the leaf first) with these of Python in it, or LT_NONE. */
uint32_t sm_join(sm_process *process, const lu_native_frame *native, int count, uint32_t how,
                 const sm_python_frame *python, int frames, uint32_t *flags);
uint64_t sm_cut_stacks(void); /* how many had no room */

#endif
