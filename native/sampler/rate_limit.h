/* Events that may come too often. */
#ifndef LAYERSCOPE_SAMPLER_RATE_LIMIT_H
#define LAYERSCOPE_SAMPLER_RATE_LIMIT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t most, in_second; /* in a second, in this one so far */
    uint64_t second_ns;
    int is_paused;
    int *fds;
    size_t used, room;
} sm_rate_limit;
int sm_rate_limit_keep(sm_rate_limit *limit, int fd);
void sm_rate_limit_new_period(const sm_rate_limit *limit, uint64_t period_ns);
void sm_rate_limit_pause(sm_rate_limit *limit, int is_paused);
void sm_rate_limit_count(sm_rate_limit *limit);
void sm_rate_limit_tick(sm_rate_limit *limit);

#endif
