/* A look at a thread that waits. */
#ifndef LAYERSCOPE_SAMPLER_WAIT_STACKS_H
#define LAYERSCOPE_SAMPLER_WAIT_STACKS_H

#include "threads.h"

int sm_look_at(sm_thread *thread, sm_look *look); /* SM_LOOKED, ... */
void sm_look_end(sm_thread *thread);

#endif
