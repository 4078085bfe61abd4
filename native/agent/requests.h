/* Requests that a program answers. */
#ifndef LAYERSCOPE_REQUESTS_H
#define LAYERSCOPE_REQUESTS_H

#include <stdint.h>

uint32_t ls_request_here(void);
uint32_t ls_module_name(const void *module);

#endif
