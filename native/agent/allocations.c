/* Allocations with what the thread is doing: operator, module, phase and Python line. */
#define _GNU_SOURCE
#include "allocations.h"

#include "heap_statistics.h"
#include "operators.h"
#include "python_line.h"

#include <errno.h>

#define SIZE_BITS_IN_SEQ 32
#define HEAP_EVERY 64u /* records, so that few of them look at the time */

static int is_operator(uint32_t kind) { return kind == LF_FUNCTION || kind == LF_BACKWARD || kind == LF_OPTIMIZER; }

/* The innermost operator that does more than allocate; where all of them do no more, the outermost. */
static uint32_t operator_of(const ls_thread *t) {
    const lf_open *open = t->ring->h.open;
    uint32_t name = 0;
    for (uint32_t depth = t->depth; depth; depth--) {
        const lf_open *o = &open[depth - 1];
        if ((LS_LOAD(o->state) & 1) || !is_operator(o->kind & 0xff))
            continue;
        name = o->name;
        if (!ls_name_only_allocates(name))
            break;
    }
    return name;
}

/* The innermost scope decides, as in ingest/phases.py: what a module computes for a step of the optimizer (its closure)
 * is its forward pass. What a checkpoint computes again lies in a backward pass, which its modules do not end. */
static uint32_t phase_of(const ls_thread *t) {
    const lf_open *open = t->ring->h.open;
    int in_module = 0;
    for (uint32_t depth = t->depth; depth; depth--) {
        uint32_t kind = open[depth - 1].kind & 0xff;
        if (LS_LOAD(open[depth - 1].state) & 1)
            continue;
        if (kind == LF_BACKWARD)
            return LF_PHASE_BACKWARD;
        if (kind == LF_LOADER)
            return LF_PHASE_LOADING;
        if (kind == LF_OPTIMIZER)
            return in_module ? LF_PHASE_FORWARD : LF_PHASE_OPTIMIZER;
        in_module |= kind == LF_MODULE;
    }
    return t->modules ? LF_PHASE_FORWARD : LF_PHASE_OTHER;
}

/* This thread, if what it does is recorded and there is room for a record. */
static ls_thread *recorded_thread(void) {
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    if (!t || (LS_UNLIKELY(LS_LOAD(ls.watching)) && !ls_window_is_open()))
        return NULL;
    if (LS_UNLIKELY(!ls_ring_has_room(t, LS_ANY_SPAN))) {
        ls_ring_lose(t, 0);
        return NULL;
    }
    return t;
}

static void record_allocation(ls_thread *t, const void *address, size_t bytes, unsigned by) {
    const uint32_t line = ls_python_line(), name = operator_of(t), phase = phase_of(t);
    const uint64_t size = bytes;
    lf_record *r = ls_ring_next(t);
    *r = (lf_record){
        .start = ls_ticks(),
        .end = (uint64_t)(uintptr_t)address | size >> SIZE_BITS_IN_SEQ << LF_ADDRESS_BITS,
        .name = name,
        .seq = (int32_t)(uint32_t)size,
        .module = t->module,
        .depth = (uint16_t)line,
        .kind = LF_ALLOCATION,
        .flags = (uint8_t)((line >> 16 & LF_LINE_BITS_IN_FLAGS) | phase << LF_PHASE_SHIFT | by),
    };
    ls_ring_publish(t);
    if (LS_UNLIKELY(t->written % HEAP_EVERY == 0))
        ls_heap_tell();
}

static void record_release(ls_thread *t, const void *address) {
    lf_record *r = ls_ring_next(t);
    *r = (lf_record){.start = ls_ticks(), .end = (uint64_t)(uintptr_t)address, .kind = LF_RELEASE};
    ls_ring_publish(t);
}

/* Whoever calls an allocator may rely on what it does to errno. */
void ls_allocation(const void *address, size_t bytes, unsigned by) {
    int error = errno;
    ls_thread *t = recorded_thread();
    if (t)
        record_allocation(t, address, bytes, by);
    errno = error;
}

void ls_release(const void *address) {
    int error = errno;
    ls_thread *t = recorded_thread();
    if (t)
        record_release(t, address);
    errno = error;
}

static int start(ls_redirections *imports, const void *inside, const char *folder, const char *why[2]) {
    if (ls_python_line_begin(folder))
        ls_mark("memory_lines\nthis Python does not say which line allocates", LF_MARK_PROBLEM, 0);
    if (!imports->used && ls_redirect_imports(imports, inside)) {
        why[0] = imports->why_not;
        why[1] = imports->which;
        return -1;
    }
    LS_STORE(imports->is_on, 1);
    return 0;
}

int ls_allocator_start(ls_redirections *imports, const void *inside, const char *folder, const char *why[2]) {
    ls_lock_beginning(); /* two threads that import */
    int code = start(imports, inside, folder, why);
    ls_unlock_beginning();
    return code;
}

void ls_allocator_stop(ls_redirections *imports) {
    ls_lock_beginning();
    LS_STORE(imports->is_on, 0);
    ls_redirect_back(imports);
    ls_unlock_beginning();
}
