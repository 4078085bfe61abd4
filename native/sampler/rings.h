/* The rings that all threads share. */
#ifndef LAYERSCOPE_SAMPLER_RINGS_H
#define LAYERSCOPE_SAMPLER_RINGS_H

#include <stdint.h>

int sm_rings_open(void);
/* From now on the kernel tells of this thread and of all that it begins. 0, or minus an errno. */
int sm_rings_add(int32_t tid);
/* A clock of this thread alone, in the kernel and on one CPU, that is to be closed: a descriptor, or minus an errno. */
int sm_rings_add_clock(int32_t tid, uint32_t place, uint64_t period_ns);
uint32_t sm_rings_full(void);
void sm_rings_take(void (*apply)(const void *record), uint64_t until_ns);
void sm_rings_poll(int epoll_fd);
int sm_rings_wait(int epoll_fd, int timeout_ms, int socket_fd); /* whether the socket has something */

#endif
