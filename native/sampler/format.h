/* The raw file of the sampler, `raw/stacks`; one that took the place of another writes `raw/stacks.1`, and so on.
 * Chunks as layerscope/rawfile/raw_file.py has them, without compression, whose payloads are rows of these structures.
 * `layerscope/rawfile/sampler_file.py` holds the same numbers; a test compares the two. Times are CLOCK_MONOTONIC ns.
 * Numbers are given from 0 on, of each kind of thing in the whole file, and what a row names has been written before
 * it. Little endian. */
#ifndef LAYERSCOPE_SAMPLER_FORMAT_H
#define LAYERSCOPE_SAMPLER_FORMAT_H

#include <stdint.h>

#define LT_NONE 0xffffffffu

/* Kinds of chunks, behind those of spool.py. */
enum {
    LT_SETTINGS = 20, /* JSON: hz, period_ns, start_ns, switches (whether waits are exact), wakers and kernel (whether those
                         are known), boot (boot_id: addresses of the kernel hold until the next), and what else is known */
    LT_OBJECTS = 21,  /* lt_object, each with its path, padded to 8 */
    LT_PROCESSES = 22,
    LT_THREADS = 23,
    LT_CODES = 24, /* lt_code, each with its texts, padded to 8 */
    LT_FRAMES = 25,
    LT_STACKS = 26,
    LT_SAMPLES = 27,
    LT_ACCOUNTS = 28,
    LT_QUALITY = 29,
    LT_POLL = 30,     /* uint64_t: all samples that began before this time are in the file, but of waits in parts */
    LT_PROBLEMS = 31, /* JSON: a list of {"code", "what", "remedy", "lost", "pid"} */
    LT_END = 32,
    LT_MADES = 33, /* lt_made, each with its name, padded to 8 */
    LT_NAMES = 34, /* lt_name, each with its name, padded to 8 */
    LT_PROCESS_ACCOUNTS = 35,
};

typedef struct {
    uint32_t object, path_bytes;
    uint64_t device, inode, mtime_ns; /* 0: not known */
    uint8_t build_id[20];
    uint32_t build_id_bytes;
} lt_object; /* a file of which code was mapped; then its path */

typedef struct {
    uint32_t process;
    int32_t pid, ppid;
    uint32_t python; /* one of the LF_PYTHON_ values */
    uint64_t start_ns, end_ns; /* when it was first seen; end_ns 0: not yet. Written again when more is known */
} lt_process;

typedef struct {
    uint32_t thread, process;
    int32_t tid;
    uint32_t pad;
    uint64_t start_ns, end_ns; /* as of a process */
    char name[16];
} lt_thread;

typedef struct {
    uint32_t thread, name_bytes;
} lt_name; /* how the program calls a thread from then on; then the name, UTF-8. `lt_thread` has what the kernel knows */

typedef struct {
    uint32_t code, process;
    int32_t first_line;
    uint32_t name_bytes, file_bytes, lines_bytes;
    uint32_t python;   /* how `lines` is written */
    uint32_t known_as; /* its number in the area of its process, LT_NONE: it was read from outside */
} lt_code; /* a code object of Python; then its qualified name, its file, its co_linetable. Without any of them: a
              number that there is has another `known_as` too, or a sampler before this one has written down what that
              is */

typedef struct {
    uint32_t made, process;
    uint64_t address;
    uint32_t code_bytes, name_bytes;
    uint64_t pad;
} lt_made; /* code that a process made while it ran; then its name */

enum {
    LT_NATIVE = 0, /* of: the object, address: in that file as its symbols count (ELF virtual address) */
    LT_PYTHON = 1, /* of: the code, address: index of the instruction in bytes */
    LT_JIT = 2,    /* of: the process, address: where it ran; no file has it */
    LT_KERNEL = 3, /* time in the kernel, address: where; 0: nothing more is known */
    LT_CUT = 4,    /* the outermost frames are not known; of LT_CUT_BETWEEN: some are left out here */
    LT_MADE = 5,   /* of: the lt_made, address: in it */
};
enum { LT_CUT_OUTER = 0, LT_CUT_BETWEEN = 1 };
typedef struct {
    uint32_t frame, kind, of;
    uint32_t flags; /* 1: `address` is a return address less one */
    uint64_t address;
} lt_frame;

typedef struct {
    uint32_t stack, parent, frame, depth; /* parent: the stack without its innermost frame, LT_NONE: the outermost */
} lt_stack;

enum { LT_CPU = 0, LT_OFFCPU = 1, LT_FAULT = 2 };
enum {
    LT_EXACT = 1,      /* weight_ns was measured from when it began to when it ended; else it stands for others */
    LT_PREEMPTED = 2,  /* off-CPU though it could have run */
    LT_NO_SPLICE = 4,  /* frames of Python and C did not fit: Python's are all inside */
    LT_UNFINISHED = 8, /* it waited still at the end */
    LT_BEFORE = 16,    /* cpu: all that the thread has used before this sampler began */
    LT_TORN = 32,      /* its frames of Python had changed when they were read: some are left out */
};
/* What the first argument of a system call is that waits for a file. */
enum { LT_NO_FILE = 0, LT_PIPE = 1, LT_SOCKET = 2, LT_FILE = 3, LT_TERMINAL = 4, LT_EVENT = 5 /* epoll, eventfd, ... */ };
typedef struct {
    uint64_t at_ns; /* of a wait: when it began */
    uint32_t thread, stack; /* stack LT_NONE: not known */
    uint64_t weight_ns; /* cpu: CPU time it stands for, kernel_ns included; offcpu: how long */
    uint64_t kernel_ns; /* cpu: the part in the kernel, of which functions may be the innermost frames of the stack */
    uint32_t kind, flags;
    uint32_t count;      /* how many faults, waits or samples it stands for */
    int32_t system_call; /* offcpu: its number; -1: in none (a page fault), -2: not known, -3: stopped */
    uint32_t file;       /* offcpu: what it waits for; cpu: how many samples were taken of a second of CPU time */
    uint32_t waker;      /* offcpu: the thread that woke it, LT_NONE: not known */
} lt_sample;

typedef struct {
    uint64_t at_ns;
    uint32_t thread;
    uint32_t migrations; /* how often it came onto another CPU than before; 0 where no switches are told */
    uint64_t run_ns, delay_ns; /* on a CPU, and ready to run without one (/proc/PID/task/TID/schedstat) */
    uint64_t user_ns, system_ns;
    uint64_t switches_voluntary, switches_forced, faults_minor, faults_major;
} lt_account; /* of a thread so far, about every second and when it ends */

enum {
    LT_FORKED = 1, /* it is still the program of its parent */
    LT_ENDED = 2,  /* `exit` is known */
};
typedef struct {
    uint64_t at_ns;
    uint32_t process, flags;
    int32_t exit; /* status, or minus the signal that ended it */
    uint32_t threads;
    uint64_t rss_bytes, rss_peak_bytes, user_ns, system_ns, faults_minor, faults_major;
} lt_process_account; /* of a process so far, of all but the program itself: about every second and when it ends */

typedef struct {
    uint64_t samples, to_root, jit, jit_to_root, python, spliced, cut, lost, handler_ns, signals, waits, waits_to_root,
        our_ns, missed_threads;
    uint64_t pad[2];
} lt_quality; /* sums so far */

_Static_assert(sizeof(lt_object) == 56, "object");
_Static_assert(sizeof(lt_process) == 32, "process");
_Static_assert(sizeof(lt_thread) == 48, "thread");
_Static_assert(sizeof(lt_name) == 8, "name");
_Static_assert(sizeof(lt_code) == 32, "code");
_Static_assert(sizeof(lt_made) == 32, "made");
_Static_assert(sizeof(lt_frame) == 24, "frame");
_Static_assert(sizeof(lt_stack) == 16, "stack");
_Static_assert(sizeof(lt_sample) == 56, "sample");
_Static_assert(sizeof(lt_account) == 80, "account");
_Static_assert(sizeof(lt_process_account) == 72, "account of a process");
_Static_assert(sizeof(lt_quality) == 128, "quality");

#endif
