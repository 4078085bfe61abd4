/* Which optimizer a step belongs to, and spans of a framework that announces them by calls. */
#define _GNU_SOURCE
#include "operators.h"

int (*ls_uncaught_exceptions)(void);

/* Say which optimizer instance the innermost open optimizer step of this thread belongs to; numbers
 * start at 1. Called from the framework's own hook at the end of the step. */
LS_EXPORT void ls_note_optimizer(uint32_t instance) {
    ls_thread *t = ls_this_thread;
    if (!ls.wiped || !ls_thread_is_current(t))
        return;
    LS_STORE(t->noted, instance);
    const lf_open *open = t->ring->h.open;
    for (uint32_t depth = t->depth; depth-- > 0;)
        if (open[depth].kind == LF_OPTIMIZER && !(LS_LOAD(open[depth].state) & 1)) {
            t->optimizers[depth] = instance;
            return;
        }
}

static uint64_t own_thread_number(void) { return ls_this_thread ? ls_this_thread->track : 0; }

/* A span called `text` begins on this thread, of kind LF_FUNCTION, LF_BACKWARD or, where its name says what it is,
 * LF_RANGE. What ls_operator_ends takes; NULL: nothing is to be ended. */
LS_EXPORT void *ls_operator_begins(const char *text, uint32_t kind) {
    ls_beginning b;
    void *silent;
    /* By it a backward function finds its operator; a framework that numbers no threads has ours. */
    if (!ls_framework_thread_id)
        ls_framework_thread_id = own_thread_number;
    if (!ls.wiped || !ls_operator_slot(&b, text, kind, &silent))
        return ls.wiped ? silent : NULL;
    return ls_operator_open(&b, 0);
}

/* It is over, on whatever thread. `sequence`: what an operator and its backward function have in common, -1: nothing;
 * `forward_thread`: of a backward function, the number of the thread of its operator, 0: this one. */
LS_EXPORT void ls_operator_ends(void *context, int64_t sequence, uint64_t forward_thread) {
    const ls_ending ending = {.forward_thread = forward_thread, .sequence = sequence};
    ls_operator_finish(context, &ending);
}
