/* Memory that an allocator of a framework hands out and takes back, as records of the thread that asks for it. */
#ifndef LAYERSCOPE_ALLOCATIONS_H
#define LAYERSCOPE_ALLOCATIONS_H

#include <stddef.h>

/* Called after the allocator has answered: another thread may have had the address until then. `by`: LF_BY_NUMPY, or 0
 * for the framework. */
void ls_allocation(const void *address, size_t bytes, unsigned by);
/* Called before the allocator gets it back, for the same reason. */
void ls_release(const void *address);

#endif
