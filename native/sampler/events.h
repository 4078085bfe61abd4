/* The events that make samples. */
#ifndef LAYERSCOPE_SAMPLER_EVENTS_H
#define LAYERSCOPE_SAMPLER_EVENTS_H

#include "threads.h"

void sm_events_open(sm_thread *thread);
void sm_events_close(sm_thread *thread);
void sm_events_set_period(sm_thread *thread, uint64_t period_ns);
uint64_t sm_events_config(int event);
uint64_t sm_events_copies_period(void);
uint64_t sm_events_period(int event);
uint64_t sm_events_first_period(void);
/* Whether a clock can be had here: a descriptor, or minus an errno. */
int sm_events_check(void);

#endif
