/* Copies of stacks that others have made, such as perf with --call-graph dwarf, unwound as the sampler unwinds its own:
 * a library for the side that reads (sources/perf_unwinding.py). */
#include "unwinding.h"

#include "../stacks/stacks.h"

/* perf takes 127 frames of those that the kernel walks; there are no more than fit into a copy. */
#define FRAMES_MOST 1024

#define EXPORT __attribute__((visibility("default")))

EXPORT void *lw_space(const char *maps) { return lu_space_told(maps); }

EXPORT void lw_space_free(void *space) { lu_space_free(space); }

EXPORT uint64_t lw_unwind(void *space, const uint8_t *bytes, const lw_copy *copies, uint64_t count,
                          uint64_t *addresses, uint64_t room, uint32_t *lengths, uint32_t *how) {
    static lu_native_frame frames[FRAMES_MOST];
    uint64_t used = 0;
    for (uint64_t i = 0; i < count; i++) {
        const lw_copy *c = &copies[i];
        lu_stack_copy stack = {c->registers[LF_RSP], bytes + c->stack_at, c->stack_bytes, NULL, NULL, NULL};
        int found = lu_unwind(space, c->registers, (uint32_t)c->known, &stack, frames, FRAMES_MOST, &how[i]);
        if (used + (uint64_t)found > room)
            return i;
        for (int j = 0; j < found; j++)
            addresses[used++] = frames[j].address + (j > 0);
        lengths[i] = (uint32_t)found;
    }
    return count;
}
