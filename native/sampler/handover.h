/* Processes that hand their areas over. */
#ifndef LAYERSCOPE_SAMPLER_HANDOVER_H
#define LAYERSCOPE_SAMPLER_HANDOVER_H

#include "threads.h"
#include "../layout.h"

/* Takes the descriptor that came with the message. */
void sm_hand_over(const lf_message *message, int fd);
/* A forked child is its parent once more. */
void sm_inherit(sm_process *child, const sm_process *parent);

#endif
