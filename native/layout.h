/* What the agent writes and our own processes read: the record, the ring, the process page, the
 * names segment and the message that hands a memfd over. Little endian, x86-64.
 * `layerscope/rawfile/layout.py` is made of this file by native_layout.py. */
#ifndef LAYERSCOPE_LAYOUT_H
#define LAYERSCOPE_LAYOUT_H

#include <stdint.h>

#define LF_LAYOUT_VERSION 7u
#define LF_RING_MAGIC 0x4752534cu    /* "LSRG" */
#define LF_PAGE_MAGIC 0x4750534cu    /* "LSPG" */
#define LF_NAMES_MAGIC 0x4d4e534cu   /* "LSNM" */
#define LF_MESSAGE_MAGIC 0x4d53534cu /* "LSSM" */

/* The kinds of spans: number, kind and layer as the tables have them. They are declared at the head of each raw file.
 * Of a submission, and of the operator that was submitted, the record's `seq` is the number that both have. Of a
 * module it is how many modules were open around it; LF_EXTRA_ARGS of a primitive is what the
 * library says of it. */
#define LF_SPAN_KINDS(KIND)                    \
    KIND(FUNCTION, 0, "function", "operators")   \
    KIND(BACKWARD, 1, "backward", "operators")   \
    KIND(RANGE, 2, "range", "operators")         \
    KIND(OPTIMIZER, 3, "optimizer", "operators") \
    KIND(LOADER, 4, "loader", "operators")       \
    KIND(MODULE, 5, "module", "modules")         \
    KIND(TASK, 6, "task", "ranges")              \
    KIND(FRAME, 7, "frame", "ranges")            \
    KIND(EVENT, 8, "event", "ranges")            \
    KIND(CALL, 9, "call", "api")                 \
    KIND(SUBMIT, 10, "submit", "api")            \
    KIND(EXECUTE, 11, "execute", "primitives")   \
    KIND(CREATE, 12, "create", "primitives")
#define LF_KIND_NUMBER(name, number, kind, layer) LF_##name = number,
enum { LF_SPAN_KINDS(LF_KIND_NUMBER) };
/* The kinds below are spans. */
enum { LF_FIRST_SPECIAL = 248 };
/* What is no span: memory, moments, and records about the ring itself. */
enum {
    LF_ALLOCATION = 248,   /* start: when, end: the address, and in its highest 16 bits those of the size, whose lowest 32
                              are `seq`; name: the innermost operator that is no allocator itself; module; `depth` and
                              the lowest 4 bits of `flags`: name of the Python line; above those one of LF_PHASE_, and
                              in the highest bit whether NumPy allocated it */
    LF_RELEASE = 249,      /* start: when, end: the address */
    LF_COUNTER = 250,      /* start: when, end: its value as int64, name */
    LF_MARK = 251,         /* start: when, name, module: one of the LF_MARK_ values, seq: scope */
    LF_THREAD_BEGIN = 252, /* start: when, end: tid, seq: RecordFunction's thread id, or LF_OF_REQUESTS, module: track */
    LF_THREAD_END = 253,   /* start: when */
    LF_LOST = 254,         /* start, end: first and last lost, name: how many because the ring was full,
                              module: how many because they were too deep */
    LF_EXTRA = 255,        /* more about the record before it; name: one of the LF_EXTRA_ values */
};
enum {
    LF_EXTRA_FORWARD_THREAD = 1, /* start: RecordFunction thread id of the forward operator */
    LF_EXTRA_ELSEWHERE = 2,      /* start: track that opened the span, end: its serial there */
    LF_EXTRA_OPTIMIZER = 3,      /* start: number of the optimizer instance */
    LF_EXTRA_LINE = 4,           /* start: name of the Python line that opened the range */
    LF_EXTRA_SUBMITTED = 6,      /* start: when the operator was submitted that is executed here, end: on which track,
                                    module: name of the Python line that did so; of an outermost module its own start,
                                    and the track of the request that it answers */
    LF_EXTRA_ARGS = 5,           /* start: name that is the JSON text of its arguments; of primitives as it was told */
};
/* As `seq` of LF_THREAD_BEGIN: what follows is on a track of requests, not of a thread. */
enum { LF_OF_REQUESTS = -2 };
enum { LF_MARK_MARKER = 0, LF_MARK_STEP = 1, LF_MARK_PAUSED = 2, LF_MARK_RESUMED = 3, LF_MARK_PROBLEM = 4,
       LF_MARK_OPENED = 5, LF_MARK_CLOSED = 6, LF_MARK_NAMED = 7 /* seq: a thread's tid, and this is its name */,
       LF_MARK_BEGINS = 8, LF_MARK_ENDS = 9 /* a step where steps are only counted: `seq` and `end` as of OPENED */,
       LF_MARK_SETTING = 11 /* the program set this itself: the setting, a new line, what it is one of */,
       LF_MARK_RAISED = 10 /* an outermost call of a module ended here by this exception; end: name of the operator that
                              raised it, 0: none did */ };
/* The rules of steps (analyse/rules) from the weakest on; NAMED: what --step-mark names. LF_MARK_OPENED has in `seq`
 * the step that begins there, LF_MARK_CLOSED the first one that is not in the window, -1: none, and both in `end` one
 * of these, the LF_WINDOW_BY_TIME and LF_WINDOW_WAS_CLOSED bits, and the optimizer's instance << LF_WINDOW_INSTANCE,
 * of requests how often another module began them by then. */
enum { LF_RULE_NONE = 0, LF_RULE_REQUEST = 1, LF_RULE_SERVED = 2, LF_RULE_LOADER = 3, LF_RULE_OPTIMIZER = 4,
       LF_RULE_MARK = 5, LF_RULE_NAMED = 6, LF_RULES = 7 };
enum { LF_WINDOW_BY_TIME = 64, LF_WINDOW_WAS_CLOSED = 128, LF_WINDOW_INSTANCE = 8 };
/* What the drainer tells a process of the capture window. */
enum { LF_CAPTURE_NOTHING = 0, LF_CAPTURE_CLOSED = 1, LF_CAPTURE_OPEN = 2, LF_CAPTURE_OVER = 3 };
/* What an allocation is part of, by what is open on its thread; as PHASES of model/layers.py. */
enum { LF_PHASE_LOADING = 0, LF_PHASE_FORWARD = 1, LF_PHASE_BACKWARD = 2, LF_PHASE_OPTIMIZER = 3, LF_PHASE_OTHER = 4 };
enum { LF_PHASE_SHIFT = 4, LF_LINE_BITS_IN_FLAGS = 15, LF_ADDRESS_BITS = 48, LF_BY_NUMPY = 128 };
enum { LF_FLAG_ASYNC = 1, LF_FLAG_ELSEWHERE = 2, LF_FLAG_EXTRA = 4 };

typedef struct {
    uint64_t start, end; /* ticks: TSC or CLOCK_MONOTONIC ns, as the process page says */
    uint32_t name;
    int32_t seq; /* autograd sequence number, -1: none */
    uint32_t module; /* name of the innermost open module when it started, 0: none */
    uint16_t depth;
    uint8_t kind, flags;
} lf_record;

/* One open span. `state` is serial << 1 | closed: whoever ends the span on another thread sets the
 * low bit by compare-and-swap, so it can never hit a later tenant of the slot. */
typedef struct {
    uint64_t start;
    uint64_t state;
    uint32_t name;
    uint32_t kind; /* with LF_HAS_ORIGIN: what else its record will say has a place of its own */
} lf_open;

/* What the record of an open span will say of where it comes from: when and on which track it was submitted, its
 * module, line and `seq`. Of the outermost spans of a thread only. */
typedef struct {
    uint64_t submitted;
    uint32_t module, line, track;
    int32_t seq;
} lf_origin;

#define LF_OPEN_SLOTS 512u
#define LF_ORIGINS 128u
enum { LF_HAS_ORIGIN = 256 };
#define LF_RING_BYTES (3u << 20)
#define LF_RING_HEADER 16384u
#define LF_RECORD_BYTES 32u
#define LF_RING_RECORDS ((LF_RING_BYTES - LF_RING_HEADER) / LF_RECORD_BYTES)
/* The rings of a process beyond so many are small: of thousands of threads only a few are busy at a time. */
#define LF_LARGE_RINGS 64u
#define LF_SMALL_RING_BYTES (256u << 10)

typedef struct {
    uint32_t magic, version, capacity, index;
    int32_t pid, tid;
    uint64_t process_start; /* CLOCK_MONOTONIC ns, the process page has the same */
    uint8_t pad0[32];
    /* The cache line of the thread that owns the ring. */
    uint64_t published;            /* records ever written */
    uint64_t lost_full, lost_deep; /* since the last LF_LOST record */
    uint64_t lost_first, lost_last;
    uint64_t elsewhere; /* spans of this ring that other threads ended */
    uint32_t depth;     /* open slots in use */
    uint32_t track;     /* of the thread that has the ring now; 0: none */
    uint8_t pad1[8];
    uint64_t consumed; /* records ever taken by the drainer; its own cache line */
    uint32_t closed;   /* the drainer takes no more */
    uint8_t pad2[52];
    uint8_t pad3[320];
    lf_open open[LF_OPEN_SLOTS];
    lf_origin origins[LF_ORIGINS];
} lf_ring_header;

typedef struct {
    lf_ring_header h;
    uint8_t pad[LF_RING_HEADER - sizeof(lf_ring_header)];
    lf_record records[LF_RING_RECORDS];
} lf_ring;

enum { LF_PROBE_PENDING = 0, LF_PROBE_GOOD = 1, LF_PROBE_REFUSED = 2 };

/* Whether the framework's switch of oneDNN was on when an operator of this sort was first called. */
enum { LF_ONEDNN_CONVOLUTION_ON = 1, LF_ONEDNN_CONVOLUTION_OFF = 2, LF_ONEDNN_PRODUCT_ON = 4,
       LF_ONEDNN_PRODUCT_OFF = 8 };

#define LF_PAGE_BYTES 16384u
typedef struct {
    uint32_t magic, version;
    int32_t pid, ppid;
    uint64_t process_start;
    uint32_t clock_is_tsc;
    /* Written by the session once the probe has answered; offsets -1: not known. */
    int32_t probe, sequence_offset, forward_thread_offset;
    uint64_t lost_without_ring, lost_names;
    uint64_t lost_without_ring_first, lost_without_ring_last; /* ticks */
    uint64_t agent_cpu_ns;  /* what starting cost inside the program */
    uint32_t rings, callbacks;
    int32_t rank, world_size; /* in a distributed job, -1: not known */
    uint32_t window;         /* written by the drainer: one of the LF_CAPTURE_ values */
    uint32_t window_rule;    /* by which the process counts its steps */
    uint32_t window_is_open;
    uint32_t onednn;           /* LF_ONEDNN_ bits; written once its cap is */
    uint64_t window_opened_ns; /* CLOCK_MONOTONIC; 0: its first step has not come */
    char onednn_cap[32];       /* what ONEDNN_MAX_CPU_ISA is set to in the process, "": nothing */
    uint64_t window_steps;     /* how many have begun, where a window is asked for */
    char role[32];             /* in a distributed job, of a process that is no rank: "server"; "": none */
    uint64_t open_requests;    /* that are under way */
    uint8_t pad[4096 - 200];
    char library[4096]; /* of the framework */
    char command_line[8192];
} lf_page;

#define LF_NAMES_HEADER 64u
#define LF_NAME_LIMIT 1024u
#define LF_NAMES_MOST (1u << 20)
typedef struct {
    uint32_t magic, version, segment, capacity; /* bytes after the header */
    uint64_t used;                              /* published bytes after the header */
    uint64_t process_start;
    uint8_t pad[LF_NAMES_HEADER - 32];
} lf_names_header; /* then entries: u32 id, u32 length, bytes, padded to 8. The name of a module is its path and
                      class in two lines, and in a third the file:line of its first call; the name of a task,
                      frame, event, counter or mark may have its domain in a second line. */

enum {
    LF_SEND_PROCESS = 1,
    LF_SEND_RING = 2,
    LF_SEND_NAMES = 3,
    LF_SEND_SAMPLES = 4, /* samples.h */
    LF_SEND_END = 5,
    LF_SEND_RATE = 6, /* without memory, to the sampler: `index` is the rate of samples from now on, in Hz */
    LF_SEND_USED = 7, /* without memory, by the sampler: CPU time of the program in ns is `process_start`, that of its
                         handlers in ms `index` */
};
typedef struct {
    uint32_t magic, type;
    int32_t pid;
    uint32_t index;
    uint64_t process_start;
} lf_message; /* carries one memfd by SCM_RIGHTS */

_Static_assert(sizeof(lf_record) == LF_RECORD_BYTES, "record");
_Static_assert(sizeof(lf_open) == 24, "open slot");
_Static_assert(sizeof(lf_origin) == 24, "origin");
_Static_assert(sizeof(lf_ring_header) == 512 + LF_OPEN_SLOTS * sizeof(lf_open) + LF_ORIGINS * sizeof(lf_origin),
               "ring header");
_Static_assert(sizeof(lf_ring_header) <= LF_RING_HEADER, "ring header");
_Static_assert(sizeof(lf_ring) <= LF_RING_BYTES, "ring");
_Static_assert(sizeof(lf_page) == LF_PAGE_BYTES, "page");
_Static_assert(sizeof(lf_names_header) == LF_NAMES_HEADER, "names header");

#endif
