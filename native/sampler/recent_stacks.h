/* Stacks of Python that a thread had lately. */
#ifndef LAYERSCOPE_SAMPLER_RECENT_STACKS_H
#define LAYERSCOPE_SAMPLER_RECENT_STACKS_H

#include "intern.h"
#include "threads.h"

/* Frames of one C frame of the interpreter, the innermost first. */
typedef struct {
    const sm_python_frame *frames; /* NULL: not found */
    int count;
    int likeness;
} sm_python_group;

/* A whole stack of the thread, as a look has found it or as a sample has it. */
enum { SM_RECENT_LOOK = 0, SM_RECENT_SAMPLE = 1, SM_RECENT_KINDS = 2 };
void sm_recent_add(sm_thread *thread, int kind, const sm_python_frame *frames, int count);
void sm_recent_free(sm_thread *thread);
#define SM_RECENT_EVALS_MOST 1024
/* The frames around the functions that `evals` C frames of the interpreter run, the innermost first; all that there
 * are. Those of which the code is LT_NONE are left out. `look`: what the thread had just then. */
void sm_recent_around(const sm_thread *thread, const sm_python_frame *look, int look_count,
                      const sm_python_frame *inner, int evals, sm_python_group *into);
/* The same where only the `evals` innermost ones are there: all frames into `into`; how many, 0: none are known. */
int sm_recent_outwards(const sm_thread *thread, const sm_python_frame *look, int look_count,
                       const sm_python_frame *inner, int evals, sm_python_frame *into);
/* Where the group begins that ends before `end`. */
int sm_python_group_begin(const sm_python_frame *frames, int end);

#endif
