/* From registers and a copy of the stack to frames. */
#include "repair.h"
#include "space.h"

#include <string.h>

int lu_unwind(lu_space *space, const uint64_t registers[LF_REGISTERS], uint32_t known, const lu_stack_copy *stack,
              lu_native_frame *into, int most, uint32_t *how) {
    return lu_unwind_registers(space, registers, known, stack, into, NULL, most, how);
}

int lu_unwind_registers(lu_space *space, const uint64_t registers[LF_REGISTERS], uint32_t known,
                        const lu_stack_copy *stack, lu_native_frame *into, lu_frame_registers *had, int most,
                        uint32_t *how) {
    lu_walk walk = {.space = space, .stack = stack, .into = into, .had = had, .most = most, .steps = LU_STEPS_MOST,
                    .again = LU_STEPS_MOST, .words = LU_WORDS_MOST};
    lu_state state = {.known = known, .exact = true};
    *how = 0;
    if (most <= 0 || ~known & (1u << LF_RSP | 1u << LF_RIP))
        return 0;
    memcpy(state.registers, registers, sizeof state.registers);
    const lu_mapping *m = lu_space_mapping(space, registers[LF_RIP]);
    if (!m || !m->object)
        *how |= LU_UNWOUND_JIT;
    lu_walked walked = lu_walk_through(&walk, &state, 0);
    if (walked.outcome == LU_ROOT)
        *how |= LU_UNWOUND_ROOT;
    if (!m || (walk.nowhere && walked.outcome != LU_ROOT))
        *how |= LU_UNWOUND_STALE;
    if (walked.outcome == LU_BEYOND || walked.outcome == LU_FULL)
        *how |= LU_UNWOUND_CUT;
    if (walk.repaired)
        *how |= LU_UNWOUND_REPAIRED;
    if (walk.moved)
        *how |= LU_UNWOUND_LATER;
    return walked.count;
}
