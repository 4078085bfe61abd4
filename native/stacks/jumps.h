/* What code says of who may have called it. */
#ifndef LAYERSCOPE_STACKS_JUMPS_H
#define LAYERSCOPE_STACKS_JUMPS_H

#include "cfi.h"
#include "space.h"

/* The row at an address of the process, NULL if there is none. It stays until the next call. */
const lu_row *lu_row_in(const lu_space *space, uint64_t address);
/* Whether the function that begins at `target` may end in a jump to another one. */
bool lu_jumps_on(const lu_space *space, uint64_t target);
/* Whether a CALL of `target` can lead to the function that begins at `function`: itself, or by a jump. */
bool lu_leads_to(const lu_space *space, uint64_t target, uint64_t function);

#endif
