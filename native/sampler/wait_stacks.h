/* A look at a thread that waits. */
#ifndef LAYERSCOPE_SAMPLER_WAIT_STACKS_H
#define LAYERSCOPE_SAMPLER_WAIT_STACKS_H

#include "threads.h"

/* The system call that a thread is in that is off a CPU; number -1: none. */
typedef struct {
    int64_t number;
    uint64_t arguments[6], stack_pointer, instruction;
} sm_call;
/* -1: it runs, or has ended, and errno is not EACCES or EPERM. */
int sm_read_call(sm_thread *thread, sm_call *into);

int sm_look_at(sm_thread *thread, sm_look *look); /* SM_LOOKED, ... */
void sm_look_end(sm_thread *thread);

#endif
