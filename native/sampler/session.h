/* The socket to the session. */
#ifndef LAYERSCOPE_SAMPLER_SESSION_H
#define LAYERSCOPE_SAMPLER_SESSION_H

#include "../layout.h"

void sm_session_open(int socket_fd);
enum { SM_RECEIVED, SM_OTHER, SM_NOTHING, SM_CLOSED };
/* Takes one message: SM_RECEIVED, and `*fd` is its descriptor, -1: it has none, or several. SM_OTHER: it is none of
 * ours; SM_NOTHING: there is none now; SM_CLOSED: none will come. */
int sm_session_receive(lf_message *message, int *fd);
/* Sends a message back: its memory is not needed any more. */
void sm_session_give_back(const lf_message *message);
void sm_session_tell_used(uint64_t program_ns, uint64_t handler_ns);

#endif
