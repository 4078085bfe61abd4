/* Events of the kernel. */
#ifndef LAYERSCOPE_SAMPLER_PERF_EVENT_H
#define LAYERSCOPE_SAMPLER_PERF_EVENT_H

#include "../samples.h"

#include <stddef.h>

/* What the kernel tells of a thread's registers: bits of asm/perf_regs.h, and ours in the order of these bits. */
#define SM_USER_REGISTERS 0xff01ffull
extern const uint8_t sm_user_registers[LF_REGISTERS];
int sm_may_keep(int fd);
void sm_perf_event_pause(int fd, int is_on); /* or let it go on; all that threads have inherited of it, too */
int sm_perf_event_open(void *attributes, int32_t tid, int cpu);
/* Finds the CPUs that are online: 0, or minus an errno. */
int sm_cpus_find(void);
uint32_t sm_cpus(void);
int sm_cpu(uint32_t place);
/* Bytes of a ring of `size` bytes from position `at` on. */
void sm_ring_copy(const uint8_t *data, uint64_t size, uint64_t at, void *into, size_t bytes);

#endif
