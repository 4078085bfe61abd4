/* Code that the processes make. */
#ifndef LAYERSCOPE_SAMPLER_JIT_CODE_H
#define LAYERSCOPE_SAMPLER_JIT_CODE_H

#include "threads.h"

void sm_take_made(sm_process *process, const lf_sample_made *made, size_t bytes);
void sm_made_forget(sm_process *process);
uint32_t sm_made_at(sm_process *process, uint64_t address, uint64_t *offset);

#endif
