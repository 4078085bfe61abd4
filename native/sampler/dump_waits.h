/* What a thread waits for, as its system call and the Thread objects of Python tell it, for `dump`. */
#ifndef LAYERSCOPE_SAMPLER_DUMP_WAITS_H
#define LAYERSCOPE_SAMPLER_DUMP_WAITS_H

#include "wait_stacks.h"

typedef struct {
    char name[64];
    char state;        /* the letter of proc(5) */
    int32_t own_tid;   /* in its own pid namespace */
    uint64_t switches; /* how often it has left a CPU */
} sm_status;
int sm_read_status(int32_t pid, int32_t tid, sm_status *into); /* -1: it is gone */

int sm_is_futex_wait(const sm_call *call);
/* Members of a line of JSON: the call, with what it names in the memory of the process. */
void sm_tell_call(const sm_process *process, const sm_call *call);
/* Of a frame of `threading`: how its thread is called, or which one it joins. Whether nothing more can be told. */
int sm_tell_thread_object(const sm_process *process, uint64_t frame, const lu_python_frame *is);
/* Of the innermost frame: the owner of an RLock that is written in Python, which it acquires. */
void sm_tell_owner(const sm_process *process, uint64_t frame, const lu_python_frame *is);
/* Whether this is its qualified name. */
int sm_python_is_called(const sm_process *process, const lu_python_frame *is, const char *name);

#endif
