/* Frames of Python of a thread, read from outside. */
#ifndef LAYERSCOPE_SAMPLER_PYTHON_STACKS_H
#define LAYERSCOPE_SAMPLER_PYTHON_STACKS_H

#include "intern.h"
#include "threads.h"

int sm_python_frames(sm_thread *thread, lu_python_frame *raw, sm_python_frame *into);

#endif
