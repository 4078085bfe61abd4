/* Frames of Python of a thread, read from outside. */
#ifndef LAYERSCOPE_SAMPLER_PYTHON_STACKS_H
#define LAYERSCOPE_SAMPLER_PYTHON_STACKS_H

#include "intern.h"
#include "threads.h"

uint64_t sm_python_state(sm_thread *thread); /* its PyThreadState; 0: it has none */
/* The number of the code that a frame runs, of which `name` and the rest is filled in if it is not; LT_NONE: none. */
uint32_t sm_python_code(const sm_process *process, lu_python_frame *frame);
int sm_python_frames(sm_thread *thread, lu_python_frame *raw, sm_python_frame *into);
/* The same of one that runs. `*is_whole`: all are there, and it was in the same place when they had been read. */
int sm_python_frames_now(sm_thread *thread, lu_python_frame *raw, sm_python_frame *into, int *is_whole);

#endif
