/* What the kernel tells of threads. */
#ifndef LAYERSCOPE_SAMPLER_KERNEL_RECORDS_H
#define LAYERSCOPE_SAMPLER_KERNEL_RECORDS_H

/* Takes all that it has told until now. */
void sm_records_take(void);

#endif
