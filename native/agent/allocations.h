/* Memory that an allocator of a framework hands out and takes back, as records of the thread that asks for it. */
#ifndef LAYERSCOPE_ALLOCATIONS_H
#define LAYERSCOPE_ALLOCATIONS_H

#include "redirection.h"

#include <stddef.h>

/* Called after the allocator has answered: another thread may have had the address until then. `by`: LF_BY_NUMPY, or 0
 * for the framework. */
void ls_allocation(const void *address, size_t bytes, unsigned by);
/* Called before the allocator gets it back, for the same reason. */
void ls_release(const void *address);

/* Record what a library allocates by these imports of the file that has the address `inside`. Code in Python files below
 * `folder` is the library's. 0: from now on `imports->is_on`; -1: why not, and what that is about, are in `why`. */
int ls_allocator_start(ls_redirections *imports, const void *inside, const char *folder, const char *why[2]);
void ls_allocator_stop(ls_redirections *imports);

#endif
