/* What the library gives. */
#ifndef LAYERSCOPE_UNWINDING_H
#define LAYERSCOPE_UNWINDING_H

#include "../samples.h"

/* The user's side of a sample: registers in the order of samples.h, those of `known` alone (bit 1 << LF_RSP and so on),
 * and where the copy of the stack lies. */
typedef struct {
    uint64_t registers[LF_REGISTERS];
    uint64_t known, stack_at, stack_bytes;
} lw_copy;

void *lw_space(const char *maps); /* as lu_space_told */
void lw_space_free(void *space);
/* The addresses of the frames of each sample, the innermost first and one behind the other: where it ran, and where calls
 * return to. `lengths`: how many are of each. How many samples, fewer than `count` where there was no room. */
uint64_t lw_unwind(void *space, const uint8_t *bytes, const lw_copy *copies, uint64_t count, uint64_t *addresses,
                   uint64_t room, uint32_t *lengths, uint32_t *how);

#endif
