/* The locks of Python that threads hold and wait for, and the GIL, read from outside. */
#ifndef LAYERSCOPE_SAMPLER_PYTHON_LOCKS_H
#define LAYERSCOPE_SAMPLER_PYTHON_LOCKS_H

#include "threads.h"

enum { SM_LOCK = 0, SM_RLOCK = 1, SM_SIMPLE_QUEUE = 2, SM_SHARED_LOCK = 3, SM_SHARED_SEMAPHORE = 4 };
typedef struct {
    uint64_t object;  /* of _thread.lock, _thread.RLock, _queue.SimpleQueue, _multiprocessing.SemLock */
    uint64_t address; /* of the semaphore that threads wait for */
    uint64_t owner;   /* of an RLock: the thread's identification, 0: nobody's */
    int kind;
} sm_python_lock;

/* The lock that a thread waits for by the word at `futex`, which its stack names from `stack_pointer` on. 0: none. */
int sm_python_waits_for(const sm_process *process, uint64_t stack_pointer, uint64_t futex, sm_python_lock *into);
/* The lock that a `Condition` of `threading` has released where the frame is in its `wait`; 0: it is in none. */
int sm_python_released(const sm_process *process, uint64_t frame, const lu_python_frame *is, sm_python_lock *into);
/* The locks whose `with` blocks the frame is in, as lu_python_outwards tells of it; how many. */
int sm_python_held(const sm_process *process, uint64_t frame, const lu_python_frame *is, sm_python_lock *into, int most);

typedef struct {
    uint64_t from, until; /* where it lies: who waits for it waits for a word in there */
    uint64_t holder;      /* a PyThreadState; 0: nobody */
} sm_gil;
/* Of the interpreter of this PyThreadState. */
sm_gil sm_python_gil(const sm_process *process, uint64_t state);

#endif
