/* What the parts of sampling share: sampling.c is told by a signal to take a sample, signal_handler.c says whose signal it
 * is, imports.c leads Python there, memory_reads.c reads the program's memory, interpreter.c knows its Python, samples.c
 * writes into the shared area. All that a handler may need is mapped before; it allocates nothing and waits for
 * nobody. */
#ifndef LAYERSCOPE_SAMPLING_H
#define LAYERSCOPE_SAMPLING_H

#include "agent.h"
#include "../samples.h"
#include "../stacks/python_frames.h"

#include <signal.h>
#include <sys/uio.h>

#define LS_CODES_MOST 32768u /* code objects of a process that are told apart; a power of two */
#define LS_CODE_UNKNOWN 0u   /* "(more code than is kept)" */
#define LS_SCRATCHES 32u     /* threads that take a sample at the same time */
#define LS_COPY_BYTES 4096u
#define LS_COPIES 4u
#define LS_TEXT_MOST 1024u
#define LS_LINES_MOST 32768u
#define LS_CODES_AT_ONCE 64u
#define LS_STACK_PIECES (LF_SAMPLES_STACK_MOST / LS_COPY_BYTES + 1)

/* A code object that has a number. Memory of code that is gone is used again, by code of the same size first: so text
 * of files that may have gone is compared too. */
typedef struct {
    uint64_t code, name, lines;
    uint64_t text; /* hash of its name; 0: of a file that has a path */
    int32_t first_line;
    _Atomic uint32_t state; /* LS_CODE_FREE, LS_CODE_TAKEN, or its number + LS_CODE_READY */
} ls_known_code;
enum { LS_CODE_FREE = 0, LS_CODE_TAKEN = 1, LS_CODE_READY = 2 };

/* What one handler works with. */
typedef struct {
    pid_t pid;
    uint32_t next_copy;
    uint64_t copied[LS_COPIES]; /* addresses of the pages that are copied; 0: none */
    uint64_t stack_at;
    size_t stack_bytes;
    struct iovec ours[LS_CODES_AT_ONCE], theirs[LS_CODES_AT_ONCE];
    uint16_t asked[LS_CODES_AT_ONCE];
    lu_python_frame found[LF_SAMPLES_FRAMES_MOST];
    lf_sample_frame frames[LF_SAMPLES_FRAMES_MOST];
    uint8_t codes[LS_CODES_AT_ONCE][LU_PYTHON_CODE_BYTES];
    char name[LS_TEXT_MOST], file[LS_TEXT_MOST];
    uint8_t lines[LS_LINES_MOST];
    uint8_t copies[LS_COPIES][LS_COPY_BYTES];
    uint8_t stack[LF_SAMPLES_STACK_MOST];
} ls_scratch;
_Static_assert(LS_STACK_PIECES <= LS_CODES_AT_ONCE, "iovecs");

/* Of one process: a forked child finds zeros (MADV_WIPEONFORK), whatever the threads of its parent were doing. */
typedef struct {
    _Alignas(64) lf_samples_header *_Atomic area;
    _Atomic uint32_t is_making_area;
    _Atomic uint32_t busy[LS_SCRATCHES];
    ls_known_code codes[LS_CODES_MOST];
    ls_scratch scratch[LS_SCRATCHES];
} ls_sampled_process;

/* sampling.c */
extern uint32_t ls_sampling_least_python;
lf_samples_header *ls_sampling_area(void);

/* signal_stack.c. What happens to threads that may be signalled; `end_timer`: the timer of one that ends; `area`: that of
 * this process, NULL: it has made none. */
typedef struct {
    void (*begins)(void);
    void (*end_timer)(uint32_t *timer);
    lf_samples_header *(*area)(void);
} ls_signalled_threads;
int ls_signal_stack_prepare(const ls_signalled_threads *threads);
void ls_signal_stack_give_back(void);
uint32_t *ls_signal_stack_begin(lf_samples_header *area);

/* signal_handler.c: what SIGURG does */
typedef void ls_handler(int number, siginfo_t *info, void *context);
int ls_disposition_take(ls_handler *handler, void (*taken)(void));
void ls_disposition_give_back(void);
int ls_disposition_has_handler(void);
void ls_disposition_pass_on(int number, siginfo_t *info, void *context);

/* thread_names.c */
void ls_thread_names_begin(lf_samples_header *(*area)(void));
void ls_thread_names_end(void);

/* imports.c */
int ls_import_replace(const void *inside, const char *name, void *from, void *to);

/* samples.c */
lf_samples_header *ls_samples_area(void (*more)(lf_samples_header *area));
lf_sample_head *ls_samples_reserve(lf_samples_header *area, size_t bytes, uint64_t *position);
void ls_samples_commit(lf_sample_head *head, size_t bytes, uint16_t kind, uint16_t flags, uint64_t position);
enum { LS_NUMBER_NO_CODE = -1, LS_NUMBER_NO_ROOM = -2 };
int64_t ls_samples_code(ls_sampled_process *process, ls_scratch *s, const lu_python_frame *frame);

/* memory_reads.c: memory of this process that may be gone, as if from outside */
int ls_can_read(void);
int ls_read_here(void *scratch, uint64_t address, void *into, size_t bytes);
int ls_read_stack(ls_scratch *s, uint64_t from);
int ls_read_codes(ls_scratch *s, uint32_t python, int count);

/* interpreter.c */
typedef struct {
    uint32_t version; /* one of the LF_PYTHON_ values */
    uint64_t eval, runtime;
    void *(*thread_state)(void);
    int (*is_initialized)(void);
} ls_interpreter;
extern ls_interpreter ls_python;
void ls_interpreter_find(ls_scratch *s);

#endif
