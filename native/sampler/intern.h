/* Numbers for frames, stacks and codes; LT_NONE: there is no room for more. */
#ifndef LAYERSCOPE_SAMPLER_INTERN_H
#define LAYERSCOPE_SAMPLER_INTERN_H

#include "format.h"

/* A frame of Python that a sample or a look has. */
typedef struct {
    uint32_t code; /* number in the file, LT_NONE: not known */
    uint32_t place;
} sm_python_frame;

uint32_t sm_frame(uint32_t kind, uint32_t of, uint64_t address, uint32_t flags);
uint32_t sm_stack(uint32_t parent, uint32_t frame); /* `parent` LT_NONE: the outermost */
typedef struct {
    uint32_t process, python; /* as lt_code has them */
    const char *name, *file;
    const uint8_t *lines;
    uint32_t name_bytes, file_bytes, lines_bytes;
    int32_t first_line;
    uint32_t known_as; /* as lt_code has it */
} sm_code_text;
uint32_t sm_code(const sm_code_text *text);
/* A table from two numbers to one, for what is known by addresses. */
uint32_t *sm_known(uint64_t a, uint64_t b);

#endif
