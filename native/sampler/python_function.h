/* Which function of Python a thread is in. */
#ifndef LAYERSCOPE_SAMPLER_PYTHON_FUNCTION_H
#define LAYERSCOPE_SAMPLER_PYTHON_FUNCTION_H

#include "intern.h"
#include "threads.h"

#define SM_PYTHON_WORDS_MOST 160u

/* The frames of Python of a process, seen now: their code is known from now on. */
void sm_python_learn(sm_process *process, const lu_python_frame *raw, const sm_python_frame *frames, int count);
/* What a C frame of the interpreter may have its next instruction in: `kept` registers, then what lies in the frame. */
typedef struct {
    size_t kept, count;
    uint64_t words[SM_PYTHON_WORDS_MOST];
} sm_interpreter_words;
/* The function that it ran. Its code is LT_NONE if none, or more than one, can be meant, unless one of these has the code
 * object `running`. */
sm_python_frame sm_python_at(const sm_process *process, const sm_interpreter_words *words, uint64_t running);
/* The frame that stands for one whose function is not known. */
sm_python_frame sm_python_unknown(const sm_process *process);
/* The function whose next instruction this is; the code LT_NONE: none that is known. */
sm_python_frame sm_python_of_word(const sm_process *process, uint64_t word);
/* The number of the code object at this address, if it has been seen; LT_NONE: it has not. */
uint32_t sm_python_code_known(const sm_process *process, uint64_t code);
void sm_python_forget(sm_process *process);

#endif
