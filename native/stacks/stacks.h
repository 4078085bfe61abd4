/* Stacks of a process as seen from outside: its address space, the unwinder, and the frames of Python. Compiled into the
 * sampler; python_frames.c into the agent too, where it runs in a signal handler: it calls nothing but `read`. */
#ifndef LAYERSCOPE_STACKS_H
#define LAYERSCOPE_STACKS_H

#include "../samples.h"

#include <stddef.h>
#include <sys/types.h>

/* Reads `bytes` at `address` of the process; 0, or -1 if not all of it is there. Must not fault whatever `address` is. */
typedef int (*lu_read)(void *of, uint64_t address, void *into, size_t bytes);

/* --- python_frames.c: CPython 3.11 to 3.13 by static offsets --- */

typedef struct {
    uint64_t code, name, lines; /* addresses of the code object, its qualified name, its co_linetable: what it is known by */
    int32_t first_line;
    uint32_t place; /* as ls_sample_frame has it */
} lu_python_frame;

/* The frames of the thread with this PyThreadState, the innermost first; how many, -1 if nothing could be read.
 * `*cut` is set if there are more than `most`. */
int lu_python_frames(uint32_t python, uint64_t thread_state, lu_read read, void *of, lu_python_frame *into, int most,
                     int *cut);
/* The same in two steps, for a reader that reads many places at once: the frames with `code` and `place` alone, and what
 * their code objects are known by, of the first LU_PYTHON_CODE_BYTES bytes of each. `stack_pointer`: of a thread that
 * may have been stopped anywhere; 0: it waits. */
int lu_python_walk(uint32_t python, uint64_t thread_state, uint64_t stack_pointer, lu_read read, void *of,
                   lu_python_frame *into, int most, int *cut);
#define LU_PYTHON_CODE_BYTES 144u
void lu_python_known_by(uint32_t python, const uint8_t *code, lu_python_frame *into);
/* Where the instructions of a code object lie, of which `bytes` has the first LU_PYTHON_CODE_BYTES bytes; how many bytes. */
uint64_t lu_python_instructions(uint32_t python, uint64_t code, const uint8_t *bytes, uint64_t *first);
/* The PyThreadState of the thread `tid` of any interpreter, by `_PyRuntime`; 0: none. */
uint64_t lu_python_thread(uint32_t python, uint64_t runtime, int32_t tid, lu_read read, void *of);
/* A str object as UTF-8; its length, cut at `most`, or -1. */
int lu_python_text(uint32_t python, uint64_t object, lu_read read, void *of, char *into, size_t most);
/* A bytes object; its length, -1 if it cannot be read or is longer than `most`. */
int lu_python_bytes(uint32_t python, uint64_t object, lu_read read, void *of, uint8_t *into, size_t most);
/* What a code object is called: addresses of its file name and qualified name, for the two above. -1: it is none. */
int lu_python_code(uint32_t python, uint64_t code, lu_read read, void *of, uint64_t *file, uint64_t *name,
                   uint64_t *lines, int32_t *first_line);

/* --- space.c, elf.c: what is mapped where --- */

typedef struct lu_space lu_space;
typedef struct lu_object lu_object; /* an ELF file, mapped by us read-only and shared by all processes that have it */

/* Made of /proc/PID/maps. `refresh` reads it anew (after mmap, dlopen, dlclose, exec); NULL, -1: the process is gone. */
lu_space *lu_space_of(pid_t pid);
int lu_space_refresh(lu_space *space);
void lu_space_free(lu_space *space);

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
 * the file exports nothing by .gnu.hash; the parts are found by .symtab. */
int lu_space_in_function(const lu_space *space, uint64_t address, const char *name);

/* --- unwind.c --- */

/* The copy of a stack: `bytes` bytes of it lie at `copy`, from the address `base` on. What is not in it is read by
 * `read`, if that is not NULL. */
typedef struct {
    uint64_t base;
    const uint8_t *copy;
    size_t bytes;
    lu_read read;
    void *of;
} lu_stack_copy;

typedef struct {
    uint64_t address;  /* of the leaf where it ran, of others the return address less one */
    uint64_t frame;    /* its CFA: where the frame ends */
} lu_native_frame;

enum { LU_UNWOUND_ROOT = 1, /* it came to the first function of the thread */
       LU_UNWOUND_JIT = 2,  /* the leaf is in no file */
       LU_UNWOUND_REPAIRED = 4, /* frames without unwind information were passed by a scan of the stack */
       LU_UNWOUND_CUT = 8,      /* there are more frames than there was room for, or than the copy has */
       LU_UNWOUND_STALE = 16 }; /* an address was in no mapping: refresh the space and try again */

/* The frames of a thread with these registers, the leaf first; how many. Only `known` registers are (bit 1 << LS_RSP
 * and so on): of a blocked thread RSP and RIP. `*how` gets LU_UNWOUND_ bits. */
int lu_unwind(lu_space *space, const uint64_t registers[LS_REGISTERS], uint32_t known, const lu_stack_copy *stack,
              lu_native_frame *into, int most, uint32_t *how);

#endif
