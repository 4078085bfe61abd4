/* Samples become rows. */
#ifndef LAYERSCOPE_SAMPLER_SAMPLES_H
#define LAYERSCOPE_SAMPLER_SAMPLES_H

#include "threads.h"

/* The event of a sample that the kernel copied, beside descriptors (>= 0) and timers (-1). */
#define SM_COPIED(event) (-2 - (event))

/* A record of an area. */
void sm_take_record(sm_process *process, const lf_sample_head *head, size_t bytes);
void sm_codes_forget(sm_process *process);
void sm_take_sample(sm_process *process, const lf_sample *sample, size_t bytes);
uint64_t sm_lost_samples(const sm_thread *thread); /* that may have been of this thread */

#endif
