/* What the handler of the agent writes for each sample of a thread and the sampler reads: one area of shared memory for
 * a process, into which all its threads write. Times are CLOCK_MONOTONIC ns. Little endian, x86-64.
 *
 * The area is a header and a ring of bytes. A writer reserves its bytes by moving `reserved` on (compare and swap) if
 * they fit behind `consumed`; a record never wraps: what is left at the end of the ring is reserved too, as
 * LF_SAMPLE_PAD. It writes the record and publishes it by storing `commit` = its position + 1 (release); positions count
 * bytes since the beginning, so what an earlier round left there never looks like it. The sampler takes records in the
 * order of their positions and then moves `consumed` on. */
#ifndef LAYERSCOPE_SAMPLES_H
#define LAYERSCOPE_SAMPLES_H

#include <stdint.h>

#define LF_SAMPLES_MAGIC 0x5053534cu /* "LSSP" */
#define LF_SAMPLES_HEADER 32768u
#define LF_SAMPLES_BYTES (4u << 20) /* header and ring */
/* Of one thread's stack, from its stack pointer on. */
#define LF_SAMPLES_STACK_MOST (192u << 10)
/* Of frames of Python: of a deeper stack the innermost and the outermost are there, with LF_BETWEEN in the place of the
 * others. Of one that is deeper than LF_WALKED_FRAMES_MOST the innermost alone are there. */
#define LF_SAMPLES_FRAMES_MOST 2560u
#define LF_OUTERMOST_FRAMES 256u
#define LF_WALKED_FRAMES_MOST 16384u

/* Threads that may be sent the signal of samples: a table by thread number, in which one takes the first free place of
 * those that are meant for it. One for whom there is none is not signalled. */
#define LF_SIGNALLED_MOST 7168u
#define LF_SIGNALLED_PROBES 32u

enum {
    LF_SAMPLE_PAD = 0,   /* only `commit` and `bytes` count */
    LF_SAMPLE_STACK = 1, /* lf_sample */
    LF_SAMPLE_CODE = 2,  /* lf_sample_code: before the first sample that has the code */
    LF_SAMPLE_MADE = 3,  /* lf_sample_made */
    LF_SAMPLE_NAME = 4,  /* lf_sample_name */
};

/* How the agent walks the frames of Python; LF_PYTHON_UNKNOWN: native frames alone. */
enum { LF_PYTHON_NONE = 0, LF_PYTHON_UNKNOWN = 1, LF_PYTHON_3_11 = 11, LF_PYTHON_3_12 = 12, LF_PYTHON_3_13 = 13,
       LF_PYTHON_3_14 = 14 };

typedef struct {
    uint32_t magic, version; /* LF_LAYOUT_VERSION */
    int32_t pid;
    uint32_t capacity; /* bytes of the ring */
    uint64_t process_start;
    uint32_t python;        /* one of the LF_PYTHON_ values */
    uint32_t uses_timers;   /* the samples come by timers of the process: nobody opens events for it */
    uint64_t python_eval;   /* address of _PyEval_EvalFrameDefault, 0: none */
    uint64_t python_runtime; /* address of _PyRuntime, 0: none */
    uint32_t has_handler; /* the program handles SIGURG itself: it shall be sent none of ours any more */
    uint32_t is_signalled; /* its threads may be sent the signal of samples */
    uint8_t pad0[8];
    /* The writers' cache line. */
    uint64_t reserved;
    uint64_t samples, lost_full, lost_busy; /* busy: no scratch was free */
    uint64_t handler_ns, handler_most_ns; /* CPU time */
    uint64_t foreign; /* signals of others, passed on */
    uint64_t codes;
    uint64_t consumed; /* the reader's cache line */
    uint8_t pad1[56];
    /* The thread that started sampling, and when it was put into the table. */
    uint64_t first_ns;
    int32_t first_tid;
    uint32_t signalled_puts; /* how often a thread was put into the table */
    uint8_t pad2[LF_SAMPLES_HEADER - 208 - LF_SIGNALLED_MOST * sizeof(int32_t)];
    int32_t signalled[LF_SIGNALLED_MOST]; /* 0: free */
} lf_samples_header;

/* Where the number of a thread may stand in the table. */
static inline uint32_t lf_signalled_place(int32_t tid, uint32_t probe) {
    return ((uint32_t)tid + probe) % LF_SIGNALLED_MOST;
}

typedef struct {
    uint64_t commit;
    uint32_t bytes; /* of the whole record, a multiple of 16 */
    uint16_t kind, flags;
} lf_sample_head;

enum {
    LF_SAMPLE_STACK_CUT = 1,  /* the stack goes on: there was no room for more */
    LF_SAMPLE_FRAMES_CUT = 2, /* so do the frames of Python */
    LF_SAMPLE_STACK_NONE = 4, /* the stack could not be read */
    LF_SAMPLE_TIMER = 8,      /* by a timer of the process: `count` periods have passed */
};

/* A frame of Python, the innermost first. */
typedef struct {
    uint32_t code;  /* number of an lf_sample_code of this process */
    uint32_t place; /* index of the instruction in bytes; LF_ENTRY: a C frame of the interpreter begins with it */
} lf_sample_frame;
#define LF_ENTRY 0x80000000u
#define LF_BETWEEN 0xfffffffeu /* as a code: so many frames as `place` says are left out here */

/* The order of `registers`. */
enum { LF_RAX, LF_RDX, LF_RCX, LF_RBX, LF_RSI, LF_RDI, LF_RBP, LF_RSP, LF_R8, LF_R9, LF_R10, LF_R11, LF_R12, LF_R13,
       LF_R14, LF_R15, LF_RIP, LF_REGISTERS }; /* as DWARF numbers them */

typedef struct {
    lf_sample_head head;
    uint64_t at_ns, cpu_ns; /* cpu_ns: of the thread so far, user and kernel (CLOCK_THREAD_CPUTIME_ID) */
    int32_t tid;
    int32_t event;  /* si_fd: the descriptor, in the sampler, of the event that told; -1: a timer */
    uint32_t count; /* periods of a timer */
    uint32_t frames, stack_bytes, pad;
    uint64_t registers[LF_REGISTERS];
    /* then lf_sample_frame frames[frames], padded to 16; then stack_bytes bytes from registers[LF_RSP] on, padded */
} lf_sample;

typedef struct {
    lf_sample_head head;
    uint32_t code;
    int32_t first_line;
    uint32_t name_bytes, file_bytes, lines_bytes; /* UTF-8, UTF-8, co_linetable */
    uint32_t pad;
    /* then name, file, lines, one after the other, padded to 16 */
} lf_sample_code;

/* Code that the process has just made. */
typedef struct {
    lf_sample_head head;
    uint64_t address;
    uint32_t code_bytes, name_bytes;
    uint64_t pad;
    /* then the name, padded so that the whole is a multiple of 16 */
} lf_sample_made;

/* The program calls one of its threads so. */
#define LF_THREAD_NAME_MOST 256u
typedef struct {
    lf_sample_head head;
    int32_t tid;
    uint32_t name_bytes;
    uint64_t at_ns;
    /* then the name, UTF-8, padded so that the whole is a multiple of 16 */
} lf_sample_name;

_Static_assert(sizeof(lf_samples_header) == LF_SAMPLES_HEADER, "header of samples");
_Static_assert(sizeof(lf_sample_head) == 16, "head of a sample");
_Static_assert(sizeof(lf_sample) % 16 == 0, "sample");
_Static_assert(sizeof(lf_sample_code) % 8 == 0, "code");
_Static_assert(sizeof(lf_sample_made) == 40, "made");
_Static_assert(sizeof(lf_sample_name) == 32, "name");

#endif
