/* Which function of Python a thread is in. */
#ifndef LAYERSCOPE_SAMPLER_PYTHON_FUNCTION_H
#define LAYERSCOPE_SAMPLER_PYTHON_FUNCTION_H

#include "intern.h"
#include "threads.h"

/* The innermost function of Python by what the interpreter has in its registers and its C frame, which lie in `words`.
 * Its code is LT_NONE if none, or more than one, can be meant. `raw`: frames seen now, whose code is known from
 * now on. */
sm_python_frame sm_python_at(sm_process *process, const lu_python_frame *raw, const sm_python_frame *frames, int count,
                             const uint64_t *words, size_t words_count);
void sm_python_forget(sm_process *process);

#endif
