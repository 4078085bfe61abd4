/* What the agent writes and our own processes read: the record, the ring, the process page, the
 * names segment and the message that hands a memfd over. Little endian, x86-64.
 * `layerscope/rawfile/layout.py` is made of this file by native_layout.py. */
#ifndef LAYERSCOPE_LAYOUT_H
#define LAYERSCOPE_LAYOUT_H

#include <stdint.h>

#define LS_LAYOUT_VERSION 5u
#define LS_RING_MAGIC 0x4752534cu    /* "LSRG" */
#define LS_PAGE_MAGIC 0x4750534cu    /* "LSPG" */
#define LS_NAMES_MAGIC 0x4d4e534cu   /* "LSNM" */
#define LS_MESSAGE_MAGIC 0x4d53534cu /* "LSSM" */

/* The kinds of spans: number, kind and layer as the tables have them. They are declared at the head of each raw file.
 * Of a module the record's `seq` is how many modules were open around it; LS_EXTRA_ARGS of a primitive is what the
 * library says of it. */
#define LS_SPAN_KINDS(KIND)                    \
    KIND(FUNCTION, 0, "function", "operators")   \
    KIND(BACKWARD, 1, "backward", "operators")   \
    KIND(RANGE, 2, "range", "operators")         \
    KIND(OPTIMIZER, 3, "optimizer", "operators") \
    KIND(LOADER, 4, "loader", "operators")       \
    KIND(MODULE, 5, "module", "modules")         \
    KIND(TASK, 6, "task", "ranges")              \
    KIND(FRAME, 7, "frame", "ranges")            \
    KIND(EVENT, 8, "event", "ranges")            \
    KIND(EXECUTE, 9, "execute", "primitives")    \
    KIND(CREATE, 10, "create", "primitives")
#define LS_KIND_NUMBER(name, number, kind, layer) LS_##name = number,
enum { LS_SPAN_KINDS(LS_KIND_NUMBER) };
/* What is no span: moments, and records about the ring itself. */
enum {
    LS_COUNTER = 250,      /* start: when, end: its value as int64, name */
    LS_MARK = 251,         /* start: when, name, module: one of the LS_MARK_ values, seq: scope */
    LS_THREAD_BEGIN = 252, /* start: when, end: tid, seq: RecordFunction's thread id, module: track */
    LS_THREAD_END = 253,   /* start: when */
    LS_LOST = 254,         /* start, end: first and last lost, name: how many because the ring was full,
                              module: how many because they were too deep */
    LS_EXTRA = 255,        /* more about the record before it; name: one of the LS_EXTRA_ values */
};
enum {
    LS_EXTRA_FORWARD_THREAD = 1, /* start: RecordFunction thread id of the forward operator */
    LS_EXTRA_ELSEWHERE = 2,      /* start: track that opened the span, end: its serial there */
    LS_EXTRA_OPTIMIZER = 3,      /* start: number of the optimizer instance */
    LS_EXTRA_LINE = 4,           /* start: name of the Python line that opened the range */
    LS_EXTRA_ARGS = 5,           /* start: name that is the JSON text of its arguments; of primitives as it was told */
};
enum { LS_MARK_MARKER = 0, LS_MARK_STEP = 1, LS_MARK_PAUSED = 2, LS_MARK_RESUMED = 3, LS_MARK_PROBLEM = 4,
       LS_MARK_OPENED = 5, LS_MARK_CLOSED = 6, LS_MARK_NAMED = 7 /* seq: a thread's tid, and this is its name */,
       LS_MARK_BEGINS = 8, LS_MARK_ENDS = 9 /* a step where steps are only counted: `seq` and `end` as of OPENED */,
       LS_MARK_RAISED = 10 /* an outermost call of a module ended here by this exception; end: name of the operator that
                              raised it, 0: none did */ };
/* The rules of steps (analyse/rules) from the weakest on; NAMED: what --step-mark names. LS_MARK_OPENED has in `seq`
 * the step that begins there, LS_MARK_CLOSED the first one that is not in the window, -1: none, and both in `end` one
 * of these, the LS_WINDOW_BY_TIME and LS_WINDOW_WAS_CLOSED bits, and the optimizer's instance << LS_WINDOW_INSTANCE,
 * of requests how often another module began them by then. */
enum { LS_RULE_NONE = 0, LS_RULE_REQUEST = 1, LS_RULE_LOADER = 2, LS_RULE_OPTIMIZER = 3, LS_RULE_MARK = 4,
       LS_RULE_NAMED = 5, LS_RULES = 6 };
enum { LS_WINDOW_BY_TIME = 64, LS_WINDOW_WAS_CLOSED = 128, LS_WINDOW_INSTANCE = 8 };
/* What the drainer tells a process of the capture window. */
enum { LS_CAPTURE_NOTHING = 0, LS_CAPTURE_CLOSED = 1, LS_CAPTURE_OPEN = 2, LS_CAPTURE_OVER = 3 };
enum { LS_FLAG_ASYNC = 1, LS_FLAG_ELSEWHERE = 2, LS_FLAG_EXTRA = 4 };

typedef struct {
    uint64_t start, end; /* ticks: TSC or CLOCK_MONOTONIC ns, as the process page says */
    uint32_t name;
    int32_t seq; /* autograd sequence number, -1: none */
    uint32_t module; /* name of the innermost open module when it started, 0: none */
    uint16_t depth;
    uint8_t kind, flags;
} ls_record;

/* One open span. `state` is serial << 1 | closed: whoever ends the span on another thread sets the
 * low bit by compare-and-swap, so it can never hit a later tenant of the slot. */
typedef struct {
    uint64_t start;
    uint64_t state;
    uint32_t name;
    uint32_t kind;
} ls_open;

#define LS_OPEN_SLOTS 512u
#define LS_RING_BYTES (3u << 20)
#define LS_RING_HEADER 16384u
#define LS_RECORD_BYTES 32u
#define LS_RING_RECORDS ((LS_RING_BYTES - LS_RING_HEADER) / LS_RECORD_BYTES)
/* The rings of a process beyond so many are small: of thousands of threads only a few are busy at a time. */
#define LS_LARGE_RINGS 64u
#define LS_SMALL_RING_BYTES (256u << 10)

typedef struct {
    uint32_t magic, version, capacity, index;
    int32_t pid, tid;
    uint64_t process_start; /* CLOCK_MONOTONIC ns, the process page has the same */
    uint8_t pad0[32];
    /* The cache line of the thread that owns the ring. */
    uint64_t published;            /* records ever written */
    uint64_t lost_full, lost_deep; /* since the last LS_LOST record */
    uint64_t lost_first, lost_last;
    uint64_t elsewhere; /* spans of this ring that other threads ended */
    uint32_t depth;     /* open slots in use */
    uint32_t track;     /* of the thread that has the ring now; 0: none */
    uint8_t pad1[8];
    uint64_t consumed; /* records ever taken by the drainer; its own cache line */
    uint32_t closed;   /* the drainer takes no more */
    uint8_t pad2[52];
    uint8_t pad3[320];
    ls_open open[LS_OPEN_SLOTS];
} ls_ring_header;

typedef struct {
    ls_ring_header h;
    uint8_t pad[LS_RING_HEADER - sizeof(ls_ring_header)];
    ls_record records[LS_RING_RECORDS];
} ls_ring;

enum { LS_PROBE_PENDING = 0, LS_PROBE_GOOD = 1, LS_PROBE_REFUSED = 2 };

/* Whether the framework's switch of oneDNN was on when an operator of this sort was first called. */
enum { LS_ONEDNN_CONVOLUTION_ON = 1, LS_ONEDNN_CONVOLUTION_OFF = 2, LS_ONEDNN_PRODUCT_ON = 4,
       LS_ONEDNN_PRODUCT_OFF = 8 };

#define LS_PAGE_BYTES 16384u
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
    uint32_t window;         /* written by the drainer: one of the LS_CAPTURE_ values */
    uint32_t window_rule;    /* by which the process counts its steps */
    uint32_t window_is_open;
    uint32_t onednn;           /* LS_ONEDNN_ bits; written once its cap is */
    uint64_t window_opened_ns; /* CLOCK_MONOTONIC; 0: its first step has not come */
    char onednn_cap[32];       /* what ONEDNN_MAX_CPU_ISA is set to in the process, "": nothing */
    uint64_t window_steps;     /* how many have begun, where a window is asked for */
    uint8_t pad[4096 - 160];
    char library[4096]; /* of the framework */
    char command_line[8192];
} ls_page;

#define LS_NAMES_HEADER 64u
#define LS_NAME_LIMIT 1024u
#define LS_NAMES_MOST (1u << 20)
typedef struct {
    uint32_t magic, version, segment, capacity; /* bytes after the header */
    uint64_t used;                              /* published bytes after the header */
    uint64_t process_start;
    uint8_t pad[LS_NAMES_HEADER - 32];
} ls_names_header; /* then entries: u32 id, u32 length, bytes, padded to 8. The name of a module is its path and
                      class in two lines, and in a third the file:line of its first call; the name of a task,
                      frame, event, counter or mark may have its domain in a second line. */

enum { LS_SEND_PROCESS = 1, LS_SEND_RING = 2, LS_SEND_NAMES = 3, LS_SEND_SAMPLES = 4 /* samples.h */, LS_SEND_END = 5 };
typedef struct {
    uint32_t magic, type;
    int32_t pid;
    uint32_t index;
    uint64_t process_start;
} ls_message; /* carries one memfd by SCM_RIGHTS */

_Static_assert(sizeof(ls_record) == LS_RECORD_BYTES, "record");
_Static_assert(sizeof(ls_open) == 24, "open slot");
_Static_assert(sizeof(ls_ring_header) == 512 + LS_OPEN_SLOTS * sizeof(ls_open), "ring header");
_Static_assert(sizeof(ls_ring) <= LS_RING_BYTES, "ring");
_Static_assert(sizeof(ls_page) == LS_PAGE_BYTES, "page");
_Static_assert(sizeof(ls_names_header) == LS_NAMES_HEADER, "names header");

#endif
