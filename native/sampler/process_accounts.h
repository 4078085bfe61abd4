/* What the system says of processes as a whole. */
#ifndef LAYERSCOPE_SAMPLER_PROCESS_ACCOUNTS_H
#define LAYERSCOPE_SAMPLER_PROCESS_ACCOUNTS_H

#include "threads.h"

void sm_process_account_begin(sm_process *process);
void sm_process_account_found(sm_process *process); /* it had begun before we looked */
void sm_process_account_end(sm_process *process); /* its last thread has just ended */
void sm_process_account_finish(sm_process *process, int is_followed_by_exec);
void sm_process_accounts_tick(void);
int sm_is_fork(const sm_process *process); /* and still the program of its parent */

#endif
