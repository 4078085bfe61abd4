/* What the files of the unwinder share: ELF files, what is mapped where, rows of unwind information. All of it belongs
 * to one thread. Everything that was read from a file or from another process is checked before it is believed. */
#ifndef LAYERSCOPE_UNWINDING_H
#define LAYERSCOPE_UNWINDING_H

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
    uint32_t entry; /* of .eh_frame */
} lu_indexed;

struct lu_object {
    lu_object_facts facts;
    uint64_t first; /* of a process's memory: hash of its first page */
    int file;       /* -1: made of a process's memory, or no ELF file, or there were too many */
    lu_load *loads;
    uint32_t load_count;
    uint64_t entry; /* where the program starts, 0: nowhere */
    lu_section table, frames; /* .eh_frame_hdr, .eh_frame; size 0: there is none */
    uint32_t table_at, table_count;
    lu_indexed *index; /* instead of the table, sorted by start */
    uint32_t index_count;
    bool indexed;
    char *function; /* of lu_space_in_function, with its ranges */
    lu_range *ranges;
    uint32_t range_count;
};

/* Where the bytes of an object come from: a file, or the memory of a process that has it mapped at `base`. */
typedef struct {
    int file; /* -1: the process */
    pid_t pid;
    uint64_t base;
    bool leaves; /* all that is needed is read at once */
} lu_source;

/* A line of /proc/PID/maps. */
typedef struct {
    uint64_t start, end, offset, device, inode;
    uint64_t base; /* where offset 0 of the same file is mapped, 0: nowhere */
    const char *path;
    bool executable;
} lu_maps_line;

/* The object of this line, known already or new; NULL: it is no ELF file. */
lu_object *lu_object_mapped(pid_t pid, const lu_maps_line *line);
lu_object *lu_object_numbered(uint32_t number);
/* The ELF virtual address of a byte of the file in an executable segment; false if there is no such segment. */
bool lu_object_address(const lu_object *object, uint64_t offset, uint64_t *address);
bool lu_object_offset(const lu_object *object, uint64_t address, uint64_t *offset);
/* Reads program headers, unwind information and build id. */
void lu_object_read(lu_object *object, lu_source source);
int lu_read_process(pid_t pid, uint64_t address, void *into, size_t bytes);
int lu_read_file(int file, uint64_t offset, void *into, size_t bytes);
/* Whether `address` lies in a function of that name or in a piece of it. */
bool lu_object_in_function(lu_object *object, uint64_t address, const char *name);

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
enum { LU_NO_CALL = 0, LU_CALL_DIRECT = 1, LU_CALL_INDIRECT = 2 };
/* Whether a CALL ends just before `address`; `*target` is where a direct one leads. */
int lu_space_call_before(const lu_space *space, uint64_t address, uint64_t *target);

/* --- cfi.c, expression.c --- */

enum { LU_SAME, LU_UNDEFINED, LU_AT_CFA, LU_CFA_PLUS, LU_REGISTER, LU_EXPRESSION, LU_VALUE_EXPRESSION };
typedef struct {
    uint8_t of, kind;
    uint16_t bytes; /* of an expression */
    int32_t value;  /* offset to the CFA, register, or where in .eh_frame the expression lies */
} lu_rule;

/* How to get from a frame to its caller at one address. */
typedef struct {
    uint64_t start, end; /* of the function */
    lu_rule cfa; /* LU_REGISTER: `of` plus `value`; or LU_EXPRESSION */
    bool signal; /* a signal came here: what it interrupted was no call */
    uint8_t count;
    lu_rule rules[LS_REGISTERS]; /* of registers that do not keep their value */
} lu_row;

/* The row at an address of the object, NULL if there is none. It stays until the next call. */
const lu_row *lu_row_at(lu_object *object, uint64_t address);

typedef struct {
    const uint64_t *registers;
    uint32_t known;
    bool (*read)(void *of, uint64_t address, uint64_t *word);
    void *of;
} lu_machine;

/* Computes a DWARF expression, beginning with `*value` on the stack if `given`. */
bool lu_expression(const lu_machine *machine, const uint8_t *code, size_t bytes, bool given, uint64_t *value);

/* --- unwind.c, repair.c --- */

typedef struct {
    uint64_t registers[LS_REGISTERS];
    uint32_t known; /* a bit for each register */
    bool exact;     /* it runs at RIP, or was interrupted there; else RIP is a return address */
} lu_state;

/* What one stack may cost, whatever lies in it: frames and words of it that are looked at, attempts included. */
#define LU_STEPS_MOST 4096
#define LU_WORDS_MOST 16384

typedef struct {
    lu_space *space;
    const lu_stack_copy *stack;
    lu_native_frame *into;
    int most;
    int steps;   /* frames that may still be looked at, attempts included */
    int again;   /* frames of attempts that may still be walked a second time */
    int words;   /* of the stack that repairs may still look at */
    int repairs; /* that this is inside of */
    bool beyond; /* the copy ended */
    bool signal; /* a signal was passed: what it interrupted may have another stack */
    bool nowhere; /* an address was in no mapping */
    bool repaired;
    bool lenient; /* in a repair: a CALL is believed that leads elsewhere */
} lu_walk;

/* How a walk ended, the better the greater. */
enum { LS_LOST, LU_BEYOND, LU_FULL, LU_ROOT };
typedef struct {
    int outcome, count; /* count: of all frames */
    uint64_t reached;   /* the last CFA */
} lu_walked;

bool lu_walk_read(lu_walk *walk, uint64_t address, uint64_t *word);
/* Goes on from `state`, which it changes, with frame number `at`. */
lu_walked lu_walk_on(lu_walk *walk, lu_state *state, int at);
enum { LU_STEP_LOST, LU_STEP_ROOT, LU_STEP_DONE };
/* From a frame that ends at `cfa` to its caller. */
int lu_walk_step(lu_walk *walk, lu_state *state, lu_object *object, const lu_row *row, uint64_t cfa);
/* From a frame without unwind information to its caller by rbp; false: not for certain. */
bool lu_walk_framed(lu_walk *walk, lu_state *state, uint64_t *cfa);
/* Looks on the stack for the caller of frame number `at` - 1. `row` tells, if it is not NULL, where that frame keeps
 * registers, but not where it ends. */
lu_walked lu_repair(lu_walk *walk, const lu_state *state, const lu_row *row, int at);

/* Whether a CALL of `target` can lead to the function that begins at `function`: itself, or by a jump. */
bool lu_leads_to(const lu_walk *walk, uint64_t target, uint64_t function);
/* Where oneDNN's code at `pc`, whose stack pointer is `sp`, has its return address, by the end of its function: 0 if it
 * does not look like that. */
uint64_t lu_made_code_slot(lu_space *space, uint64_t pc, uint64_t sp);

/* --- pieces of DWARF --- */

typedef struct {
    const uint8_t *at, *end;
    bool bad; /* something was not there */
} lu_cursor;

uint64_t lu_take(lu_cursor *cursor, unsigned bytes);
uint64_t lu_take_uleb(lu_cursor *cursor);
int64_t lu_take_sleb(lu_cursor *cursor);
/* A pointer as `encoding` (DW_EH_PE_*) says; `here` is the address of the cursor's place, `data` that of the table. */
uint64_t lu_take_pointer(lu_cursor *cursor, uint8_t encoding, uint64_t here, uint64_t data);

#endif
