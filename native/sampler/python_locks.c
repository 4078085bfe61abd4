/* Who holds a lock of Python. An RLock says it. A Lock does not: but a frame in `with lock:` keeps the bound method
 * `lock.__exit__` on its value stack until the block ends. How deep that stack is the frame does not say while it runs;
 * the exception table of its code does: where an instruction is in a `with` block, the handler of that block (or of one
 * inside of it) begins with so many values, and all of them are there. So this is exact: what is found is held, but for
 * a lock that the block itself has released. */
#define _GNU_SOURCE
#include "python_locks.h"

#include "dump_waits.h"
#include "procfs.h"
#include "python_objects.h"

#include <string.h>

enum {
    CODE_EXCEPTIONS = 40,     /* of a PyCodeObject: co_exceptiontable */
    METHOD_SELF = 24,         /* of a PyCFunctionObject and of a PyMethodObject */
    LOCK_ADDRESS = 16, RLOCK_OWNER = 24, RLOCK_COUNT = 32,
    PARKED_ADDRESS = 8, /* 3.14, in what a thread waits by: so far before its semaphore the address that it waits for */
    SHARED_COUNT = 32, /* of a SemLock: its count and the most that it can be, four bytes each */
    GIL_BYTES = 208, GIL_HOLDER = 8, GIL_LOCKED = 16, /* of struct _gil_runtime_state */
    THREAD_INTERPRETER = 16,
    GENERATOR_FRAME_3_11 = 80, GENERATOR_FRAME = 72, /* of a PyGenObject: gi_iframe */
};
#define TABLE_BYTES 65536u
#define DEPTH_MOST 1024u
#define MANAGERS_MOST 4 /* one in the other */
/* From the system call to the C function that has the lock in a register that it keeps, or in its frame. */
#define STACK_BYTES 2048u

/* A Lock names its semaphore; since 3.14 it is a byte in itself, and an RLock counts from 0. */
static int take_lock(const sm_process *p, uint64_t object, sm_python_lock *into) {
    int is_rlock = sm_python_is(p, object, "_thread.RLock"), is_byte = p->python >= LF_PYTHON_3_14;
    if (!is_rlock && !sm_python_is(p, object, "_thread.lock"))
        return 0;
    uint64_t at = object + LOCK_ADDRESS;
    *into = (sm_python_lock){object, is_byte ? at : sm_word(p, at), 0, is_rlock ? SM_RLOCK : SM_LOCK};
    if (is_rlock && (is_byte || sm_word(p, object + RLOCK_COUNT)))
        into->owner = sm_word(p, object + RLOCK_OWNER);
    return 1;
}

static int take_queue(const sm_process *p, uint64_t object, sm_python_lock *into) {
    *into = (sm_python_lock){object, sm_word(p, object + LOCK_ADDRESS), 0, SM_SIMPLE_QUEUE};
    return sm_python_is(p, object, "_queue.SimpleQueue");
}

/* What else waits as a lock does, with the address of its semaphore where a lock has it. */
static int take_other(const sm_process *p, uint64_t object, sm_python_lock *into) {
    if (take_queue(p, object, into))
        return 1;
    into->kind = sm_word(p, object + SHARED_COUNT) >> 32 == 1 ? SM_SHARED_LOCK : SM_SHARED_SEMAPHORE;
    return sm_python_is(p, object, "_multiprocessing.SemLock");
}

int sm_python_waits_for(const sm_process *p, uint64_t stack_pointer, uint64_t futex, sm_python_lock *into) {
    uint64_t words[STACK_BYTES / 8];
    int32_t pid = p->pid;
    if (p->python <= LF_PYTHON_UNKNOWN || sm_read_pages(&pid, stack_pointer, words, sizeof words))
        return 0;
    uint64_t parked = p->python >= LF_PYTHON_3_14 ? sm_word(p, futex - PARKED_ADDRESS) - LOCK_ADDRESS : 0;
    if (parked && (take_lock(p, parked, into) || take_queue(p, parked, into)))
        return 1;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        uint64_t head[3];
        if (words[i] % 8 || words[i] < 4096 || words[i] >> 47)
            continue;
        if (sm_read_pages(&pid, words[i], head, sizeof head) || head[LOCK_ADDRESS / 8] != futex)
            continue;
        if (take_lock(p, words[i], into) || take_other(p, words[i], into))
            return 1;
    }
    return 0;
}

/* --- What a frame holds --- */

/* A number of the exception table: six bits a byte, the highest first; bit 6 says that there is more. */
static uint32_t number_at(const uint8_t **at, const uint8_t *end) {
    uint32_t number = 0;
    while (*at < end) {
        uint8_t byte = *(*at)++;
        number = number << 6 | (byte & 63);
        if (!(byte & 64))
            break;
    }
    return number;
}

/* How many values the handler of an instruction begins with, which are on the stack of values all the time; 0: there is
 * no handler. An entry: where it begins, its length, the handler (in units of two bytes), depth << 1 | lasti. */
static uint32_t depth_at(const uint8_t *table, size_t bytes, uint32_t place) {
    const uint8_t *at = table, *end = table + bytes;
    uint32_t unit = place / 2;
    while (at < end) {
        uint32_t start = number_at(&at, end), length = number_at(&at, end);
        number_at(&at, end);
        uint32_t depth = number_at(&at, end) >> 1;
        if (unit < start)
            return 0;
        if (unit < start + length)
            return depth;
    }
    return 0;
}

static int held_by(const sm_process *p, uint64_t frame, const lu_python_frame *is, sm_python_lock *into, int most,
                   int depth);

/* The locks that are held until the `__exit__` of this object is called: of a Condition of `threading` that has one, or
 * of a function with `contextlib.contextmanager`, whose frame is in a `with` block itself. */
static int locks_of_manager(const sm_process *p, uint64_t self, sm_python_lock *into, int most, int depth) {
    if (sm_python_is(p, self, "Condition"))
        return take_lock(p, sm_python_attribute(p, self, "_lock"), into);
    if (depth == MANAGERS_MOST || !sm_python_is(p, self, "_GeneratorContextManager"))
        return 0;
    uint64_t generator = sm_python_attribute(p, self, "gen");
    uint64_t frame = generator + (p->python == LF_PYTHON_3_11 ? GENERATOR_FRAME_3_11 : GENERATOR_FRAME);
    int32_t pid = p->pid;
    lu_python_frame is;
    if (!sm_python_is(p, generator, "generator"))
        return 0;
    lu_python_outwards(p->python, frame, sm_read_pages, &pid, &is);
    return is.code ? held_by(p, frame, &is, into, most, depth + 1) : 0;
}

/* Those of a value that a frame keeps to the end of a `with` block. */
static int locks_of_value(const sm_process *p, uint64_t value, sm_python_lock *into, int most, int depth) {
    if (p->python >= LF_PYTHON_3_14)
        return take_lock(p, value, into) || locks_of_manager(p, value, into, most, depth);
    if (sm_python_is(p, value, "builtin_function_or_method"))
        return take_lock(p, sm_word(p, value + METHOD_SELF), into);
    return sm_python_is(p, value, "method")
        ? locks_of_manager(p, sm_word(p, value + METHOD_SELF), into, most, depth) : 0;
}

static int held_by(const sm_process *p, uint64_t frame, const lu_python_frame *is, sm_python_lock *into, int most,
                   int managers) {
    static uint8_t table[TABLE_BYTES];
    uint64_t values[DEPTH_MOST];
    int32_t pid = p->pid, locals;
    uint64_t exceptions = sm_word(p, is->code + CODE_EXCEPTIONS);
    int bytes = lu_python_bytes(p->python, exceptions, sm_read_pages, &pid, table, sizeof table), count = 0;
    uint32_t depth = bytes > 0 ? depth_at(table, (size_t)bytes, is->place & ~LF_ENTRY) : 0;
    uint64_t locals_at = p->python == LF_PYTHON_3_11 ? 76 : 72; /* of a PyCodeObject: co_nlocalsplus */
    if (!depth || depth > DEPTH_MOST || sm_read_pages(&pid, is->code + locals_at, &locals, sizeof locals)
        || locals < 0)
        return 0;
    if (sm_read_pages(&pid, lu_python_value_at(p->python, frame, (uint32_t)locals), values, 8u * depth))
        return 0;
    for (uint32_t i = 0; i < depth && count < most; i++)
        if (lu_python_value(p->python, values[i]))
            count += locks_of_value(p, lu_python_value(p->python, values[i]), &into[count], most - count, managers);
    return count;
}

int sm_python_held(const sm_process *p, uint64_t frame, const lu_python_frame *is, sm_python_lock *into, int most) {
    return held_by(p, frame, is, into, most, 0);
}

int sm_python_released(const sm_process *p, uint64_t frame, const lu_python_frame *is, sm_python_lock *into) {
    if (!sm_python_is_called(p, is, "Condition.wait"))
        return 0;
    uint64_t self = sm_python_first(p, frame);
    return take_lock(p, sm_python_attribute(p, self, "_lock"), into);
}

/* --- The GIL --- */

sm_gil sm_python_gil(const sm_process *p, uint64_t state) {
    uint64_t interpreter = sm_word(p, state + THREAD_INTERPRETER), at = 0;
    if (p->python == LF_PYTHON_3_11)
        at = p->python_runtime + 360; /* of _PyRuntimeState: ceval.gil */
    else if (p->python <= LF_PYTHON_3_14 && interpreter)
        at = sm_word(p, interpreter + (p->python == LF_PYTHON_3_12 ? 384 : 16)); /* ceval.gil */
    if (!at || p->python <= LF_PYTHON_UNKNOWN)
        return (sm_gil){0, 0, 0};
    int is_locked = (int32_t)sm_word(p, at + GIL_LOCKED) > 0;
    return (sm_gil){at, at + GIL_BYTES, is_locked ? sm_word(p, at + GIL_HOLDER) : 0};
}
