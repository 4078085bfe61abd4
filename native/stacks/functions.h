/* Functions of an object by name. */
#ifndef LAYERSCOPE_STACKS_FUNCTIONS_H
#define LAYERSCOPE_STACKS_FUNCTIONS_H

#include "elf.h"

/* Whether `address` lies in a function of that name or in a piece of it. */
bool lu_object_in_function(lu_object *object, uint64_t address, const char *name);

#endif
