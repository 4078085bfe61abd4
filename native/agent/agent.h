/* Inside the profiled program. Nothing here may print, raise, keep a descriptor, or touch what is
 * not ours; when in doubt a span is not recorded, and counted as lost. */
#ifndef LAYERSCOPE_AGENT_H
#define LAYERSCOPE_AGENT_H

#include "../layout.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Seen from outside, and never taken from there: another library of the program may have the agent in it too. */
#define LS_EXPORT __attribute__((visibility("protected")))
#define LS_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* What another thread may look at or change meanwhile: whole, but in no order; costs what a plain access does. */
#define LS_LOAD(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define LS_STORE(x, value) __atomic_store_n(&(x), value, __ATOMIC_RELAXED)

typedef struct ls_thread ls_thread;

/* What travels from the start callback of a span to its end callback: the context of the slot that the span
 * has in its thread. A framework may take it for an object of C++, whose first word is a vtable. */
typedef struct {
    _Alignas(64) void *const *vtable; /* one cache line */
    ls_thread *owner;
    uint64_t start, serial;
    uint32_t track, name, module, line, args; /* args: the name that is the text of its arguments, 0: none */
    uint16_t depth, around; /* of a module: how many are open around it; of others: what its end is to windows.c */
    uint8_t kind;
    uint32_t domain; /* of ranges: whose end is theirs (range_stack.c), 0: they end by their handle */
} ls_context;
_Static_assert(sizeof(ls_context) == 64, "context");

/* What the end of a span is to the steps (windows.c). */
enum { LS_IS_NO_STEP = 0, LS_IS_OPTIMIZER = 1, LS_IS_WAIT = 2, LS_IS_STEP = 3, LS_ENDS = 4 };

#define LS_CACHE 512u
typedef struct {
    const char *pointer; /* a hint only: allocators reuse addresses, so `copy` is compared */
    const char *copy;
    uint32_t id;
    uint16_t kind, length; /* of `copy` with its NUL */
} ls_cached_name;

/* Shapes of inputs that a thread has seen: the highest bits of their hash are the place, and the newest one stays. */
#define LS_SHAPES_BITS 12u
typedef struct {
    uint64_t hash;
    uint32_t id;
} ls_known_shapes;

/* A span of ITT or NVTX that is not recorded, but whose end is to come. */
#define LS_SKIPS 64u
typedef struct {
    uint32_t domain, depth; /* depth: how many are open around it */
} ls_skip;

/* What NVTX said besides a name the last time, and the text that is made of it, without a payload. */
typedef struct {
    uint32_t domain, category, names, color;
    int32_t color_type;
    uint32_t id;
    char json[LF_NAME_LIMIT]; /* lacks its last brace */
} ls_said;

/* Places in code, the innermost first, that a thread has come through: the last one is of the program's own code, at
 * `line`. As many as there are by the innermost place (python_line.c). */
#define LS_WAYS 16u
#define LS_WAY_FRAMES 8u
typedef struct {
    uint64_t codes[LS_WAY_FRAMES];
    uint32_t places[LS_WAY_FRAMES];
    uint64_t name, lines; /* of the last one's code */
    int32_t first_line;
    uint32_t count, line; /* count: of the places; 0: nothing is known */
} ls_way;

/* The private side of one thread. Recycled with its ring when the thread ends. */
struct ls_thread {
    uint64_t generation;
    lf_ring *ring;
    uint64_t written, consumed, elsewhere, serial, begun; /* begun: when the thread that has it now was first seen */
    uint32_t index, depth, track, announced; /* announced: the track whose LF_THREAD_BEGIN is written */
    uint32_t module, modules; /* the name of the innermost open module, and how many are open */
    uint32_t capacity;        /* records that the ring holds */
    uint32_t line;            /* the Python line that is about to open a range, 0: not known */
    int out_of_order;         /* a module has ended before one inside it: a coroutine library switches stacks */
    uint32_t over;            /* the thread has ended, and spans of it are open */
    void *learning;           /* the line that Python is asked about for this thread (lines.c) */
    const void *module_object;
    uint64_t failed_since;    /* when the operator began that has just ended by an exception */
    uint32_t failed, raised_as; /* its name, 0: none; the exception that ends a call of a module, 0: none does */
    uint32_t calls;                             /* of modules that are open, while windows are looked for (windows.c) */
    uint32_t worked, raised, noted;             /* an operator ran; a range ends by an exception; optimizer instance */
    uint32_t steps_open, step_in, loaders_open; /* step_in: the rule by which a step of the window is open */
    uint32_t optimizers_open, optimizer_names[4];
    uint64_t submitted; /* when what runs here was submitted on another thread, 0: it was not */
    uint32_t submitted_line; /* and the Python line that did so, 0: not known */
    uint32_t submitted_track; /* and the track that did so */
    uint32_t submitted_in;   /* and whether a window was open then: LS_IN_WINDOW, LS_OUTSIDE, 0: none was asked for */
    uint32_t api_depth; /* calls of a framework's C interface that are open */
    const char *custom;      /* the operator written in Python whose code runs here, NULL: none does */
    const void *custom_self; /* and its object */
    uint32_t backward_depth; /* how many of them were when a backward pass began in one, 0: none does */
    uint32_t invoke_depth;   /* the same of a call that executes operators */
    int line_is_step; /* `line` is what --step-mark names */
    ls_known_shapes *shapes; /* made when the first ones come */
    char *arguments;         /* of spans that are open, LF_NAME_LIMIT bytes each; made when the first ones come */
    ls_said said;
    uint32_t skips;
    ls_skip skipped[LS_SKIPS];
    uint64_t task_ids[LF_OPEN_SLOTS]; /* per open task: what its program calls it, 0: nothing */
    ls_thread *next;
    uint32_t optimizers[LF_OPEN_SLOTS]; /* per open optimizer step: its instance */
    ls_way ways[LS_WAYS];
    ls_cached_name cache[LS_CACHE];
    ls_context contexts[LF_OPEN_SLOTS];
    ls_context silent[LS_ENDS]; /* without owner: for spans that are not recorded, but whose end is to be seen */
};

/* One page of private memory that a forked child finds zeroed (MADV_WIPEONFORK): the child's
 * generation differs from every thread's, and its lock is free whoever held it in the parent. */
typedef struct {
    uint64_t generation;
    _Atomic uint32_t lock;
    _Atomic uint32_t names_lock;
    _Atomic uint32_t shapes; /* different ones so far */
    _Atomic uint32_t windows_lock;
    _Atomic uint32_t labels_lock;
    _Atomic uint32_t async_lock;
    _Atomic uint32_t libraries_lock;
    _Atomic uint64_t start; /* of the process, CLOCK_MONOTONIC ns */
} ls_wiped;

/* What every span looks at: one cache line. The offsets are copies of what the session writes into the
 * process page, taken anew now and then. */
typedef struct {
    _Alignas(64) ls_wiped *wiped;
    lf_page *page;
    int32_t use_tsc, sequence_offset, forward_thread_offset;
    uint32_t heard;       /* what the drainer last said of the window */
    const uint32_t *said; /* what it says now: in the process page; `heard` itself where no window was asked for */
    uint32_t watching;    /* a window was asked for: what begins and ends steps is looked at */
    uint32_t attention;   /* operators have to ask whether they are recorded */
} ls_globals;

extern ls_globals ls;
extern int ls_keep_to_itself;
/* Who takes what would be sent, in a program that records itself (native/interface); NULL: it is sent. */
extern int (*ls_taker)(const lf_message *message, void *memory, size_t bytes);
/* One pointer: more initial-exec TLS cannot be loaded after a large framework. */
extern __thread ls_thread *ls_this_thread __attribute__((tls_model("initial-exec")));

static inline uint64_t ls_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t ls_ticks(void) { return ls.use_tsc ? __builtin_ia32_rdtsc() : ls_monotonic_ns(); }

static inline int ls_thread_is_current(const ls_thread *t) {
    return t && LS_LOAD(t->generation) == LS_LOAD(ls.wiped->generation);
}

/* rings.c */
ls_thread *ls_thread_enter(void); /* this thread's state, made if needed; NULL: do not record */
void ls_thread_recycle(ls_thread *t);
void *ls_wiped_memory(size_t bytes);
void ls_lock(_Atomic uint32_t *lock);
void ls_unlock(_Atomic uint32_t *lock);
int ls_try_to_lock_beginning(void);
void ls_lock_beginning(void);
void ls_unlock_beginning(void);
int ls_rank(int32_t *rank, int32_t *world_size);
void ls_note_role(const char *role);
void *ls_new_shared(const char *name, size_t bytes, lf_message message, void (*fill)(void *memory, size_t bytes));
uint64_t ls_process_start(void);
void ls_ring_account(ls_thread *t);
void ls_ring_lose(ls_thread *t, int too_deep);
uint32_t ls_new_track(void);
extern uint64_t (*ls_framework_thread_id)(void);

/* What others do where this process, or one forked from it, begins to record, and where a thread begins and ends. */
typedef struct {
    void (*process_begins)(int is_forked);
    void (*thread_begins)(void);
    void (*thread_ends)(ls_thread *t);
} ls_occasions;
int ls_rings_prepare(const char *name, const char *library_path, int use_tsc, const ls_occasions *told);

/* yama.c: who listens at the other end of a socket may read this process, until nobody may. */
void ls_yama_allow(int connection);
void ls_yama_forbid(void);

/* The most that a span takes. All that may be lost asks for so much, so that there is still room for what may not:
 * where windows open and close, problems. */
#define LS_ANY_SPAN 6u

/* Room for `records`, and for the LF_LOST and LF_THREAD_BEGIN that may have to go before them. */
static inline int ls_ring_has_room(ls_thread *t, uint32_t records) {
    if (t->written - t->consumed + records + 2 <= t->capacity)
        return 1;
    t->consumed = __atomic_load_n(&t->ring->h.consumed, __ATOMIC_ACQUIRE);
    return t->written - t->consumed + records + 2 <= t->capacity;
}

static inline lf_record *ls_ring_advance(ls_thread *t) {
    lf_record *r = &t->ring->records[t->index];
    t->written++;
    t->index = t->index + 1 == t->capacity ? 0 : t->index + 1;
    return r;
}

/* The next free record, behind an account of what has to be said before it. */
static inline lf_record *ls_ring_next(ls_thread *t) {
    const lf_ring_header *h = &t->ring->h;
    if (LS_UNLIKELY(h->lost_full | h->lost_deep | (t->announced ^ t->track)))
        ls_ring_account(t);
    return ls_ring_advance(t);
}

static inline void ls_ring_publish(ls_thread *t) {
    __atomic_store_n(&t->ring->h.published, t->written, __ATOMIC_RELEASE);
}

/* prepare.c */
LS_EXPORT int ls_prepare(const char *name, const char *library_path, int use_tsc);

/* rings.c */

/* clock.c */
LS_EXPORT void ls_clock_reading(int64_t out[4]);

/* This thread's state, or NULL: do not record. */
static inline ls_thread *ls_thread_here(void) {
    ls_thread *t = ls_this_thread;
    return LS_UNLIKELY(!ls_thread_is_current(t)) ? ls_thread_enter() : t;
}

/* names.c */
void ls_name_find(const char *text, ls_cached_name *into);
int ls_name_known(const char *text, ls_cached_name *into);
void ls_name_find_arguments(const char *text, ls_cached_name *into);
const char *ls_name_text(uint32_t id);
/* Called with each name that is met for the first time; NULL: nobody wants to know. */
extern void (*ls_name_learned)(const char *text);
uint32_t ls_name_kind(const char *text);
int ls_name_is_step(const char *text);
int ls_name_only_allocates(uint32_t id);
void ls_names_begin(void);

/* marks.c */
LS_EXPORT void ls_mark(const char *text, uint32_t what, int32_t scope);
ls_thread *ls_range_watched(const char *text, uint16_t *around);
LS_EXPORT int ls_range_begin(const char *text, int kind, uint64_t handle[2]);
LS_EXPORT int ls_range_end(const uint64_t handle[2]);
int ls_range_was_moment(const uint64_t handle[2]);
LS_EXPORT void ls_counter(const char *text, int64_t value);

/* arguments.c */
size_t ls_real_text(char *into, size_t bytes, int digits, double number);

/* moments.c */
void ls_moment(uint8_t kind, const char *text, uint64_t value, uint32_t what, int32_t scope);
void ls_thread_name(int32_t tid, const char *name);

/* announcers.c */
enum { LS_ATTEND_NONE = 0, LS_ATTEND_SOME = 1, LS_ATTEND_ALL = 2 };
void ls_operators_attend(int which);
void ls_operators_fork(void);
void ls_operators_forked(int which);

/* Number of the backward pass that this thread is in, -1: none. NULL: not known. */
extern int (*ls_framework_backward)(void);

/* sampling.c */
LS_EXPORT int ls_sampling_start(int hz, int uses_timers);
LS_EXPORT void ls_sampling_stop(void);
void ls_sampling_thread_begins(void);

/* windows.c: only where `ls.watching` */
enum { LS_CALLS_UNSEEN = 0, LS_CALLS_RECORDED = 1, LS_CALLS_COUNTED = 2 };
enum { LS_IN_WINDOW = 1, LS_OUTSIDE = 2 };
int ls_window_is_open(void);
int ls_window_records(const ls_thread *t);
void ls_window_listens(void);
int ls_window_admits(const char *text, uint32_t kind, void **result);
void ls_window_ended(ls_thread *t, int what);
void ls_window_ended_silently(const ls_context *c);
void ls_window_marked(void);
int ls_window_is_mark(const char *text);
int ls_window_is_line(const char *text);
void ls_window_step_begins(void);
void ls_window_worked(void);
int ls_window_sees_calls(void);
int ls_window_call_begins(ls_thread *t, uint32_t name, const char *text);
void ls_window_call_ended(ls_thread *t, int is_step);
int64_t ls_window_request_begins(int *is_in);
void ls_window_request_ended(int64_t number, int is_in);
int ls_window_only_counts(void);
void ls_windows_begin(int forked);

#endif
