/* Inside the profiled program. Nothing here may print, raise, keep a descriptor, or touch what is
 * not ours; when in doubt a span is not recorded, and counted as lost. */
#ifndef LAYERSCOPE_AGENT_H
#define LAYERSCOPE_AGENT_H

#include "../layout.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <x86intrin.h>

#define LS_EXPORT __attribute__((visibility("default")))
#define LS_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* What another thread may look at or change meanwhile: whole, but in no order; costs what a plain access does. */
#define LS_LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define LS_STORE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELAXED)

typedef struct ls_thread ls_thread;

/* What travels from the start callback of a span to its end callback: the context of the slot that the span
 * has in its thread. To torch it is an at::ObserverContext, an object whose first word is a vtable. */
typedef struct {
    _Alignas(64) void *const *vtable; /* one cache line */
    ls_thread *owner;
    uint64_t start, serial;
    uint32_t track, name, module, line;
    uint16_t depth, around; /* around: modules that are open around a module */
    uint8_t kind;
} ls_context;

extern void *const ls_context_vtable[4];

#define LS_CACHE 512u
typedef struct {
    const char *pointer; /* a hint only: allocators reuse addresses, so `copy` is compared */
    const char *copy;
    uint32_t id;
    uint16_t kind, length; /* of `copy` with its NUL */
} ls_cached_name;

/* The private side of one thread. Recycled with its ring when the thread ends. */
struct ls_thread {
    uint64_t generation;
    ls_ring *ring;
    uint64_t written, consumed, elsewhere, serial, begun; /* begun: when the thread that has it now was first seen */
    uint32_t index, depth, track, announced; /* announced: the track whose LS_THREAD_BEGIN is written */
    uint32_t module, modules; /* the name of the innermost open module, and how many are open */
    uint32_t line;            /* the Python line that is about to open a range, 0: not known */
    int out_of_order;         /* a module has ended before one inside it: a coroutine library switches stacks */
    uint32_t over;            /* the thread has ended, and spans of it are open */
    void *learning;           /* the line that Python is asked about for this thread (lines.c) */
    const void *module_object;
    ls_thread *next;
    uint32_t optimizers[LS_OPEN_SLOTS]; /* per open optimizer step: its instance */
    ls_cached_name cache[LS_CACHE];
    ls_context contexts[LS_OPEN_SLOTS];
};

/* One page of private memory that a forked child finds zeroed (MADV_WIPEONFORK): the child's
 * generation differs from every thread's, and its lock is free whoever held it in the parent. */
typedef struct {
    uint64_t generation;
    _Atomic uint32_t lock;
    _Atomic uint32_t names_lock;
} ls_wiped;

/* What every span looks at: one cache line. The offsets are copies of what the session writes into the
 * process page, taken anew now and then. */
typedef struct {
    _Alignas(64) ls_wiped *wiped;
    ls_page *page;
    int32_t use_tsc, sequence_offset, forward_thread_offset;
} ls_globals;

extern ls_globals ls;
extern int ls_keep_to_itself;
/* One pointer: more initial-exec TLS cannot be loaded after torch. */
extern __thread ls_thread *ls_this_thread __attribute__((tls_model("initial-exec")));

static inline uint64_t ls_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t ls_ticks(void) { return ls.use_tsc ? __rdtsc() : ls_monotonic_ns(); }

static inline int ls_thread_is_current(const ls_thread *t) {
    return t && LS_LOAD(t->generation) == LS_LOAD(ls.wiped->generation);
}

/* spool.c */
ls_thread *ls_thread_enter(void); /* this thread's state, made if needed; NULL: do not record */
void ls_thread_recycle(ls_thread *t);
void ls_lock(_Atomic uint32_t *lock);
void ls_unlock(_Atomic uint32_t *lock);
void ls_lock_beginning(void);
void ls_unlock_beginning(void);
void *ls_new_shared(const char *name, size_t bytes, ls_message message, void (*fill)(void *memory, size_t bytes));
void ls_ring_account(ls_thread *t);
void ls_ring_lose(ls_thread *t, int too_deep);
extern uint64_t (*ls_framework_thread_id)(void);

/* Room for `records`, and for the LS_LOST and LS_THREAD_BEGIN that may have to go before them. */
static inline int ls_ring_has_room(ls_thread *t, uint32_t records) {
    if (t->written - t->consumed + records + 2 <= LS_RING_RECORDS)
        return 1;
    t->consumed = __atomic_load_n(&t->ring->h.consumed, __ATOMIC_ACQUIRE);
    return t->written - t->consumed + records + 2 <= LS_RING_RECORDS;
}

static inline ls_record *ls_ring_advance(ls_thread *t) {
    ls_record *r = &t->ring->records[t->index];
    t->written++;
    t->index = t->index + 1 == LS_RING_RECORDS ? 0 : t->index + 1;
    return r;
}

/* The next free record, behind an account of what has to be said before it. */
static inline ls_record *ls_ring_next(ls_thread *t) {
    const ls_ring_header *h = &t->ring->h;
    if (LS_UNLIKELY(h->lost_full | h->lost_deep | (t->announced ^ t->track)))
        ls_ring_account(t);
    return ls_ring_advance(t);
}

static inline void ls_ring_publish(ls_thread *t) {
    __atomic_store_n(&t->ring->h.published, t->written, __ATOMIC_RELEASE);
}

LS_EXPORT int ls_prepare(const char *name, const char *library_path, int use_tsc);
LS_EXPORT int ls_operators_start(void);

/* This thread's state, or NULL: do not record. */
static inline ls_thread *ls_thread_here(void) {
    ls_thread *t = ls_this_thread;
    return LS_UNLIKELY(!ls_thread_is_current(t)) ? ls_thread_enter() : t;
}

/* names.c */
void ls_name_find(const char *text, ls_cached_name *into);
void ls_names_begin(void);

#endif
