/* Areas of samples, which processes hand over. */
#ifndef LAYERSCOPE_SAMPLER_AREAS_H
#define LAYERSCOPE_SAMPLER_AREAS_H

#include "threads.h"
#include "../layout.h"

/* A record of an area that is not published for so long never will be: its thread is gone. */
#define SM_STUCK_NS 1000000000ull

typedef struct sm_area sm_area;

/* What a process says of itself in its area. */
typedef struct {
    int32_t pid;
    uint32_t python;
    uint64_t python_eval, python_runtime;
    int uses_timers, has_handler, is_signalled;
} sm_area_facts;

/* Takes the descriptor that came with the message. NULL: it is no area; the message is given back then. */
sm_area *sm_area_open(const lf_message *message, int fd, sm_area_facts *facts);
void sm_area_belongs_to(sm_area *area, sm_process *process);
/* Calls `take` with each record that is published. */
typedef void sm_take(sm_process *process, const lf_sample_head *head, size_t bytes);
void sm_area_take(sm_area *area, sm_take *take);
void sm_area_free(sm_area *area);
void sm_area_count(const sm_area *area, lt_quality *sum);
int sm_area_has_handler(const sm_area *area);
uint32_t sm_area_puts(const sm_area *area);
uint64_t sm_area_signalled(const sm_area *area, int32_t tid);
void sm_area_forget(const sm_area *area, int32_t tid);
int sm_area_is_behind(const sm_area *area);
uint64_t sm_area_lost(const sm_area *area); /* within sm_area_take */

#endif
