/* An address space, for the files of the unwinder. */
#ifndef LAYERSCOPE_STACKS_SPACE_H
#define LAYERSCOPE_STACKS_SPACE_H

#include "elf.h"

typedef struct {
    uint64_t start, end, offset, device, inode;
    lu_object *object; /* NULL: code of no file */
    uint64_t bias;     /* address in the process less the one in the object */
} lu_mapping;

const lu_mapping *lu_space_mapping(const lu_space *space, uint64_t address);
/* Where executable mappings begin and end. */
lu_range lu_space_code(const lu_space *space);

/* Code as the file has it, or the process. */
bool lu_space_read_code(const lu_space *space, uint64_t address, uint8_t *into, size_t bytes);
/* Where the first frames of threads end, as far as frames without repair have shown. */
void lu_space_learn_root(lu_space *space, uint64_t cfa);
bool lu_space_is_root(const lu_space *space, uint64_t cfa);
/* Where the caller of code was found last of which nobody tells how it ends (repair.c). */
typedef struct {
    uint64_t address; /* of that code, 0: none */
    uint32_t above;   /* the return address lies so far above rsp */
    int choice;
} lu_caller;
void lu_space_learn_caller(lu_space *space, lu_caller caller);
const lu_caller *lu_space_known_caller(const lu_space *space, uint64_t address); /* NULL: none yet */
enum { LU_NO_CALL = 0, LU_CALL_DIRECT = 1, LU_CALL_INDIRECT = 2 };
/* Whether a CALL ends just before `address`; `*target` is where a direct one leads. */
int lu_space_call_before(const lu_space *space, uint64_t address, uint64_t *target);

#endif
