/* Functions and data of an object by name. */
#ifndef LAYERSCOPE_STACKS_FUNCTIONS_H
#define LAYERSCOPE_STACKS_FUNCTIONS_H

#include "elf.h"

/* Whether `address` lies in a function of that name or in a piece of it: as lu_space_in_function. */
int lu_object_in_function(lu_object *object, uint64_t address, const char *name);
/* The ELF virtual address of what it exports by that name; 0: nothing. */
uint64_t lu_object_symbol(const lu_object *object, const char *name);

#endif
