/* What the files of liblayerscope.so share. The library holds the agent: rings, names and what writes into them. With
 * `layerscope run` around the program it only passes on to the agent that is there already (attached.c); otherwise it
 * has a recording of its own (recording.c), which a thread of ours writes (process.c, ../chunks). */
#ifndef LAYERSCOPE_INTERFACE_H
#define LAYERSCOPE_INTERFACE_H

#include "../agent/agent.h"
#include "../chunks/chunks.h"
#include "../chunks/sums.h"
#include "../include/layerscope.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

#define LI_API __attribute__((visibility("default")))
#define LI_SCHEMA 13 /* of run.json: model/schema.py SCHEMA_VERSION */
#define LI_MAX_SIZE_BYTES 2000000000u
#define LI_LEAST_SIZE_BYTES 4000000u

/* --- Where to (interface.c) --- */

/* What takes ranges, counters and marks: the agent of `layerscope run`, or the one in here. */
typedef struct {
    int (*range_begin)(const char *text, int kind, uint64_t handle[2]);
    int (*range_end)(const uint64_t handle[2]);
    void (*counter)(const char *text, int64_t value);
    void (*mark)(const char *text, uint32_t what, int32_t scope);
} li_recorder;

enum { LI_UNKNOWN = 0, LI_STOPPED = 1, LI_RUNNING = 2 };
typedef struct {
    uint32_t state;             /* unknown: nobody has looked yet whether `layerscope run` is around us */
    const li_recorder *recorder; /* NULL: there is no recording yet */
    int is_attached, is_left_out, has_run; /* left out: of a rank that `layerscope run` does not record */
    uint64_t since_ns; /* when it first ran, CLOCK_MONOTONIC */
} li_globals;

/* What layerscope_set_config said. */
typedef struct {
    char file[PATH_MAX]; /* absolute; empty: none was named */
    int continuous;
    double period_s;
    uint64_t max_size_bytes;
} li_config;

extern li_globals li;
extern li_config li_asked;

const li_recorder *li_look(void);
int li_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Where ranges go now; NULL: nothing is recorded. */
static inline const li_recorder *li_running(void) {
    uint32_t state = __atomic_load_n(&li.state, __ATOMIC_ACQUIRE);
    if (state == LI_RUNNING)
        return li.recorder;
    return LS_UNLIKELY(state == LI_UNKNOWN) ? li_look() : NULL;
}

/* --- Text that grows (text.c) --- */

typedef struct {
    char *data; /* NULL: nothing yet, or there was no memory */
    size_t used, room;
    int failed;
} li_text;

void li_add(li_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void li_add_json(li_text *text, const char *words, size_t bytes);
void li_add_words(li_text *text, char *const *words);
int li_write_file(const char *path, const li_text *text);
int li_read_file(const char *path, char *into, size_t bytes);

/* --- Facts (facts.c) --- */

int li_tsc_is_usable(void);
void li_add_host(li_text *text);
void li_add_environment(li_text *text);
void li_add_command(li_text *text);
void li_add_process(li_text *text, const lf_page *page);
void li_program_name(char *into, size_t bytes);
void li_utc(char into[32]);

/* --- The agent of `layerscope run` (attached.c) --- */

int li_is_run_around(void);
const li_recorder *li_attach(int *is_left_out);
int li_ask_for_trace(const char *file, uint64_t since_ns);
int li_ask_for_dump(const char *file, uint64_t since_ns, int finished);

/* --- A recording of the program's own (recording.c) --- */

const li_recorder *li_recording_begin(void);
int li_recording_running(void);
int li_recording_dump(int finished);
const char *li_recording_path(void);
void li_lock(void);
int li_lock_within(uint64_t patience_ns);
void li_unlock(void);

/* --- The raw file of a process (space.c; ../chunks, the format: rawfile/raw_file.py) --- */

enum { LI_PROCESS = 1, LI_NAMES = 2, LI_RECORDS = 3, LI_POLL = 4, LI_OPEN = 5, LI_COUNTERS = 6, LI_THREADS = 7,
       LI_LOSS = 8, LI_TOTALS = 9, LI_END = 10, LI_STRIPPED = 11 };
void li_file_reserve(const li_file *file);
void li_file_release(const li_file *file);
uint64_t li_raw_bytes(const char *raw);

/* --- One process and the thread that writes what it records (process.c, drain.c) --- */

/* Memory that the agent handed over. */
typedef struct li_piece {
    struct li_piece *next;
    uint32_t kind, index; /* one of LF_SEND_PROCESS... */
    void *memory;
    uint64_t taken, end;        /* of names: bytes that are written; of a ring: records to be written now */
    uint32_t named, tid;        /* of a ring: how often the name of the thread `tid` was looked at */
    char name[16];              /* that name */
    uint32_t depth, told_depth; /* of `open`, and of what the file says is open */
    lf_open *open, *told;       /* what was open at the last look; what the file says */
} li_piece;

#define LI_MOST_FULL 32
typedef struct li_process {
    pid_t pid;
    uint64_t start_ns;
    char raw[PATH_MAX];
    uint64_t max_size_bytes;
    li_piece *pieces; /* newest first; others push, one reads */
    li_file file;
    li_sums sums;
    const lf_page *page;
    int is_full;                    /* the recording has the size it may have: spans are only counted */
    uint64_t looked_at_bytes;       /* of the file, when that was found out last */
    uint64_t retry_ns;              /* nothing is written before: the disk was full */
    uint32_t full;                  /* times that it was */
    int64_t full_ns[LI_MOST_FULL][2];
    uint64_t cpu_ns; /* of the thread */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    uint64_t asked, answered;
    int wants_end, fits; /* `fits`: all that was asked for last could be written */
    int is_over;         /* the thread is: it was the last one of the program */
    sigset_t signals;    /* blocked by the thread that made it */
} li_process;

int li_take(const lf_message *message, void *memory, size_t bytes);
li_process *li_process_here(void);
int li_process_flush(li_process *p, int ends);
void li_process_wake(li_process *p);
int li_drain(li_process *p, int at_knot, int is_asked);
int li_last_word(li_process *p);
int li_write(li_process *p, li_chunk chunk);
int li_write_text(li_process *p, uint16_t kind, li_text *text);
int li_write_open(li_process *p, li_piece *ring, int is_last);
int li_write_threads(li_process *p);
int li_write_counters(li_process *p);
int li_is_alone(void);

#endif
