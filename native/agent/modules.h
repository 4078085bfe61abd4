/* What is called as a module is. */
#ifndef LAYERSCOPE_MODULES_H
#define LAYERSCOPE_MODULES_H

#include <stdint.h>

uint32_t ls_module_name(const void *module);

#endif
