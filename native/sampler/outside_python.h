/* Which Python a process has that has not told us. */
#ifndef LAYERSCOPE_SAMPLER_OUTSIDE_PYTHON_H
#define LAYERSCOPE_SAMPLER_OUTSIDE_PYTHON_H

#include "threads.h"

/* Sets `python`, `python_eval` and `python_runtime` of a process without an area, by the files that it has mapped. Asked
 * again, less and less often, while it has none. */
void sm_python_find(sm_process *process);

#endif
