/* Who may be sent the signal of samples. */
#ifndef LAYERSCOPE_SAMPLER_SIGNALLED_H
#define LAYERSCOPE_SAMPLER_SIGNALLED_H

#include "threads.h"

void sm_signalled_begin(sm_thread *thread);
void sm_signalled_begin_process(sm_process *process);
void sm_signalled_end(const sm_thread *thread);
void sm_signalled_leave_alone(sm_process *process);
void sm_signalled_look(void); /* for those that have the signal for themselves */
int sm_signalled_tick(void);

#endif
