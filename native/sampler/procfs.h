/* Small files of /proc, and memory of other processes. */
#ifndef LAYERSCOPE_SAMPLER_PROCFS_H
#define LAYERSCOPE_SAMPLER_PROCFS_H

#include <stddef.h>
#include <stdint.h>

/* The text of a file; its length, -1 if it cannot be read. */
int sm_proc(char *into, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* What stands behind the name in /proc/PID/task/TID/stat; NULL: it cannot be read, and errno says why. */
const char *sm_stat(char *into, size_t room, int32_t pid, int32_t tid);
int sm_each_task(int32_t pid, void (*one)(int32_t pid, int32_t tid, void *of), void *of);
uint64_t sm_started_ns(int32_t pid, int32_t tid); /* 0: it is gone */
uint64_t sm_ran_ns(int32_t pid, int32_t tid, uint64_t *delay_ns, uint64_t *dispatches);
int sm_read_memory(void *pid, uint64_t address, void *into, size_t bytes); /* an lu_read; `pid`: of an int32_t */
/* The same of memory that is read for one sample: at once, so that it does not change in between. */
void sm_snapshot_begin(void);
int sm_read_snapshot(void *pid, uint64_t address, void *into, size_t bytes);
/* The same of memory whose pages are kept until they are forgotten: for many small parts that lie side by side. */
int sm_read_pages(void *pid, uint64_t address, void *into, size_t bytes);
void sm_pages_forget(void);
int sm_is_of_our_user(int32_t pid);
int sm_is_python(int32_t pid);

#endif
