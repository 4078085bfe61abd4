/* Who ends waits. */
#ifndef LAYERSCOPE_SAMPLER_WAKEUPS_H
#define LAYERSCOPE_SAMPLER_WAKEUPS_H

#include "threads.h"

int sm_wakeups_prepare(void);
int sm_wakeups_add(int32_t tid, int cpu, int ring_fd);
void sm_wakeups_take(const void *record);
void sm_wakeups_tick(void);
uint32_t sm_waker_of(const sm_thread *thread, uint64_t from_ns, uint64_t until_ns);

#endif
