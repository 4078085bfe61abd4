/* Stacks of a process as seen from outside: its address space and the unwinder. What the sampler uses of the files in
 * this folder; each of them has a header of its own for the others. All of it belongs to one thread. Everything that was
 * read from a file or from another process is checked before it is believed. */
#ifndef LAYERSCOPE_STACKS_H
#define LAYERSCOPE_STACKS_H

#include "python_frames.h"

#include <sys/types.h>

/* --- What is mapped where --- */

typedef struct lu_space lu_space;
typedef struct lu_object lu_object; /* an ELF file, mapped by us read-only and shared by all processes that have it */

/* Made of /proc/PID/maps. `refresh` reads it anew (after mmap, dlopen, dlclose, exec); NULL, -1: the process is gone. */
lu_space *lu_space_of(pid_t pid);
int lu_space_refresh(lu_space *space);
void lu_space_free(lu_space *space);
/* The space of a process that is gone: `maps` says what it had mapped, as /proc/PID/maps would, with device and inode of
 * files as they are here. NULL: no memory. */
lu_space *lu_space_told(const char *maps);

typedef struct {
    uint32_t number; /* from 0 on, for all processes; the same file has one number */
    const char *path;
    uint64_t device, inode, mtime_ns;
    uint8_t build_id[20];
    uint32_t build_id_bytes;
} lu_object_facts;
const lu_object_facts *lu_object_of(uint32_t number);
uint32_t lu_objects(void); /* how many are known */

enum { LU_PLACE_NOWHERE = 0, LU_PLACE_FILE = 1, LU_PLACE_JIT = 2 /* executable, of no file */ };
typedef struct {
    int kind;
    uint32_t object;
    uint64_t address; /* in the file, as its symbols count; of JIT where it is */
} lu_place;
lu_place lu_space_find(const lu_space *space, uint64_t address);
/* Whether `address` lies in the function `name` or a part of it (`name`.cold and so on). It has to be exported, unless
 * the file exports nothing by .gnu.hash; the parts are found by .symtab, or by where it jumps to. 0: it does not. Parts
 * that are LU_JUMPED_TO have frames of their own, inside of the function's. */
enum { LU_IN_FUNCTION = 1, LU_JUMPED_TO = 2 };
int lu_space_in_function(const lu_space *space, uint64_t address, const char *name);
/* Where in the process lies what the first file that exports `name` has by that name; 0: none does. */
uint64_t lu_space_symbol(const lu_space *space, const char *name);

/* --- From registers to frames --- */

/* The copy of a stack: `bytes` bytes of it lie at `copy`, from the address `base` on. What is not in it is read by
 * `read`, if that is not NULL. Where code had pointed rsp away from its stack the copy has other memory: then the stack
 * is read by `read_later`, if that is not NULL, as it is by now. */
typedef struct {
    uint64_t base;
    const uint8_t *copy;
    size_t bytes;
    lu_read read;
    void *of;
    lu_read read_later;
} lu_stack_copy;

typedef struct {
    uint64_t address;  /* of the leaf where it ran, of others the return address less one */
    uint64_t frame;    /* its CFA: where the frame ends */
} lu_native_frame;

enum { LU_UNWOUND_ROOT = 1, /* it came to the first function of the thread */
       LU_UNWOUND_JIT = 2,  /* the leaf is in no file */
       LU_UNWOUND_REPAIRED = 4, /* frames without unwind information were passed by a scan of the stack */
       LU_UNWOUND_CUT = 8,      /* there are more frames than there was room for, or than the copy has */
       LU_UNWOUND_STALE = 16,   /* an address was in no mapping: refresh the space and try again */
       LU_UNWOUND_LATER = 32 }; /* code had pointed rsp away from the stack, which is as it was read later */

/* The frames of a thread with these registers, the leaf first; how many. Only `known` registers are (bit 1 << LF_RSP
 * and so on): of a blocked thread RSP and RIP. `*how` gets LU_UNWOUND_ bits. */
int lu_unwind(lu_space *space, const uint64_t registers[LF_REGISTERS], uint32_t known, const lu_stack_copy *stack,
              lu_native_frame *into, int most, uint32_t *how);

/* What a frame had in its registers, those of `known` alone. */
typedef struct {
    uint64_t registers[LF_REGISTERS];
    uint32_t known;
} lu_frame_registers;
/* The same, with the registers of each frame. */
int lu_unwind_registers(lu_space *space, const uint64_t registers[LF_REGISTERS], uint32_t known,
                        const lu_stack_copy *stack, lu_native_frame *into, lu_frame_registers *had, int most,
                        uint32_t *how);

#endif
