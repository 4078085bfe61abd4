/* ELF files as processes have them mapped: bytes, segments, where unwind information lies. */
#ifndef LAYERSCOPE_STACKS_ELF_H
#define LAYERSCOPE_STACKS_ELF_H

#include "stacks.h"

#include <stdbool.h>

/* Bytes of an object, read block by block when they are first needed. Never a mapping of the file: a file that becomes
 * shorter would end us by SIGBUS, and of 21 MB in a large library a run needs a few hundred KB. */
typedef struct {
    uint64_t address; /* ELF virtual address of its first byte */
    uint64_t offset;  /* in the file */
    uint8_t *bytes;
    size_t size;
    uint64_t *loaded; /* a bit for each block; NULL: all is there */
    int file;
} lu_section;

/* `bytes` bytes from `at` on, NULL if they are not in the section. What cannot be read is zero. */
const uint8_t *lu_section_at(lu_section *section, size_t at, size_t bytes);

typedef struct {
    uint64_t offset, address, bytes; /* of the file */
    bool executable;
} lu_load;

typedef struct {
    uint64_t start, end;
} lu_range;

typedef struct {
    uint64_t start, end;
    bool is_jumped_to; /* from another piece of the function, which has called the first of these */
} lu_piece;

struct lu_object {
    lu_object_facts facts;
    uint64_t first; /* of a process's memory: hash of its first page */
    int file;       /* -1: made of a process's memory, or no ELF file, or there were too many */
    lu_load *loads;
    uint32_t load_count;
    uint64_t entry; /* where the program starts, 0: nowhere */
    lu_section table, frames; /* .eh_frame_hdr, .eh_frame; size 0: there is none */
    uint32_t table_at, table_count;
    struct lu_indexed *index; /* cfi.c: instead of the table, sorted by start */
    uint32_t index_count;
    bool indexed;
    char *function; /* functions.c: the one that was asked for, with its ranges */
    lu_piece *ranges;
    uint32_t range_count;
};

/* Where the bytes of an object come from: a file, or the memory of a process that has it mapped at `base`. */
typedef struct {
    int file; /* -1: the process */
    pid_t pid;
    uint64_t base;
    bool leaves; /* all that is needed is read at once */
} lu_source;

/* The ELF virtual address of a byte of the file in an executable segment; false if there is no such segment. */
bool lu_object_address(const lu_object *object, uint64_t offset, uint64_t *address);
bool lu_object_offset(const lu_object *object, uint64_t address, uint64_t *offset);
/* Reads program headers, unwind information and build id. */
void lu_object_read(lu_object *object, lu_source source);
int lu_read_process(pid_t pid, uint64_t address, void *into, size_t bytes);
int lu_read_file(int file, uint64_t offset, void *into, size_t bytes);

#endif
