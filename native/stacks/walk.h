/* A walk as far as unwind information and frame pointers lead. */
#ifndef LAYERSCOPE_STACKS_WALK_H
#define LAYERSCOPE_STACKS_WALK_H

#include "steps.h"

/* How a walk ended, the better the greater; STOPPED: nobody tells how the last frame ends. */
enum { LU_LOST, LU_BEYOND, LU_FULL, LU_ROOT, LU_STOPPED };
typedef struct {
    int outcome, count; /* count: of all frames */
    uint64_t reached;   /* the last CFA */
} lu_walked;

/* Goes on from `state`, which it changes, with frame number `at`. Where it has stopped, `*last` is the
 * row of the last frame, if it is not NULL: it tells where registers are kept, but not where the frame ends. */
lu_walked lu_walk_on(lu_walk *walk, lu_state *state, int at, const lu_row **last);

#endif
