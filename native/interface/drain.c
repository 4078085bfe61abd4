/* What is written of a process at each poll: the same chunks, in the same order, as the drainer beside a program
 * writes them (capture/drainer.py). Runs in the thread of process.c alone. */
#define _GNU_SOURCE
#include "interface.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAIN_FROM_PART 4u
#define DISK_RETRY_NS 1000000000u
#define SEGMENT_BYTES (32u << 20)
#define LEAST_SEGMENT_BYTES (256u << 10)
/* The header of a ring belongs to a thread of the program; what it holds is looked at as it is. */
#define UNSYNCHRONISED __attribute__((no_sanitize("thread")))

static uint64_t segment_bytes(const li_process *p) {
    uint64_t bytes = p->max_size_bytes / 32;
    return bytes < LEAST_SEGMENT_BYTES ? LEAST_SEGMENT_BYTES : bytes > SEGMENT_BYTES ? SEGMENT_BYTES : bytes;
}

/* --- Writing --- */

/* Append a chunk; 0: it does not fit on the disk, what it was about stays where it is for now. */
int li_write(li_process *p, li_chunk chunk) {
    int64_t now = (int64_t)ls_monotonic_ns();
    int failed = li_file_write(&p->file, &chunk);
    if (!failed && !p->retry_ns)
        return 1;
    if (!p->retry_ns) { /* full now, and was not before */
        p->full += p->full < LI_MOST_FULL;
        p->full_ns[p->full - 1][0] = now;
    }
    p->full_ns[p->full - 1][1] = now;
    p->retry_ns = failed ? (uint64_t)now + DISK_RETRY_NS : 0;
    return !failed;
}

/* The same with a text, which is let go. */
int li_write_text(li_process *p, uint16_t kind, li_text *text) {
    int fits = text->failed || li_write(p, (li_chunk){.kind = kind, .parts = {{text->data, text->used}}});
    free(text->data);
    *text = (li_text){0};
    return fits;
}

static int write_reading(li_process *p, const int64_t reading[4]) {
    return li_write(p, (li_chunk){.kind = LI_POLL, .parts = {{(void *)reading, 4 * sizeof *reading}}});
}

static int write_names(li_process *p, li_piece *segment) {
    const lf_names_header *h = segment->memory;
    uint64_t used = __atomic_load_n(&h->used, __ATOMIC_ACQUIRE);
    if (used == segment->taken)
        return 1;
    char *fresh = (char *)segment->memory + LF_NAMES_HEADER + segment->taken;
    li_chunk chunk = {.kind = LI_NAMES, .key = segment->index, .first = segment->taken,
                      .parts = {{fresh, used - segment->taken}}};
    if (!li_write(p, chunk))
        return 0;
    segment->taken = used;
    return 1;
}

/* --- Records --- */

static void waiting(const lf_ring *ring, uint64_t end, struct iovec parts[LI_PARTS]) {
    uint32_t capacity = ring->h.capacity;
    uint64_t first = ring->h.consumed % capacity, count = end - ring->h.consumed;
    uint64_t before_wrap = count < capacity - first ? count : capacity - first;
    parts[0] = (struct iovec){(void *)&ring->records[first], before_wrap * sizeof(lf_record)};
    parts[1] = (struct iovec){(void *)&ring->records[0], (count - before_wrap) * sizeof(lf_record)};
}

/* Of records whose spans are not kept: the number of these, and all that are none, without memory. */
static int write_stripped(li_process *p, li_chunk chunk) {
    uint64_t went = 0;
    lf_record *stay = malloc((chunk.count + 1) * sizeof *stay);
    size_t stays = 0;
    for (int part = 0; stay && part < LI_PARTS; part++) {
        const lf_record *records = chunk.parts[part].iov_base;
        for (size_t i = 0; i < chunk.parts[part].iov_len / sizeof *records; i++) {
            if (records[i].kind < LF_FIRST_SPECIAL)
                went++;
            else if (records[i].kind != LF_EXTRA && records[i].kind >= LF_COUNTER)
                stay[stays++] = records[i];
        }
    }
    chunk.kind = LI_STRIPPED;
    chunk.parts[0] = (struct iovec){&went, sizeof went};
    chunk.parts[1] = (struct iovec){stay, stays * sizeof *stay};
    int fits = stay && li_write(p, chunk);
    free(stay);
    return fits;
}

/* The records of a ring up to ordinal `end`. */
static int write_records(li_process *p, li_piece *piece, uint64_t end) {
    lf_ring *ring = piece->memory;
    if (end == ring->h.consumed)
        return 1;
    li_chunk chunk = {.kind = LI_RECORDS, .key = piece->index, .count = (uint32_t)(end - ring->h.consumed),
                      .first = ring->h.consumed};
    struct iovec parts[LI_PARTS];
    waiting(ring, end, parts);
    memcpy(chunk.parts, parts, sizeof parts);
    if (!(p->is_full ? write_stripped(p, chunk) : li_write(p, chunk)))
        return 0;
    for (int i = 0; i < LI_PARTS; i++)
        li_sums_add(&p->sums, parts[i].iov_base, parts[i].iov_len / sizeof(lf_record));
    __atomic_store_n(&ring->h.consumed, end, __ATOMIC_RELEASE);
    return 1;
}

static int is_wanted(const li_piece *piece, uint64_t published, int at_knot) {
    const lf_ring *ring = piece->memory;
    return at_knot || published - ring->h.consumed >= ring->h.capacity / DRAIN_FROM_PART;
}

/* --- A poll --- */

static int write_sums(li_process *p) {
    size_t count = li_sums_rows(&p->sums, NULL, 0);
    size_t bytes = count * sizeof(li_sums_row);
    li_sums_row *rows = malloc(bytes ? bytes : 1);
    if (rows)
        li_sums_rows(&p->sums, rows, count);
    li_text text = {.data = (char *)rows, .used = bytes, .failed = !rows};
    return li_write_text(p, LI_TOTALS, &text);
}

static int knot(li_process *p, const int64_t reading[4]) {
    int fits = li_write_counters(p) & li_write_threads(p) & write_reading(p, reading);
    if (p->file.size_bytes > segment_bytes(p) && write_sums(p)) {
        li_file_rotate(&p->file);
    }
    if (p->file.written_bytes - p->looked_at_bytes > segment_bytes(p) / 4) {
        p->is_full = li_raw_bytes(p->raw) > p->max_size_bytes;
        p->looked_at_bytes = p->file.written_bytes;
    }
    return fits;
}

static int begin_file(li_process *p, const int64_t reading[4]) {
    li_text about = {0};
    if (p->file.written_bytes)
        return 1;
    li_add_process(&about, p->page);
    return li_write_text(p, LI_PROCESS, &about) && write_reading(p, reading);
}

/* Write down what is recorded; `at_knot`: all of it, and what the kernel counts. 0: the disk is full. */
int li_drain(li_process *p, int at_knot, int is_asked) {
    int64_t reading[4];
    uint64_t now = ls_monotonic_ns();
    int fits = 1, takes = at_knot;
    if (p->retry_ns && now < p->retry_ns && !is_asked)
        return 0;
    /* The order matters: after the clock every record that is taken now and ended before it is in this poll; after
     * `published` every name that those records use is in its segment. */
    ls_clock_reading(reading);
    li_piece *pieces = __atomic_load_n(&p->pieces, __ATOMIC_ACQUIRE);
    for (li_piece *one = pieces; one; one = one->next)
        if (one->kind == LF_SEND_RING) {
            one->end = __atomic_load_n(&((lf_ring *)one->memory)->h.published, __ATOMIC_ACQUIRE);
            takes |= is_wanted(one, one->end, at_knot);
        }
    if (!takes)
        return 1;
    fits = begin_file(p, reading);
    pieces = __atomic_load_n(&p->pieces, __ATOMIC_ACQUIRE); /* names may have got a segment meanwhile */
    for (li_piece *one = pieces; one && fits; one = one->next)
        if (one->kind == LF_SEND_NAMES)
            fits = write_names(p, one);
    for (li_piece *one = pieces; one && fits; one = one->next)
        if (one->kind == LF_SEND_RING && is_wanted(one, one->end, at_knot))
            fits = write_records(p, one, one->end);
    for (li_piece *one = pieces; one && fits && at_knot; one = one->next)
        if (one->kind == LF_SEND_RING)
            fits = li_write_open(p, one, 0);
    return fits && (!at_knot || knot(p, reading));
}

/* --- The end --- */

/* Append what a ring has lost without a record that tells, and what is still in it: [ring, left, full, too deep, first,
 * last]. */
UNSYNCHRONISED static void add_losses(li_text *text, const li_piece *piece) {
    const lf_ring *ring = piece->memory;
    const lf_ring_header *h = &ring->h;
    uint64_t left = 0, full = h->lost_full, deep = h->lost_deep;
    for (uint64_t i = h->consumed; i < h->published; i++) {
        const lf_record *r = &ring->records[i % h->capacity];
        left += r->kind < LF_FIRST_SPECIAL;
        full += r->kind == LF_LOST ? r->name : 0;
        deep += r->kind == LF_LOST ? r->module : 0;
    }
    if (left | full | deep)
        li_add(text, "%s[%u, %llu, %llu, %llu, %llu, %llu]", text->data[text->used - 1] == '[' ? "" : ", ",
               piece->index, (unsigned long long)left, (unsigned long long)full, (unsigned long long)deep,
               (unsigned long long)h->lost_first, (unsigned long long)h->lost_last);
}

UNSYNCHRONISED static void add_page_counts(li_text *text, const lf_page *page) {
    li_add(text, "\"lost_without_ring\": %llu, \"lost_without_ring_first\": %llu, \"lost_without_ring_last\": %llu, ",
           (unsigned long long)page->lost_without_ring, (unsigned long long)page->lost_without_ring_first,
           (unsigned long long)page->lost_without_ring_last);
    li_add(text, "\"lost_names\": %llu, \"callbacks\": 0, \"agent_cpu_ns\": %llu}",
           (unsigned long long)page->lost_names, (unsigned long long)page->agent_cpu_ns);
}

/* The last word on this process, until recording goes on: what is open, what was lost. 0: no room for it. */
int li_last_word(li_process *p) {
    li_text losses = {0};
    int64_t reading[4];
    int fits = 1;
    li_file_release(&p->file);
    li_add(&losses, "{\"losses\": [");
    for (li_piece *one = __atomic_load_n(&p->pieces, __ATOMIC_ACQUIRE); one; one = one->next)
        if (one->kind == LF_SEND_RING) {
            fits &= li_write_open(p, one, 1);
            add_losses(&losses, one);
        }
    li_add(&losses, "], \"disk_full_ns\": [");
    for (uint32_t i = 0; i < p->full; i++)
        li_add(&losses, "%s[%lld, %lld]", i ? ", " : "", (long long)p->full_ns[i][0], (long long)p->full_ns[i][1]);
    li_add(&losses, "], \"alive\": false, ");
    add_page_counts(&losses, p->page);
    ls_clock_reading(reading);
    fits = fits && write_sums(p) && li_write_text(p, LI_LOSS, &losses) && write_reading(p, reading);
    free(losses.data);
    return fits && li_write(p, (li_chunk){.kind = LI_END, .parts = {{"{}", 2}}});
}
