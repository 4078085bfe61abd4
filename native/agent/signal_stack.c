/* A stack for the signals of each thread that the agent knows, where the thread has none. Code may use the stack pointer
 * for something else while no signal is expected: matrix kernels of oneDNN 2 point it into the heap, and the kernel
 * would write the frame of the signal there. A thread that calls oneDNN tells ITT first, so it has its stack in time. */
#define _GNU_SOURCE
#include "sampling.h"

#include <sys/mman.h>

#define GUARD_BYTES 4096u
/* As those of other runtimes: handlers of the program's own may come to run there. */
#define STACK_BYTES (64u << 10)

/* The mapping; NULL: the thread has a stack of its own, or there is no memory. */
void *ls_signal_stack_make(void) {
    stack_t now;
    if (sigaltstack(NULL, &now) || !(now.ss_flags & SS_DISABLE))
        return NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    uint8_t *at = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    stack_t ours = {.ss_sp = at + GUARD_BYTES, .ss_size = STACK_BYTES};
    if (mprotect(at, GUARD_BYTES, PROT_NONE) || sigaltstack(&ours, NULL)) {
        munmap(at, GUARD_BYTES + STACK_BYTES);
        return NULL;
    }
    return at;
}

/* The thread ends. One that somebody has put another in place of stays: it may be put back. */
void ls_signal_stack_end(void **stack) {
    stack_t now, none = {.ss_flags = SS_DISABLE};
    uint8_t *at = *stack;
    *stack = NULL;
    if (at && !sigaltstack(NULL, &now) && now.ss_sp == at + GUARD_BYTES && !sigaltstack(&none, NULL))
        munmap(at, GUARD_BYTES + STACK_BYTES);
}
