/* Frames of code that oneDNN makes. */
#ifndef LAYERSCOPE_STACKS_JIT_FRAMES_H
#define LAYERSCOPE_STACKS_JIT_FRAMES_H

#include "steps.h"

/* Where oneDNN's code at `pc`, whose stack pointer is `*sp`, has its return address, by the end of its function: 0 if it
 * does not look like that. `*sp` becomes what rsp was, if the function points it elsewhere and has done so. */
uint64_t lu_made_code_slot(lu_walk *walk, uint64_t pc, uint64_t *sp);

#endif
