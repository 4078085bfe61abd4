/* The area into which all threads of a process write their samples (native/samples.h), and the numbers of code objects.
 * Everything here runs in signal handlers of several threads at once. */
#define _GNU_SOURCE
#include "sampling.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROBES 64u
#define HASHED 96u /* of a name whose code may have gone */
static const char more_code[] = "(more code than is kept)";

static size_t padded(size_t bytes) { return (bytes + 15) & ~(size_t)15; }

/* --- The area --- */

static uint8_t *ring_of(lf_samples_header *area) { return (uint8_t *)area + LF_SAMPLES_HEADER; }

/* Room for a record; NULL: the reader has not come far enough. A stray write of the program's may have hit the header:
 * what is there is no reason to divide by zero or to write behind the end. */
lf_sample_head *ls_samples_reserve(lf_samples_header *area, size_t bytes, uint64_t *position) {
    const uint64_t capacity = LF_SAMPLES_BYTES - LF_SAMPLES_HEADER;
    uint64_t at = LS_LOAD(area->reserved), pad;
    do {
        uint64_t left = capacity - at % capacity;
        pad = left < bytes ? left : 0;
        if (at % 16 || at + pad + bytes - __atomic_load_n(&area->consumed, __ATOMIC_ACQUIRE) > capacity)
            return NULL;
    } while (!__atomic_compare_exchange_n(&area->reserved, &at, at + pad + bytes, 0, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    if (pad)
        ls_samples_commit((lf_sample_head *)(ring_of(area) + at % capacity), pad, LF_SAMPLE_PAD, 0, at);
    *position = at + pad;
    return (lf_sample_head *)(ring_of(area) + *position % capacity);
}

void ls_samples_commit(lf_sample_head *head, size_t bytes, uint16_t kind, uint16_t flags, uint64_t position) {
    head->bytes = (uint32_t)bytes;
    head->kind = kind;
    head->flags = flags;
    __atomic_store_n(&head->commit, position + 1, __ATOMIC_RELEASE);
}

typedef struct {
    const void *text;
    size_t bytes;
} part;

/* The record of a code object: its name, its file, its lines. Its number; LS_NUMBER_NO_ROOM: there is no room for it,
 * and no number is used up. */
static int64_t write_code(lf_samples_header *area, int32_t first_line, const part parts[3]) {
    size_t bytes = padded(sizeof(lf_sample_code) + parts[0].bytes + parts[1].bytes + parts[2].bytes);
    uint64_t position;
    lf_sample_code *record = (lf_sample_code *)ls_samples_reserve(area, bytes, &position);
    if (!record)
        return LS_NUMBER_NO_ROOM;
    uint32_t number = (uint32_t)__atomic_fetch_add(&area->codes, 1, __ATOMIC_RELAXED);
    record->code = number;
    record->first_line = first_line;
    record->name_bytes = (uint32_t)parts[0].bytes;
    record->file_bytes = (uint32_t)parts[1].bytes;
    record->lines_bytes = (uint32_t)parts[2].bytes;
    record->pad = 0;
    uint8_t *into = (uint8_t *)(record + 1);
    for (int i = 0; i < 3; into += parts[i++].bytes)
        memcpy(into, parts[i].text, parts[i].bytes);
    ls_samples_commit(&record->head, bytes, LF_SAMPLE_CODE, 0, position);
    return number;
}

static void (*fill_more)(lf_samples_header *area); /* the same one each time */

static void fill_area(void *memory, size_t bytes) {
    lf_samples_header *area = memory;
    area->version = LF_LAYOUT_VERSION;
    area->pid = getpid();
    area->capacity = (uint32_t)(bytes - LF_SAMPLES_HEADER);
    area->process_start = ls_process_start();
    area->python = ls_python.version;
    area->python_eval = ls_python.eval;
    area->python_runtime = ls_python.runtime;
    const part parts[] = {{more_code, sizeof more_code - 1}, {"", 0}, {"", 0}};
    area->codes = LS_CODE_UNKNOWN;
    write_code(area, 0, parts);
    fill_more(area);
    area->magic = LF_SAMPLES_MAGIC;
}

/* An area of this process, handed over with what `more` writes into its head; NULL: none to be had. */
lf_samples_header *ls_samples_area(void (*more)(lf_samples_header *area)) {
    lf_message message = {LF_MESSAGE_MAGIC, LF_SEND_SAMPLES, 0, 0, 0};
    fill_more = more;
    lf_samples_header *area = ls_new_shared("layerscope-samples", LF_SAMPLES_BYTES, message, fill_area);
    if (area)
        madvise(area, LF_SAMPLES_BYTES, MADV_DONTFORK);
    return area;
}

/* --- Code objects --- */

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static uint64_t hash_of(const char *text, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    return hash | 1;
}

static uint64_t hash_of_name(ls_scratch *s, uint64_t name) {
    int bytes = lu_python_text(ls_python.version, name, ls_read_here, s, s->name, HASHED);
    return bytes < 0 ? 1 : hash_of(s->name, (size_t)bytes);
}

/* Give the code a number and write down what it is, into an entry that nobody else looks at yet. */
static int64_t learn(lf_samples_header *area, ls_scratch *s, ls_known_code *entry, const lu_python_frame *frame) {
    uint64_t file, name, lines;
    int32_t first_line;
    uint32_t python = ls_python.version;
    if (lu_python_code(python, frame->code, ls_read_here, s, &file, &name, &lines, &first_line))
        return LS_NUMBER_NO_CODE;
    int name_bytes = lu_python_text(python, name, ls_read_here, s, s->name, sizeof s->name);
    int file_bytes = lu_python_text(python, file, ls_read_here, s, s->file, sizeof s->file);
    int lines_bytes = lu_python_bytes(python, lines, ls_read_here, s, s->lines, sizeof s->lines);
    const part parts[] = {{name_bytes < 0 ? "?" : s->name, name_bytes < 0 ? 1 : (size_t)name_bytes},
                          {s->file, file_bytes < 0 ? 0 : (size_t)file_bytes},
                          {s->lines, lines_bytes < 0 ? 0 : (size_t)lines_bytes}};
    int64_t number = write_code(area, first_line, parts);
    if (number < 0)
        return number;
    entry->code = frame->code;
    entry->name = name;
    entry->lines = lines;
    entry->first_line = first_line;
    entry->text = file_bytes > 0 && s->file[0] == '/' ? 0 : hash_of_name(s, name);
    return number;
}

static int is_same(const ls_known_code *entry, const lu_python_frame *frame) {
    return entry->code == frame->code && entry->name == frame->name && entry->lines == frame->lines
           && entry->first_line == frame->first_line;
}

/* The number of the code of a frame, which is written down before anybody can use it. A thread that meets the same code
 * meanwhile gives it another number. LS_NUMBER_ values: it is no code, or there is no room to say what it is. */
int64_t ls_samples_code(ls_sampled_process *process, ls_scratch *s, const lu_python_frame *frame) {
    lf_samples_header *area = atomic_load_explicit(&process->area, memory_order_relaxed);
    uint64_t at = mixed(frame->code + mixed(frame->name + mixed(frame->lines)));
    uint64_t text = 0;
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        ls_known_code *entry = &process->codes[(at + probe) % LS_CODES_MOST];
        uint32_t state = atomic_load_explicit(&entry->state, memory_order_acquire);
        if (state >= LS_CODE_READY && is_same(entry, frame)) {
            if (entry->text && !text)
                text = hash_of_name(s, frame->name);
            if (!entry->text || entry->text == text)
                return state - LS_CODE_READY;
        }
        if (state == LS_CODE_FREE && atomic_compare_exchange_strong(&entry->state, &state, LS_CODE_TAKEN)) {
            int64_t number = learn(area, s, entry, frame);
            uint32_t now = number < 0 ? LS_CODE_FREE : (uint32_t)number + LS_CODE_READY;
            atomic_store_explicit(&entry->state, now, memory_order_release);
            return number;
        }
    }
    return LS_CODE_UNKNOWN;
}
