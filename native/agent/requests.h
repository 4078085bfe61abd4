/* Requests that a program answers: each on a track of its own. */
#ifndef LAYERSCOPE_REQUESTS_H
#define LAYERSCOPE_REQUESTS_H

#include "stack.h"

LS_EXPORT uint64_t ls_request_begin(uint64_t handle[2]);
uint64_t ls_request_take(uint64_t handle[2]);
uint32_t ls_request_give_back(uint64_t mark);
void ls_request_write(ls_thread *t, lf_record span, uint32_t track, uint32_t of_request, uint32_t args);
uint32_t ls_request_here(void);

#endif
