/* A walk that passes frames of which nobody tells how they end. */
#ifndef LAYERSCOPE_STACKS_REPAIR_H
#define LAYERSCOPE_STACKS_REPAIR_H

#include "walk.h"

/* Goes on from `state`, which it changes, with frame number `at`. */
lu_walked lu_walk_through(lu_walk *walk, lu_state *state, int at);

#endif
