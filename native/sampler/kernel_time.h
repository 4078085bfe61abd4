/* What the kernel does for a thread. */
#ifndef LAYERSCOPE_SAMPLER_KERNEL_TIME_H
#define LAYERSCOPE_SAMPLER_KERNEL_TIME_H

#include "joined_stacks.h"

int sm_kernel_open(int32_t tid, int cpu, uint32_t stack_bytes);
int sm_kernel_open_first(int32_t tid, int cpu, uint32_t stack_bytes, uint64_t period_ns);
int sm_kernel_keep(int fd);
void sm_kernel_new_rate(void);
void sm_kernel_pause(int is_on);
void sm_kernel_switched(void);
void sm_kernel_tick(void);
void sm_kernel_take(const void *record);
void sm_kernel_share(sm_thread *thread, lt_sample *sample, const sm_user_stack *user);
void sm_kernel_rest(sm_thread *thread, uint64_t at_ns, uint64_t cpu_ns);

#endif
