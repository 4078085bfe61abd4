/* Which functions the C frames of the interpreter ran. */
#ifndef LAYERSCOPE_SAMPLER_INTERPRETER_FRAMES_H
#define LAYERSCOPE_SAMPLER_INTERPRETER_FRAMES_H

#include "python_function.h"

/* Of the C frames of the interpreter among the `natives` frames, the leaf first; how many there are. The code is LT_NONE
 * if it is not known (yet): `first` has what tells that of the innermost. */
int sm_interpreted(sm_thread *thread, const lu_native_frame *native, const lu_frame_registers *had, int natives,
                   const lu_stack_copy *stack, sm_python_frame *into, sm_interpreter_words *first);
/* The frame of Python that one of them ran, of this code, as far as its C frame tells; 0: it does not. */
uint64_t sm_interpreted_frame(sm_thread *thread, const lu_native_frame *native, const lu_frame_registers *had,
                              const lu_stack_copy *stack, uint32_t code);
/* What one of them has in the place `where`: the registers that calls preserve come first, then its words from its end
 * down. 0: it is not known. */
#define SM_PLACES_MOST 128u
uint64_t sm_interpreter_word(const lu_native_frame *native, const lu_frame_registers *had, const lu_stack_copy *stack,
                             uint32_t where);

#endif
