/* Who there is: processes and threads, with what each file keeps of them. */
#ifndef LAYERSCOPE_SAMPLER_THREADS_H
#define LAYERSCOPE_SAMPLER_THREADS_H

#include "../stacks/stacks.h"
#include "format.h"

typedef struct sm_process sm_process;
typedef struct sm_thread sm_thread;

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

/* How often page faults of one kind make a sample (fault_rate.c). */
typedef struct {
    uint64_t changed_ns;      /* when its period was changed last */
    uint32_t doubled, before; /* how often the period is doubled, and was before that */
    uint32_t in_second;       /* samples since the last change or second */
    uint32_t passed;          /* that came since the last one that was taken */
    int is_first;             /* the next one is the first since the change */
} sm_fault_rate;

/* The events that each thread may have (events.c). */
enum { SM_CPU = 0, SM_MINOR = 1, SM_MAJOR = 2, SM_EVENTS = 3 };
enum { SM_NOT_LOOKED = 0, SM_LOOKED = 1, SM_UNREADABLE = 2 };

struct sm_thread {
    sm_thread *by_tid;         /* next in its bucket, newest first */
    sm_thread *next, *previous; /* of its process */
    sm_process *process;
    uint32_t number;
    int32_t tid;
    uint64_t start_ns, end_ns;
    char name[16];
    int is_told;            /* the file has this row as it is */
    int since_birth;        /* we were told when it began */
    int events[SM_EVENTS];  /* events.c: descriptors, -1: none */
    int *first_ticks;       /* first_ticks.c: descriptors, one for each CPU; NULL: none */
    int wait_fd;            /* wait_stacks.c: of /proc/PID/task/TID/syscall, -1: not open */
    uint64_t python_state;  /* python_stacks.c: its PyThreadState when it was asked for last */
    uint64_t no_python_ns;  /* python_stacks.c: when it had no state of Python */
    struct sm_held *held;   /* thinning.c */
    sm_fault_rate faults[SM_EVENTS]; /* of SM_MINOR and SM_MAJOR */
    struct {
        uint64_t since_ns;  /* it may be sent the signal of samples, 0: it may not */
        uint32_t seen_puts; /* how many threads were in the table of its process when it was looked for there */
    } signal;               /* signalled.c */
    struct {
        uint64_t before_ns; /* that an earlier program of the thread has used */
        uint64_t base_ns;   /* when the events began */
        uint64_t told_ns;   /* that samples stand for so far */
        uint64_t ran_ns;    /* on a CPU, as its switches say */
        uint64_t copied_ns; /* that `ran_ns` leaves out */
        int is_counted;     /* these two are all of it, and none of its switches was lost since */
        int has_base;       /* what it had used before it was sampled is told */
    } time;                 /* cpu_time.c: CPU time */
    struct {
        uint64_t count;
        uint64_t lost_before; /* samples of its process, when its last one came */
        uint64_t last_ns;     /* when the last one of its clock was made */
        uint64_t period_ns;   /* of its own clock (periods.c) */
        uint64_t skipped_ns;  /* CPU time from the last sample until that period began */
        uint32_t of_period;   /* samples since it began */
        uint32_t last_stack;
        int has_first_period; /* its clock ticks at its first period, which is shorter: events.c */
        uint64_t faults_minor, faults_major; /* that samples stand for */
    } sampled;                /* samples.c */
    struct {
        struct sm_kernel_tick *ticks; /* in the kernel, since the last sample */
        uint32_t count;
        uint32_t owed_stack;         /* of the sample that was the last to leave time in the kernel to ticks to come */
        uint64_t owed_ns, owed_from; /* how much that is, and since when */
        struct sm_recent *recent;    /* recent_stacks.c */
    } kernel; /* kernel_time.c */
    struct {
        uint64_t out_ns, in_ns; /* 0: not */
        uint64_t came_ns;       /* when it last came onto a CPU, which was `cpu` */
        uint32_t cpu;
        uint64_t cpus; /* a bit for each one that it has been on, the 65th and later share them */
        uint64_t unclosed_ns, late_ns; /* came onto a CPU that it is not told to have left; told late of leaving one */
        int is_run_late;               /* that it came onto that one was told late, too */
        int is_preempted, looked;
        sm_look look;
        sm_pool shorts, preempted;
        uint64_t switches;   /* seen so far */
        uint64_t dispatches; /* how often it had come onto a CPU, where no switches are told */
    } wait;                  /* waits.c */
    struct {
        uint64_t at_ns; /* when it was woken last, and by which thread */
        uint32_t by;
    } wakeup; /* wakeups.c */
    struct {
        lt_account row, base; /* base: what it had used before, in a recording that began later */
        uint32_t count;             /* how many there were */
        uint64_t switches;          /* and one, when the last was made */
        uint64_t read_ns, read_at;  /* CPU time as it was read while it waited, and its switches then */
    } account;                      /* accounts.c */
    struct {
        int *fds; /* of its own events, one for each CPU; NULL: none */
        uint32_t count;
        int has_tried;
        uint64_t asked_ns; /* CPU time when it was asked for */
        uint64_t samples, all_ns, kernel_ns; /* CPU time that they stand for, and how much of that was in the kernel */
        uint64_t paused_from, paused_ns; /* CPU time when the clocks were paused last, and in all pauses */
    } copied;              /* copied_stacks.c */
};

struct sm_process {
    sm_process *by_pid, *next, *previous;
    uint32_t number;
    int32_t pid, ppid;
    uint64_t start_ns, end_ns;
    sm_thread *threads;
    uint32_t living; /* threads */
    int is_told;
    int is_foreign; /* in another pid namespace: its numbers of threads are not ours */
    uint64_t asked_from_ns, next_ask_ns; /* since when something is not known of its threads, and when to ask */
    /* scan.c, kernel_records.c */
    int is_followed, is_refusal_said;
    int is_a_fork;     /* it is seen to begin, and is still the program of its parent */
    int32_t forked_by; /* the thread of its parent */
    int is_followed_by_exec; /* it has become another program, which is another row */
    /* handover.c: as its area says, or that of the process that forked it */
    int is_sampled;
    struct sm_area *area; /* NULL: not yet, a forked child makes one at its first signal */
    uint32_t python;
    uint64_t python_eval, python_runtime;
    int uses_timers;
    int is_signalled;
    int has_handler;   /* it had one for the signal of samples when it handed its area over */
    /* signalled.c */
    int has_events;    /* its threads get them */
    int is_left_alone; /* it has the signal for itself */
    /* joined_stacks.c */
    lu_space *space;
    int is_stale; /* something was mapped since */
    uint64_t refreshed_ns, refresh_cost_ns;
    struct {
        int is_on, has_tried;
        int is_read_later; /* code points rsp away from the stack, which is then read after the sample was made */
        int wakes;         /* its samples wake the sampler, so that it reads soon */
        struct sm_copy_event *events; /* in the order of their ids */
        uint32_t count;
    } copied; /* copied_stacks.c */
    struct {
        struct sm_made *codes; /* by address */
        uint32_t count, room;
        int has_inherited;
    } made; /* jit_code.c */
    struct {
        uint32_t *numbers; /* in the file, of the codes that its handler named */
        uint32_t room;
    } codes; /* samples.c */
    struct {
        struct sm_instructions *all; /* of code objects, by address */
        uint32_t count, room;
    } instructions; /* python_function.c */
    uint32_t c_frame_distance; /* interpreter_frames.c; 0: not known */
    struct {
        int is_read; /* frames of Python are read from outside */
        const char *refused; /* why not; NULL: they are, or there is no Python */
        uint64_t next_ns, waits_ns;
        struct sm_told *told; /* outside_frames.c */
    } outside; /* outside_python.c */
    struct {
        int end_fd; /* tells how it ended, -1: does not */
        int is_found_fork;
        uint64_t read_ns, memory_ns, told_ns;
        int is_growing; /* its memory, when it was last read */
        lt_process_account row;
    } whole; /* process_accounts.c */
    struct {
        uint64_t seconds, cpu_ns, signals;
    } silence; /* accounts.c: CPU time and no signals */
};

sm_process *sm_processes(void); /* the first one; `next` leads on */
sm_process *sm_process_at(int32_t pid);
sm_process *sm_process_begin(int32_t pid, int32_t ppid, uint64_t at_ns);
void sm_process_tell(sm_process *process);
void sm_process_free(sm_process *process);
int sm_may_ask(sm_process *process);
sm_thread *sm_thread_at(int32_t tid, uint64_t at_ns);
sm_thread *sm_thread_begin(sm_process *process, int32_t tid, uint64_t at_ns, const char *name);
void sm_thread_tell(sm_thread *thread);
void sm_thread_free(sm_thread *thread);
void sm_take_name(sm_process *process, const lf_sample_name *name, size_t bytes);
void sm_tell_who(void); /* rows that have changed */

#endif
