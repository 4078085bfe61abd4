/* The raw file: rows are kept by kind and written as chunks a few times a second, definitions before what names them.
 *
 * A full disk: definitions stay and are tried again, for later rows name them; samples and accounts are dropped and
 * counted. When the definitions that wait are too many, nothing is taken any more until they are written. */
#define _GNU_SOURCE
#include "output.h"

#include "../chunks/chunks.h"
#include "../stacks/stacks.h"
#include "procfs.h"
#include "recording.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FIRST LT_SETTINGS
#define KINDS (LT_PROCESS_ACCOUNTS + 1 - FIRST)
#define MOST_BYTES (64u << 20) /* of definitions that wait */
#define MOST_ROWS_BYTES (16u << 20)
#define CHUNK_BYTES (4u << 20)
#define RETRY_NS 1000000000ull
#define HEADER_BYTES 36u /* of a chunk */
#define DEFINED_SHARE 4u /* one part in so many is for definitions */

typedef struct {
    uint8_t *data;
    size_t used, room;
    uint32_t rows;
} buffer;

static buffer buffers[KINDS];
static li_file file;
static uint64_t retry_ns, failed_rows, dropped;
static int was_full;
static uint64_t defined_bytes, most_defined_bytes = UINT64_MAX; /* of definitions */
static uint64_t written_bytes, most_written_bytes;              /* of other rows; most 0: as much as there is */

/* What samplers before us have written counts. */
static void count_earlier(const char *folder) {
    char path[PATH_MAX + 64];
    for (uint32_t generation = 0; generation < sm.generation; generation++) {
        struct stat found;
        snprintf(path, sizeof path, generation ? "%s/stacks.%u" : "%s/stacks", folder, generation);
        if (!stat(path, &found))
            written_bytes += (uint64_t)found.st_size;
    }
}

/* `most_bytes`: what the files of all samplers of the recording may take, 0: as much as there is. */
int sm_output_open(const char *folder, uint64_t most_bytes) {
    int bytes = snprintf(file.path, sizeof file.path, sm.generation ? "%s/stacks.%u" : "%s/stacks", folder,
                         sm.generation);
    if (bytes <= 0 || (size_t)bytes >= sizeof file.path)
        return -ENAMETOOLONG;
    if (most_bytes)
        most_defined_bytes = most_bytes / DEFINED_SHARE;
    most_written_bytes = most_bytes - most_bytes / DEFINED_SHARE;
    count_earlier(folder);
    return 0;
}

static int is_definition(uint16_t kind) {
    return kind != LT_SAMPLES && kind != LT_ACCOUNTS && kind != LT_QUALITY && kind != LT_POLL;
}

static uint8_t *room_for(buffer *b, size_t bytes, size_t most) {
    if (b->used + bytes > most)
        return NULL;
    if (b->used + bytes > b->room) {
        size_t room = b->room ? b->room : 4096;
        while (room < b->used + bytes)
            room *= 2;
        uint8_t *data = realloc(b->data, room);
        if (!data)
            return NULL;
        b->data = data, b->room = room;
    }
    uint8_t *row = b->data + b->used;
    b->used += bytes;
    b->rows++;
    return memset(row, 0, bytes);
}

void *sm_row(uint16_t kind, size_t bytes) {
    void *row = room_for(&buffers[kind - FIRST], bytes, is_definition(kind) ? MOST_BYTES : MOST_ROWS_BYTES);
    if (!row)
        dropped++;
    else if (is_definition(kind))
        defined_bytes += bytes;
    return row;
}

void *sm_text_row(uint16_t kind, size_t bytes, size_t rest_bytes) {
    return sm_row(kind, (bytes + rest_bytes + 7) & ~(size_t)7);
}

/* Samples and what else need not wait for others are many. */
int sm_is_writing_due(void) {
    return buffers[LT_SAMPLES - FIRST].used > CHUNK_BYTES;
}

int sm_is_full(void) {
    size_t waiting = 0;
    for (int i = 0; i < KINDS; i++)
        waiting += buffers[i].used;
    return waiting > MOST_BYTES / 2;
}

int sm_may_define(void) {
    return defined_bytes < most_defined_bytes;
}

uint64_t sm_rows_written(void) {
    return written_bytes;
}

uint64_t sm_rows_most(void) {
    return most_written_bytes;
}

uint64_t sm_rows_dropped(void) {
    return dropped;
}

/* Rows of which the newest says all. */
static void *only_row(uint16_t kind, size_t bytes) {
    buffers[kind - FIRST].used = buffers[kind - FIRST].rows = 0;
    return sm_row(kind, bytes);
}

/* --- Texts --- */

static void add_json(char **at, const char *end, const char *words) {
    for (; *words && *at < end - 8; words++)
        if (*words == '"' || *words == '\\')
            *at += sprintf(*at, "\\%c", *words);
        else if ((unsigned char)*words < 32)
            *at += sprintf(*at, "\\u%04x", (unsigned char)*words);
        else
            *(*at)++ = *words;
}

/* A problem is written at once as a chunk of its own, as long as there are not too many. */
void sm_problem(const char *code, int32_t pid, const char *lost, const char *remedy, const char *format, ...) {
    static int told;
    char what[512], text[2048], *at = text;
    const char *end = text + sizeof text - 64;
    if (++told > 256)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const char *pairs[] = {"code", code, "what", what, "remedy", remedy, "lost", lost};
    at += sprintf(at, "%s", buffers[LT_PROBLEMS - FIRST].used ? ", {" : "[{");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i += 2) {
        at += sprintf(at, "\"%s\": \"", pairs[i]);
        add_json(&at, end, pairs[i + 1]);
        at += sprintf(at, "\", ");
    }
    at += sprintf(at, "\"pid\": %d}", pid);
    void *row = sm_row(LT_PROBLEMS, (size_t)(at - text));
    if (row)
        memcpy(row, text, (size_t)(at - text));
}

/* Written again when more is known: the last one counts. */
void sm_settings(void) {
    static const char *const words[] = {"false", "true"};
    char text[384], boot[40];
    if (sm_proc(boot, sizeof boot, "/proc/sys/kernel/random/boot_id") < 0)
        *boot = 0;
    boot[strcspn(boot, "\n")] = 0;
    int bytes = snprintf(text, sizeof text,
                         "{\"hz\": %u, \"period_ns\": %llu, \"start_ns\": %llu, \"pid\": %d, \"switches\": %s, "
                         "\"generation\": %u, \"began_ns\": %llu, \"wakers\": %s, \"kernel\": %s, \"boot\": \"%s\"}",
                         sm.hz, (unsigned long long)sm.period_ns, (unsigned long long)sm.start_ns, sm.main_pid,
                         words[!!sm.has_switches], sm.generation, (unsigned long long)sm.began_ns,
                         words[!!sm.has_wakers], words[!!sm.has_kernel], boot);
    void *row = only_row(LT_SETTINGS, (size_t)bytes);
    if (row)
        memcpy(row, text, (size_t)bytes);
}

/* --- Objects: the unwinder numbers them --- */

static void tell_objects(void) {
    static uint32_t told;
    for (; told < lu_objects(); told++) {
        const lu_object_facts *facts = lu_object_of(told);
        size_t path_bytes = strlen(facts->path);
        lt_object *row = sm_text_row(LT_OBJECTS, sizeof *row, path_bytes);
        if (!row)
            return;
        *row = (lt_object){told, (uint32_t)path_bytes, facts->device, facts->inode, facts->mtime_ns, {0},
                           facts->build_id_bytes};
        memcpy(row->build_id, facts->build_id, sizeof row->build_id);
        memcpy(row + 1, facts->path, path_bytes);
    }
}

/* --- Writing --- */

static const size_t row_bytes[KINDS] = {
    [LT_PROCESSES - FIRST] = sizeof(lt_process), [LT_THREADS - FIRST] = sizeof(lt_thread),
    [LT_FRAMES - FIRST] = sizeof(lt_frame),      [LT_STACKS - FIRST] = sizeof(lt_stack),
    [LT_SAMPLES - FIRST] = sizeof(lt_sample),    [LT_ACCOUNTS - FIRST] = sizeof(lt_account),
    [LT_QUALITY - FIRST] = sizeof(lt_quality),   [LT_POLL - FIRST] = sizeof(uint64_t),
};

/* 0, or minus an errno. Rows of one size go in chunks that are not too large. */
static int write_kind(uint16_t kind) {
    buffer *b = &buffers[kind - FIRST];
    size_t row = row_bytes[kind - FIRST], done = 0;
    int failed = 0;
    while (done < b->used && !failed) {
        size_t bytes = b->used - done;
        if (row && bytes > CHUNK_BYTES)
            bytes = CHUNK_BYTES / row * row;
        uint32_t rows = row ? (uint32_t)(bytes / row) : b->rows;
        li_chunk chunk = {kind, 0, rows, 0, {{b->data + done, bytes}, {0}}};
        failed = li_file_write(&file, &chunk);
        done += failed ? 0 : bytes;
        if (!failed && !is_definition(kind))
            written_bytes += bytes + HEADER_BYTES;
    }
    if (done)
        memmove(b->data, b->data + done, b->used - done);
    b->used -= done;
    b->rows = row ? (uint32_t)(b->used / row) : b->used ? b->rows : 0;
    return failed;
}

static void drop_rows(int failed) {
    for (uint16_t kind = LT_SAMPLES; kind <= LT_POLL; kind++) {
        failed_rows += buffers[kind - FIRST].rows;
        buffers[kind - FIRST].used = buffers[kind - FIRST].rows = 0;
    }
    retry_ns = sm.now_ns + RETRY_NS;
    if (!was_full)
        sm_problem("disk_full", 0, "samples of that time; their number is counted", "record to a disk with room (-o)",
                   "stacks could not be written: %s", strerror(-failed));
    was_full = 1;
}

/* Problems are a list in JSON; its end is missing as long as it may grow. */
static int write_problems(void) {
    buffer *b = &buffers[LT_PROBLEMS - FIRST];
    if (!b->used)
        return 0;
    uint8_t *end = room_for(b, 1, MOST_BYTES);
    if (!end)
        return -ENOMEM;
    *end = ']';
    int failed = write_kind(LT_PROBLEMS);
    b->used -= failed ? 1 : 0;
    return failed;
}

void sm_output_write(void (*define)(void)) {
    static const uint16_t order[] = {LT_SETTINGS, LT_OBJECTS, LT_PROCESSES, LT_THREADS, LT_NAMES,   LT_CODES, LT_MADES,
                                     LT_FRAMES,   LT_STACKS,   LT_SAMPLES, LT_ACCOUNTS,  LT_PROCESS_ACCOUNTS, LT_QUALITY, LT_POLL};
    if (sm.now_ns < retry_ns)
        return;
    tell_objects();
    define();
    int failed = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order && !failed; i++)
        failed = write_kind(order[i]);
    if (failed)
        drop_rows(failed);
    write_problems(); /* that is short: it may fit where definitions do not */
}

void sm_tell_quality(const lt_quality *quality) {
    lt_quality *row = only_row(LT_QUALITY, sizeof *row);
    if (row)
        *row = *quality;
}

void sm_tell_poll(uint64_t until_ns) {
    uint64_t *row = only_row(LT_POLL, sizeof *row);
    if (row)
        *row = until_ns;
}

void sm_output_close(void (*define)(void)) {
    retry_ns = 0;
    sm_output_write(define);
    if (failed_rows)
        sm_problem("samples_dropped", 0, "these rows", "record to a disk with room (-o)",
                   "%llu rows of stacks did not fit on the disk", (unsigned long long)failed_rows);
    dropped += failed_rows;
    sm_output_write(define);
    li_file_write(&file, &(li_chunk){LT_END, 0, 0, 0, {{0}, {0}}});
}
