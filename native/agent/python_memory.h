/* Memory that Python has for its objects. */
#ifndef LAYERSCOPE_AGENT_PYTHON_MEMORY_H
#define LAYERSCOPE_AGENT_PYTHON_MEMORY_H

#include <stdint.h>

int64_t ls_python_memory_bytes(void); /* -1: not known */

#endif
