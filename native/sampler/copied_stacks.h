/* Samples that the kernel copies. */
#ifndef LAYERSCOPE_SAMPLER_COPIED_STACKS_H
#define LAYERSCOPE_SAMPLER_COPIED_STACKS_H

#include "threads.h"

int sm_copies_tick(void); /* whether some of them wake us from now on: the rings are to be polled */
void sm_copies_poll(int epoll_fd);
uint64_t sm_copies_look(void);
void sm_copies_take(uint64_t until_ns);
void sm_copies_new_rate(void);
void sm_copies_pause(int is_on);
void sm_copies_stop(sm_process *process);
void sm_copies_end(sm_thread *thread);

#endif
