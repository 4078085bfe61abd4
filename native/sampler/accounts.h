/* What the system counts for each thread. */
#ifndef LAYERSCOPE_SAMPLER_ACCOUNTS_H
#define LAYERSCOPE_SAMPLER_ACCOUNTS_H

#include "threads.h"

void sm_account_base(sm_thread *thread);
void sm_account(sm_thread *thread, int is_last);
/* Once a second: what the system says; and, when switches until then are known, what both make together. */
void sm_accounts_read(void);
void sm_accounts_settle(void);

#endif
