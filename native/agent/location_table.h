/* Lines of Python, by the table of them that a code object has. */
#ifndef LAYERSCOPE_LOCATION_TABLE_H
#define LAYERSCOPE_LOCATION_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* The line of the instruction `place` bytes behind the first one of a code object that begins in `first_line`; 0: it
 * has none. `table`: the bytes of its co_linetable (InternalDocs/code_objects.md of CPython, the same since 3.11). */
int ls_line_of_place(const uint8_t *table, size_t bytes, int first_line, uint32_t place);

#endif
