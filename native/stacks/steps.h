/* A walk from frame to frame, and one step of it by a row of unwind information. */
#ifndef LAYERSCOPE_STACKS_STEPS_H
#define LAYERSCOPE_STACKS_STEPS_H

#include "cfi.h"

typedef struct {
    uint64_t registers[LF_REGISTERS];
    uint32_t known; /* a bit for each register */
    bool exact;     /* it runs at RIP, or was interrupted there; else RIP is a return address */
} lu_state;

/* What one stack may cost, whatever lies in it: frames and words of it that are looked at, attempts included. */
#define LU_STEPS_MOST 4096
#define LU_WORDS_MOST 16384

typedef struct {
    lu_space *space;
    const lu_stack_copy *stack;
    lu_native_frame *into;
    lu_frame_registers *had; /* of each of these, NULL: nobody asks */
    int most;
    int steps;   /* frames that may still be looked at, attempts included */
    int again;   /* frames of attempts that may still be walked a second time */
    int words;   /* of the stack that repairs may still look at */
    int repairs; /* that this is inside of */
    bool beyond; /* the copy ended */
    bool signal; /* a signal was passed: what it interrupted may have another stack */
    bool moved;  /* code had pointed rsp away from the stack, of which the copy has nothing then */
    bool nowhere; /* an address was in no mapping */
    bool repaired;
    bool lenient; /* in a repair: a CALL is believed that leads elsewhere */
} lu_walk;

/* A word of the stack. */
bool lu_walk_read(lu_walk *walk, uint64_t address, uint64_t *word);
/* Where a frame ends by its row; false: that is not known. */
bool lu_walk_cfa(lu_walk *walk, const lu_state *state, lu_object *object, const lu_row *row, uint64_t *cfa);
enum { LU_STEP_LOST, LU_STEP_ROOT, LU_STEP_DONE };
/* From a frame that ends at `cfa` to its caller. */
int lu_walk_step(lu_walk *walk, lu_state *state, lu_object *object, const lu_row *row, uint64_t cfa);

#endif
