/* Operators of MXNet's engine, and spans of them. No header of MXNet's: of its objects only the name of an operator and
 * its variables are read, by the offsets of the build. */
#define _GNU_SOURCE
#include "mxnet.h"

#define NO_NAME "(no name)"
#define ENGINE 0xffffffffu /* the domain of the spans here: no program has as many of its own */

ls_mxnet_build ls_mxnet_build_here;
_Atomic int ls_mxnet_is_recorded;
int ls_mxnet_records_calls;

/* Whether what this thread submits is recorded, where only windows are. */
uint32_t ls_mxnet_window_of(const ls_thread *t) {
    if (!LS_LOAD(ls.watching))
        return 0;
    ls_window_is_open(); /* by what was said last */
    return ls_window_records(t) ? LS_IN_WINDOW : LS_OUTSIDE;
}

/* A span of the engine begins; what ls_operator_finish takes. */
void *ls_mxnet_begin(const char *name, uint32_t kind) {
    ls_beginning b;
    void *silent = NULL;
    if (!ls.wiped)
        return NULL;
    if (!ls_operator_slot(&b, name && *name ? name : NO_NAME, kind, &silent))
        return silent;
    ls_context *c = ls_operator_open(&b, 0);
    c->domain = ENGINE;
    b.thread->task_ids[c->depth] = b.thread->api_depth;
    return c;
}

/* The span of an operator begins that comes from there; `number`: of its submission, -1: not known. What its record will
 * say of it stands in the ring as well, for whoever kills the program. */
ls_context *ls_mxnet_begin_from(const char *name, const ls_mxnet_origin *from, int32_t number) {
    ls_context *c = ls_mxnet_begin(name, LF_FUNCTION);
    if (!c || !c->owner)
        return c;
    c->line = from->line;
    c->module = from->module;
    lf_ring_header *h = &c->owner->ring->h;
    if (c->depth < LF_ORIGINS) {
        h->origins[c->depth] = (lf_origin){from->submitted, from->module, from->line, from->track, number};
        __atomic_store_n(&h->open[c->depth].kind, LF_FUNCTION | LF_HAS_ORIGIN, __ATOMIC_RELEASE);
    }
    return c;
}

/* A call of the C interface ends. What an exception has left open in it is over: no function of ours hears of one. */
void ls_mxnet_abandon(ls_thread *t) {
    for (uint32_t depth = t->depth; depth-- > 0;) {
        const ls_context *c = &t->contexts[depth];
        if (c->domain != ENGINE || c->kind == LF_MODULE || LS_LOAD(t->ring->h.open[depth].state) != c->serial << 1)
            continue;
        if (t->task_ids[depth] < t->api_depth)
            break;
        ls_operator_finish(c, &(ls_ending){.sequence = -1});
    }
}
