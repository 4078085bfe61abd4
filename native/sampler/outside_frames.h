/* Frames of Python of a thread whose stack the kernel has copied, read from outside. */
#ifndef LAYERSCOPE_SAMPLER_OUTSIDE_FRAMES_H
#define LAYERSCOPE_SAMPLER_OUTSIDE_FRAMES_H

#include "joined_stacks.h"

/* Reads the frames that the thread has now, before its copy is unwound. */
void sm_outside_look(sm_thread *thread);
/* Room for LF_SAMPLES_FRAMES_MOST frames. `*is_torn`: not all that the thread had are there. */
int sm_outside_frames(sm_thread *thread, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                      uint32_t how, const lu_stack_copy *stack, sm_python_frame *into, int *is_torn);
/* What each C frame of the interpreter ran, the innermost first; how many there are. The code is LT_NONE if it is not
 * known, or not known yet where they keep that. */
int sm_outside_instructions(sm_thread *thread, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                            const lu_stack_copy *stack, sm_python_frame *into);
void sm_outside_forget(sm_process *process);

#endif
