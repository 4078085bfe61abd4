/* What the files of the sampler share: the process beside the program that knows its threads, has them sampled, and
 * writes `raw/stacks` (format.h). One thread; times are CLOCK_MONOTONIC ns. */
#ifndef LAYERSCOPE_SAMPLER_H
#define LAYERSCOPE_SAMPLER_H

#include "../layout.h"
#include "../stacks/stacks.h"
#include "format.h"

#include <time.h>

/* How often areas and rings are emptied and waits looked at, and the file is written. */
#define SM_TICK_NS 10000000ull
/* A thread that has just begun is about to get a stack for signals. */
#define SM_SOON_NS 1000000ull
#define SM_WRITE_NS 250000000ull
#define SM_WRITE_SLOWER_MOST 5u /* that many times twice as long, as samples are thinned */
/* Accounts, pools of waits, quality and how far everything is written. A wait that is longer is told in parts. */
#define SM_KNOT_NS 1000000000ull
/* A record of an area that is not published for so long never will be: its thread is gone. */
#define SM_STUCK_NS 1000000000ull
#define SM_FRAMES_MOST 1024
#define SM_THREADS_MOST 200000u
#define SM_PROCESSES_MOST 50000u

typedef struct sm_process sm_process;
typedef struct sm_thread sm_thread;
typedef struct sm_area sm_area;
typedef struct sm_kernel_tick sm_kernel_tick;
typedef struct sm_made sm_made;

/* A frame of Python that a sample or a look has. */
typedef struct {
    uint32_t code; /* number in the file, LT_NONE: not known */
    uint32_t place;
} sm_python_frame;

/* What a look at a thread that waits has found. */
typedef struct {
    uint64_t at_ns; /* of the wait's beginning */
    uint32_t stack;
    int32_t system_call;
    uint32_t file, waker;
} sm_look;

/* Of the waits that a thread was not seen in, or only by chance: how many, how long, and those that were seen. */
#define SM_SEEN_MOST 16
typedef struct {
    uint64_t first_ns, sum_ns;
    uint32_t waits, seen;
    sm_look looks[SM_SEEN_MOST];
} sm_pool;

enum { SM_CPU = 0, SM_MINOR = 1, SM_MAJOR = 2, SM_EVENTS = 3 };
/* The event of a sample that the kernel copied, beside descriptors (>= 0) and timers (-1). */
#define SM_COPIED(event) (-2 - (event))
typedef struct {
    int fd, event;
    uint64_t id; /* the kernel's, in its records */
} sm_copy_event;

enum { SM_NOT_LOOKED = 0, SM_LOOKED = 1, SM_UNREADABLE = 2 };

struct sm_thread {
    sm_thread *by_tid;         /* next in its bucket, newest first */
    sm_thread *next, *previous; /* of its process */
    sm_process *process;
    uint32_t number;
    int32_t tid;
    uint64_t start_ns, end_ns;
    char name[16];
    int is_told;     /* the file has this row as it is */
    int since_birth; /* we were told when it began */
    uint64_t signalled_ns;  /* signalled.c: since when it may be sent the signal of samples, 0: it may not */
    uint32_t seen_puts;     /* how many threads were in the table of its process when it was looked for there */
    /* events.c */
    int events[SM_EVENTS]; /* descriptors, -1: none */
    uint64_t before_ns;    /* CPU time that an earlier program of the thread has used */
    uint64_t base_ns;      /* CPU time when the events began */
    uint64_t cpu_ns;       /* CPU time that samples stand for so far */
    uint64_t ran_ns;       /* on a CPU, as its switches say */
    uint64_t copied_ns;    /* CPU time that `ran_ns` leaves out */
    int is_counted;        /* these two are all of its CPU time, and none of its switches was lost since */
    uint64_t samples;
    sm_kernel_tick *ticks; /* kernel_time.c: in the kernel, since the last sample */
    uint32_t ticks_count;
    /* waits.c; 0: not */
    uint64_t out_ns, in_ns;
    uint64_t came_ns; /* when it last came onto a CPU, which was `cpu` */
    uint32_t cpu;
    uint64_t cpus; /* a bit for each one that it has been on, the 65th and later share them */
    uint64_t unclosed_ns, late_ns; /* came onto a CPU that it is not told to have left; told late of leaving one */
    int is_run_late;               /* that it came onto that one was told late, too */
    int is_preempted, looked;
    sm_look look;
    uint64_t woken_ns; /* wakings.c: when it was woken last, and by which thread */
    uint32_t waker;
    sm_pool shorts, preempted;
    int wait_fd;            /* of /proc/PID/task/TID/syscall, -1: not open */
    uint64_t no_python_ns;  /* when it had no state of Python */
    uint64_t dispatches;    /* how often it had come onto a CPU, where no switches are told */
    /* accounts.c */
    lt_account account;
    uint32_t accounts; /* how many there were */
    uint64_t switches, accounted; /* seen so far; when the account was made */
    uint64_t read_ns, read_at;    /* CPU time as it was read while it waited, and `switches` then */
    struct sm_held *held;         /* thinning.c */
    uint64_t lost_before;         /* samples of its process, when its last one came */
    uint64_t asked_ns;            /* copies.c: CPU time when it was asked for */
    int *copies;                  /* copies.c: descriptors of its own events, one for each CPU; NULL: none */
    uint32_t copies_count;
    int has_tried_copies;
    int64_t over_ns;              /* samples.c: CPU time that copies leave for the kernel */
    int has_base;                 /* what it had used before it was sampled is told */
};

struct sm_process {
    sm_process *by_pid, *next, *previous;
    uint32_t number;
    int32_t pid, ppid;
    uint64_t start_ns, end_ns;
    sm_thread *threads;
    uint32_t living; /* threads */
    int is_told;
    int is_followed, is_refusal_said;
    int is_a_fork;  /* it is seen to begin, and is still the program of its parent */
    int32_t forked_by; /* the thread of its parent */
    int is_sampled; /* it, or the process that forked it, has handed an area over */
    sm_area *area;  /* NULL: not yet, a forked child makes one at its first signal */
    uint32_t python;
    uint64_t python_eval, python_runtime;
    int is_foreign;   /* in another pid namespace: its numbers of threads are not ours */
    int uses_timers;
    int has_events; /* its threads get them */
    int is_signalled; /* as its area says */
    int has_handler; /* it had one for the signal of samples when it handed its area over */
    int is_left_alone; /* it has the signal for itself */
    int is_copied, has_tried_copies; /* copies.c */
    uint64_t asked_from_ns, next_ask_ns; /* since when something is not known of its threads, and when to ask */
    sm_copy_event *copy_events; /* in the order of their ids */
    uint32_t copies;
    lu_space *space;
    int is_stale;     /* something was mapped since */
    uint64_t refreshed_ns, refresh_cost_ns;
    sm_made *made;    /* jit_code.c, by address */
    uint32_t made_count, made_room;
    int has_inherited;
    uint32_t *codes;  /* numbers in the file of the codes that its handler named */
    uint32_t codes_room;
    struct sm_instructions *instructions; /* python_at.c: of code objects, by address */
    uint32_t instructions_count, instructions_room;
    uint64_t silent_s, silent_cpu_ns, silent_signals; /* accounts.c: CPU time and no signals */
};

typedef struct {
    uint32_t hz;
    uint64_t period_ns;
    uint64_t now_ns;      /* when this round began */
    uint64_t start_ns;
    int32_t main_pid;
    int has_switches;     /* waits are exact */
    int has_wakers;       /* of some, who ended them is known */
    int has_kernel;       /* what the kernel does is known */
    int is_over;
    lt_quality quality;
    uint64_t lost_records, dropped; /* of the kernel's rings; rows that did not fit on the disk */
    uint64_t switches;
    uint32_t threads, processes; /* numbers given */
    uint64_t look_budget_ns;
    uint32_t generation;  /* how many samplers of this recording were there before us */
    uint64_t began_ns;    /* when we began */
    uint64_t cut_stacks;  /* that had no room */
    uint64_t lost_copies; /* samples that did not fit into the rings of copies.c */
} sm_globals;
extern sm_globals sm;

static inline uint64_t sm_clock(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* --- output.c: the raw file --- */

int sm_output_open(const char *folder, uint64_t most_bytes);
void *sm_row(uint16_t kind, size_t bytes);                               /* NULL: no room now */
void *sm_text_row(uint16_t kind, size_t bytes, size_t rest_bytes);        /* a row and what follows it */
void sm_problem(const char *code, int32_t pid, const char *lost, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void sm_settings(void);
void sm_output_write(void);
void sm_output_close(void);
void sm_tell_poll(uint64_t until_ns);
void sm_tell_quality(const lt_quality *quality);
int sm_is_writing_due(void);
int sm_is_full(void);    /* too much waits for the disk: no more rows of definitions are taken */
int sm_may_define(void); /* the file may have more definitions */

/* --- thinning.c: how many samples are written --- */

void sm_thinning_begin(uint64_t most_bytes);
void sm_thinning_add(uint64_t bytes);
uint32_t sm_thinning_level(void);
void sm_thinning_knot(void);
void sm_tell(sm_thread *thread, const lt_sample *row);
void sm_tell_held(sm_thread *thread);
uint64_t sm_held_oldest(void);

/* --- intern.c: frames, stacks, codes; LT_NONE: there is no room for more --- */

uint32_t sm_frame(uint32_t kind, uint32_t of, uint64_t address, uint32_t flags);
uint32_t sm_stack(uint32_t parent, uint32_t frame); /* `parent` LT_NONE: the outermost */
typedef struct {
    const char *name, *file;
    const uint8_t *lines;
    uint32_t name_bytes, file_bytes, lines_bytes;
    int32_t first_line;
    uint32_t known_as; /* as lt_code has it */
} sm_code_text;
uint32_t sm_code(const sm_process *process, const sm_code_text *text);
/* A table from two numbers to one, for what is known by addresses. */
uint32_t *sm_known(uint64_t a, uint64_t b);

/* --- threads.c: who there is --- */

sm_process *sm_process_at(int32_t pid);
sm_process *sm_process_begin(int32_t pid, int32_t ppid, uint64_t at_ns);
void sm_process_end(sm_process *process, uint64_t at_ns);
sm_process *sm_processes(void); /* the first one; `next` leads on */
sm_thread *sm_thread_at(int32_t tid, uint64_t at_ns);
sm_thread *sm_thread_begin(sm_process *process, int32_t tid, uint64_t at_ns, const char *name);
sm_thread *sm_thread_found(sm_process *process, int32_t tid, uint64_t at_ns, const char *name);
void sm_thread_end(sm_thread *thread, uint64_t at_ns);
void sm_exec(sm_process *process, uint64_t at_ns);
void sm_scan(int32_t pid, int32_t ppid, uint64_t at_ns); /* a process that runs, its threads and its children */
int sm_may_ask(sm_process *process);
void sm_scan_threads(sm_process *process);
void sm_sweep(int is_lost);   /* those whose end was not told */
void sm_reap(void);    /* those that have ended and are told */
void sm_tell_who(void); /* rows that have changed */

/* --- proc.c: small files --- */

int sm_proc(char *into, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
const char *sm_stat(char *into, size_t room, int32_t pid, int32_t tid);
int sm_each_task(int32_t pid, void (*one)(int32_t pid, int32_t tid, void *of), void *of);
uint64_t sm_started_ns(int32_t pid, int32_t tid); /* 0: it is gone */
int sm_read_memory(void *pid, uint64_t address, void *into, size_t bytes); /* an lu_read; `pid`: of an int32_t */

/* --- following.c, rings.c: what the kernel tells of switches, new threads, exec and maps --- */

int sm_follow(int32_t tid);
int sm_follow_tick(void);
void sm_follow_again(sm_process *process);
void sm_follow_forks(const sm_process *parent);
void sm_follow_take(void);
int sm_rings_open(void);
/* Adds the thread's events of one CPU to its rings. 0, or minus an errno. */
int sm_ring_add(int32_t tid);
uint32_t sm_rings_full(void);
void sm_rings_take(void (*apply)(const void *record), uint64_t until_ns);
void sm_rings_poll(int epoll_fd);
int sm_rings_wait(int epoll_fd, int timeout_ms, int socket_fd); /* whether the socket has something */
/* Bytes of a ring of `size` bytes from position `at` on. */
void sm_ring_copy(const uint8_t *data, uint64_t size, uint64_t at, void *into, size_t bytes);
uint32_t sm_rings_cpus(void);
int sm_rings_cpu(uint32_t place);

/* --- limited.c: events that may come too often --- */

typedef struct {
    uint32_t most, in_second; /* in a second, in this one so far */
    uint64_t second_ns;
    int is_paused;
    int *fds;
    size_t used, room;
} sm_limited;
int sm_limited_keep(sm_limited *limited, int fd);
void sm_limited_count(sm_limited *limited);
void sm_limited_tick(sm_limited *limited);

/* --- wakings.c: who ends waits --- */

int sm_wakings_prepare(void);
int sm_wakings_add(int32_t tid, int cpu, int ring_fd);
void sm_wakings_take(const void *record);
void sm_wakings_tick(void);
uint32_t sm_waker_of(const sm_thread *thread, uint64_t from_ns, uint64_t until_ns);

/* --- kernel_time.c: what the kernel does for a thread --- */

/* What a sample tells of its thread: native frames, the leaf first, those of Python, and both as one stack. */
typedef struct {
    uint32_t stack, how;
    const lu_native_frame *native;
    const sm_python_frame *python;
    int count, frames;
    int has_fitted; /* each frame of the interpreter has its frames of Python */
} sm_user_stack;
/* python_at.c: the innermost function of Python by what the interpreter has in its registers and its C frame, which lie
 * in `words`. Its code is LT_NONE if none, or more than one, can be meant. `raw`: frames seen now, whose code is known
 * from now on. */
sm_python_frame sm_python_at(sm_process *process, const lu_python_frame *raw, const sm_python_frame *frames, int count,
                             const uint64_t *words, size_t words_count);
void sm_python_forget(sm_process *process);
int sm_kernel_open(int32_t tid, int cpu, uint32_t stack_bytes);
int sm_kernel_keep(int fd);
void sm_kernel_switched(void);
void sm_kernel_round(void);
void sm_kernel_take(const void *record);
void sm_kernel_share(sm_thread *thread, lt_sample *sample, const sm_user_stack *user);
void sm_kernel_rest(sm_thread *thread, uint64_t at_ns, uint64_t cpu_ns);

/* --- copies.c: samples of processes without the agent --- */

void sm_copies_tick(void);
uint64_t sm_copies_look(void);
void sm_copies_take(uint64_t until_ns);
void sm_copies_stop(sm_process *process);
void sm_copies_end(sm_thread *thread);

/* --- signalled.c: who may be sent the signal of samples --- */

void sm_signalled_begin(sm_thread *thread);
void sm_signalled_inherit(sm_process *child);
void sm_signalled_end(const sm_thread *thread);
int sm_signalled_tick(void);

/* --- events.c: samples of a thread --- */

/* What the kernel tells of a thread's registers: bits of asm/perf_regs.h, and ours in the order of these bits. */
#define SM_USER_REGISTERS 0xff01ffull
extern const uint8_t sm_user_registers[LS_REGISTERS];
int sm_may_keep(int fd);
int sm_perf_event_open(void *attributes, int32_t tid, int cpu);
void sm_events_begin(sm_process *process);
void sm_events_open(sm_thread *thread);
void sm_events_close(sm_thread *thread);
void sm_events_stop(sm_process *process);
uint64_t sm_events_config(int event);
uint64_t sm_events_period(int event);
uint64_t sm_events_cpu_ns(const sm_thread *thread);
int sm_check(void);

/* --- main.c --- */

void sm_let_go(const ls_message *message);

/* --- areas.c, samples.c --- */

#define SM_COPY_BYTES (256u << 10)
int sm_area_add(const ls_message *message, int fd);
void sm_area_take(sm_area *area);
void sm_area_free(sm_area *area);
void sm_area_count(const sm_area *area, lt_quality *sum);
int sm_area_has_handler(const sm_area *area);
uint32_t sm_area_puts(const sm_area *area);
uint64_t sm_area_signalled(const sm_area *area, int32_t tid);
void sm_area_forget(const sm_area *area, int32_t tid);
int sm_area_is_behind(const sm_area *area);
uint64_t sm_area_lost(const sm_area *area); /* within sm_area_take */
void sm_take_sample(sm_process *process, const ls_sample *sample, size_t bytes);
uint64_t sm_lost_samples(const sm_thread *thread); /* that may have been of this thread */
void sm_take_code(sm_process *process, const ls_sample_code *code, size_t bytes);
void sm_take_made(sm_process *process, const ls_sample_made *made, size_t bytes);
uint32_t sm_made_at(sm_process *process, uint64_t address, uint64_t *offset);
lu_space *sm_space(sm_process *process, int is_urgent);
/* Interns a stack of native frames (the leaf first) with these of Python in it, or LT_NONE. */
uint32_t sm_join(sm_process *process, const lu_native_frame *native, int count, uint32_t how,
                 const sm_python_frame *python, int frames, uint32_t *flags);
void sm_rest(sm_thread *thread, uint64_t at_ns, uint64_t cpu_ns);
lt_sample sm_sample(const sm_thread *thread, uint64_t at_ns, uint32_t kind, uint64_t weight_ns); /* for sm_tell */

/* --- waits.c, wait_stacks.c --- */

void sm_switched(sm_thread *thread, uint64_t at_ns, uint32_t cpu, int is_out, int is_preempted);
void sm_waits_lost(void);
void sm_waits_tick(void);
void sm_waits_knot(int is_last);
uint64_t sm_waits_oldest(void);
void sm_waits_end(sm_thread *thread);
int sm_look_at(sm_thread *thread, sm_look *look); /* SM_LOOKED, ... */
int sm_python_frames(sm_thread *thread, lu_python_frame *raw, sm_python_frame *into);

/* --- accounts.c --- */

void sm_account(sm_thread *thread, int is_last);
void sm_accounts_knot(void);
void sm_accounts_tick(void);
uint64_t sm_switched_ns(const sm_thread *thread, uint64_t at_ns);
void sm_count_from(sm_thread *thread, uint64_t all_ns);
uint64_t sm_ran_ns(int32_t pid, int32_t tid, uint64_t *delay_ns, uint64_t *dispatches);

#endif
