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
} ls_section;

/* `bytes` bytes from `at` on, NULL if they are not in the section. What cannot be read is zero. */
const uint8_t *ls_section_at(ls_section *section, size_t at, size_t bytes);

typedef struct {
    uint64_t offset, address, bytes; /* of the file */
    bool executable;
} ls_load;

typedef struct {
    uint64_t start, end;
} ls_range;

typedef struct {
    uint64_t start, end;
    uint32_t entry; /* of .eh_frame */
} ls_indexed;

struct ls_object {
    ls_object_facts facts;
    uint64_t first; /* of a process's memory: hash of its first page */
    int file;       /* -1: made of a process's memory, or no ELF file, or there were too many */
    ls_load *loads;
    uint32_t load_count;
    uint64_t entry; /* where the program starts, 0: nowhere */
    ls_section table, frames; /* .eh_frame_hdr, .eh_frame; size 0: there is none */
    uint32_t table_at, table_count;
    ls_indexed *index; /* instead of the table, sorted by start */
    uint32_t index_count;
    bool indexed;
    char *function; /* of ls_space_in_function, with its ranges */
    ls_range *ranges;
    uint32_t range_count;
};

/* Where the bytes of an object come from: a file, or the memory of a process that has it mapped at `base`. */
typedef struct {
    int file; /* -1: the process */
    pid_t pid;
    uint64_t base;
    bool leaves; /* all that is needed is read at once */
} ls_source;

/* A line of /proc/PID/maps. */
typedef struct {
    uint64_t start, end, offset, device, inode;
    uint64_t base; /* where offset 0 of the same file is mapped, 0: nowhere */
    const char *path;
    bool executable;
} ls_maps_line;

/* The object of this line, known already or new; NULL: it is no ELF file. */
ls_object *ls_object_mapped(pid_t pid, const ls_maps_line *line);
ls_object *ls_object_numbered(uint32_t number);
/* The ELF virtual address of a byte of the file in an executable segment; false if there is no such segment. */
bool ls_object_address(const ls_object *object, uint64_t offset, uint64_t *address);
bool ls_object_offset(const ls_object *object, uint64_t address, uint64_t *offset);
/* Reads program headers, unwind information and build id. */
void ls_object_read(ls_object *object, ls_source source);
int ls_read_process(pid_t pid, uint64_t address, void *into, size_t bytes);
int ls_read_file(int file, uint64_t offset, void *into, size_t bytes);
/* Whether `address` lies in a function of that name or in a piece of it. */
bool ls_object_in_function(ls_object *object, uint64_t address, const char *name);

typedef struct {
    uint64_t start, end, offset, device, inode;
    ls_object *object; /* NULL: code of no file */
    uint64_t bias;     /* address in the process less the one in the object */
} ls_mapping;

const ls_mapping *ls_space_mapping(const ls_space *space, uint64_t address);
/* Where executable mappings begin and end. */
ls_range ls_space_code(const ls_space *space);

/* Code as the file has it, or the process. */
bool ls_space_read_code(const ls_space *space, uint64_t address, uint8_t *into, size_t bytes);
/* Where the first frames of threads end, as far as frames without repair have shown. */
void ls_space_learn_root(ls_space *space, uint64_t cfa);
bool ls_space_is_root(const ls_space *space, uint64_t cfa);
enum { LS_NO_CALL = 0, LS_CALL_DIRECT = 1, LS_CALL_INDIRECT = 2 };
/* Whether a CALL ends just before `address`; `*target` is where a direct one leads. */
int ls_space_call_before(const ls_space *space, uint64_t address, uint64_t *target);

/* --- cfi.c, expression.c --- */

enum { LS_SAME, LS_UNDEFINED, LS_AT_CFA, LS_CFA_PLUS, LS_REGISTER, LS_EXPRESSION, LS_VALUE_EXPRESSION };
typedef struct {
    uint8_t of, kind;
    uint16_t bytes; /* of an expression */
    int32_t value;  /* offset to the CFA, register, or where in .eh_frame the expression lies */
} ls_rule;

/* How to get from a frame to its caller at one address. */
typedef struct {
    uint64_t start, end; /* of the function */
    ls_rule cfa; /* LS_REGISTER: `of` plus `value`; or LS_EXPRESSION */
    bool signal; /* a signal came here: what it interrupted was no call */
    uint8_t count;
    ls_rule rules[LS_REGISTERS]; /* of registers that do not keep their value */
} ls_row;

/* The row at an address of the object, NULL if there is none. It stays until the next call. */
const ls_row *ls_row_at(ls_object *object, uint64_t address);

typedef struct {
    const uint64_t *registers;
    uint32_t known;
    bool (*read)(void *of, uint64_t address, uint64_t *word);
    void *of;
} ls_machine;

/* Computes a DWARF expression, beginning with `*value` on the stack if `given`. */
bool ls_expression(const ls_machine *machine, const uint8_t *code, size_t bytes, bool given, uint64_t *value);

/* --- unwind.c, repair.c --- */

typedef struct {
    uint64_t registers[LS_REGISTERS];
    uint32_t known; /* a bit for each register */
    bool exact;     /* it runs at RIP, or was interrupted there; else RIP is a return address */
} ls_state;

/* What one stack may cost, whatever lies in it: frames and words of it that are looked at, attempts included. */
#define LS_STEPS_MOST 4096
#define LS_WORDS_MOST 16384

typedef struct {
    ls_space *space;
    const ls_stack_copy *stack;
    ls_native_frame *into;
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
} ls_walk;

/* How a walk ended, the better the greater. */
enum { LS_LOST, LS_BEYOND, LS_FULL, LS_ROOT };
typedef struct {
    int outcome, count; /* count: of all frames */
    uint64_t reached;   /* the last CFA */
} ls_walked;

bool ls_walk_read(ls_walk *walk, uint64_t address, uint64_t *word);
/* Goes on from `state`, which it changes, with frame number `at`. */
ls_walked ls_walk_on(ls_walk *walk, ls_state *state, int at);
enum { LS_STEP_LOST, LS_STEP_ROOT, LS_STEP_DONE };
/* From a frame that ends at `cfa` to its caller. */
int ls_walk_step(ls_walk *walk, ls_state *state, ls_object *object, const ls_row *row, uint64_t cfa);
/* From a frame without unwind information to its caller by rbp; false: not for certain. */
bool ls_walk_framed(ls_walk *walk, ls_state *state, uint64_t *cfa);
/* Looks on the stack for the caller of frame number `at` - 1. `row` tells, if it is not NULL, where that frame keeps
 * registers, but not where it ends. */
ls_walked ls_repair(ls_walk *walk, const ls_state *state, const ls_row *row, int at);

/* Whether a CALL of `target` can lead to the function that begins at `function`: itself, or by a jump. */
bool ls_leads_to(const ls_walk *walk, uint64_t target, uint64_t function);
/* Where oneDNN's code at `pc`, whose stack pointer is `sp`, has its return address, by the end of its function: 0 if it
 * does not look like that. */
uint64_t ls_made_code_slot(ls_space *space, uint64_t pc, uint64_t sp);

/* --- pieces of DWARF --- */

typedef struct {
    const uint8_t *at, *end;
    bool bad; /* something was not there */
} ls_cursor;

uint64_t ls_take(ls_cursor *cursor, unsigned bytes);
uint64_t ls_take_uleb(ls_cursor *cursor);
int64_t ls_take_sleb(ls_cursor *cursor);
/* A pointer as `encoding` (DW_EH_PE_*) says; `here` is the address of the cursor's place, `data` that of the table. */
uint64_t ls_take_pointer(ls_cursor *cursor, uint8_t encoding, uint64_t here, uint64_t data);

#endif
