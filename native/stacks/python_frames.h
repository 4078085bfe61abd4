/* The frames of Python of a thread, by what the interpreter (CPython 3.11 to 3.14) keeps in memory. Compiled into the
 * sampler and into the agent, where it runs in a signal handler: it calls nothing but `read`. */
#ifndef LAYERSCOPE_STACKS_PYTHON_FRAMES_H
#define LAYERSCOPE_STACKS_PYTHON_FRAMES_H

#include "../samples.h"

#include <stddef.h>

/* _Py_DebugOffsets, which begins the runtime of 3.13 and later (pycore_runtime.h of CPython): its first bytes, and where
 * it says in a word whether the build is free-threaded. */
#define LU_RUNTIME_COOKIE "xdebugpy"
#define LU_RUNTIME_FREE_THREADED 16

/* Reads `bytes` at `address` of the process; 0, or -1 if not all of it is there. Must not fault whatever `address` is. */
typedef int (*lu_read)(void *of, uint64_t address, void *into, size_t bytes);

/* Why frames of a Python of this version (as PY_VERSION_HEX; 0: it does not say) are not read, by what its runtime says
 * of itself; NULL: they are, if it is not a debug build. */
const char *lu_python_refusal(uint64_t version, uint64_t runtime, lu_read read, void *of);

typedef struct {
    uint64_t at; /* where it lies */
    uint64_t code, name, lines; /* addresses of the code object, its qualified name, its co_linetable: what it is known by */
    int32_t first_line;
    uint32_t place; /* as lf_sample_frame has it */
} lu_python_frame;

/* What there is no room for: `between` frames behind the first `behind` ones, and those outside of all if `is_cut`. */
typedef struct {
    int between, behind, is_cut;
} lu_python_left_out;

/* The frames of the thread with this PyThreadState, the innermost first; how many, at most `most`, -1 if nothing could
 * be read. */
int lu_python_frames(uint32_t python, uint64_t thread_state, lu_read read, void *of, lu_python_frame *into, int most,
                     lu_python_left_out *left_out);
/* The same in two steps, for a reader that reads many places at once: the frames with `code` and `place` alone, and what
 * their code objects are known by, of the first LU_PYTHON_CODE_BYTES bytes of each. `stack_pointer`: of a thread that
 * may have been stopped anywhere; 0: it waits. */
int lu_python_walk(uint32_t python, uint64_t thread_state, uint64_t stack_pointer, lu_read read, void *of,
                   lu_python_frame *into, int most, lu_python_left_out *left_out);
/* Where the thread is: its innermost frame, and the instruction in it. 0 or -1. */
int lu_python_here(uint32_t python, uint64_t thread_state, lu_read read, void *of, uint64_t into[2]);
/* The _PyCFrames of a thread of CPython 3.11 or 3.12, the innermost first; how many, at most `most`. */
int lu_python_c_frames(uint32_t python, uint64_t thread_state, lu_read read, void *of, uint64_t *into, int most);
/* Where in one of them the address of its innermost frame lies. */
uint32_t lu_python_frame_in_c_frame(uint32_t python);
/* `code` and `place` of the frame at this address, of the thread that asks, which reads its memory as it is; `code` is 0
 * where it is of no function. The frame outside of it; 0: there is none. */
uint64_t lu_python_own_outwards(uint32_t python, uint64_t frame, lu_python_frame *into);
/* The code of the frame at this address; 0: it cannot be read. */
uint64_t lu_python_code_of(uint32_t python, uint64_t frame, lu_read read, void *of);
#define LU_PYTHON_CODE_BYTES 144u
void lu_python_known_by(uint32_t python, const uint8_t *code, lu_python_frame *into);
/* Where the instructions of a code object lie, of which `bytes` has the first LU_PYTHON_CODE_BYTES bytes; how many bytes. */
uint64_t lu_python_instructions(uint32_t python, uint64_t code, const uint8_t *bytes, uint64_t *first);
/* The address of the first of them. */
uint64_t lu_python_first_instruction(uint32_t python, uint64_t code);
/* The PyThreadState of the thread `tid` of any interpreter, by `_PyRuntime`; 0: none. */
uint64_t lu_python_thread(uint32_t python, uint64_t runtime, int32_t tid, lu_read read, void *of);
/* Of two states of the same thread, whether the one that was found later is rather what it runs by; `runs`: whether they
 * run functions. */
int lu_python_is_rather(uint32_t python, int runs_before, int runs);
/* All threads of all interpreters, those of the first one last; how many, at most `most`. */
typedef struct {
    uint64_t state; /* its PyThreadState */
    uint64_t identification; /* as `threading.get_ident` gives it */
    int32_t tid;
    int runs; /* functions of Python */
} lu_python_thread_facts;
int lu_python_threads(uint32_t python, uint64_t runtime, lu_read read, void *of, lu_python_thread_facts *into, int most);
/* `code` and `place` of the frame at this address; `code` is 0 where it is of no function. The frame outside of it; 0:
 * there is none. */
uint64_t lu_python_outwards(uint32_t python, uint64_t frame, lu_read read, void *of, lu_python_frame *into);
/* Where the value `number` of a frame lies: its variables, then what it computes with. What object a word there names; 0:
 * none. */
uint64_t lu_python_value_at(uint32_t python, uint64_t frame, uint32_t number);
uint64_t lu_python_value(uint32_t python, uint64_t word);
/* Whether this is the PyThreadState of that thread. */
int lu_python_is_thread(uint32_t python, uint64_t thread_state, int32_t tid, lu_read read, void *of);
/* A str object as UTF-8; its length, cut at `most`, or -1. */
int lu_python_text(uint32_t python, uint64_t object, lu_read read, void *of, char *into, size_t most);
/* A bytes object; its length, -1 if it cannot be read or is longer than `most`. */
int lu_python_bytes(uint32_t python, uint64_t object, lu_read read, void *of, uint8_t *into, size_t most);
/* What a code object is called: addresses of its file name and qualified name, for the two above. -1: it is none. */
int lu_python_code(uint32_t python, uint64_t code, lu_read read, void *of, uint64_t *file, uint64_t *name,
                   uint64_t *lines, int32_t *first_line);

#endif
