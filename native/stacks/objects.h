/* All objects that any process has mapped. */
#ifndef LAYERSCOPE_STACKS_OBJECTS_H
#define LAYERSCOPE_STACKS_OBJECTS_H

#include "elf.h"

/* A line of /proc/PID/maps. */
typedef struct {
    uint64_t start, end, offset, device, inode;
    uint64_t base; /* where offset 0 of the same file is mapped, 0: nowhere */
    const char *path;
    bool executable;
} lu_maps_line;

/* The object of this line, known already or new; NULL: it is no ELF file. */
lu_object *lu_object_mapped(pid_t pid, const lu_maps_line *line);

#endif
