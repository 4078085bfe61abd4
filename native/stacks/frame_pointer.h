/* Frames that end where rbp says. */
#ifndef LAYERSCOPE_STACKS_FRAME_POINTER_H
#define LAYERSCOPE_STACKS_FRAME_POINTER_H

#include "steps.h"

/* From a frame without unwind information to its caller by rbp; false: not for certain. */
bool lu_walk_framed(lu_walk *walk, lu_state *state, uint64_t *cfa);

#endif
