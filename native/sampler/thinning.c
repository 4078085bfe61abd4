/* What of the samples is written, so that the file stays as large as it may be however long the program runs.
 *
 * A part of its bytes is there at once, and as much again for each doubling of the run from ten minutes on. When
 * more comes, of 2, 4, 8, ... samples of a thread (2^level) one is written and stands for all: chosen by chance, with
 * the probability of its weight, and with the weights of all. So what a stack has is right on average, and sums are
 * exact: for each thread its CPU time, the part of it in the kernel, its faults, and its waits by system call, kind of
 * file and whether it was preempted. Parts of one wait become one without loss. */
#define _GNU_SOURCE
#include "thinning.h"

#include "output.h"
#include "recording.h"

#include <stdlib.h>

/* The shares: one at once and one for each doubling, for seven months. */
#define SHARES 16u
#define DOUBLING_NS (600ull * 1000000000ull)
#define MOST_LEVEL 30u
/* How long a level is looked at before it is changed, and how far ahead. */
#define WATCH_NS 2000000000ull
#define AHEAD_NS 64000000000ull
/* One that is held back for longer is moved on in time, so that what is told is never far behind. */
#define HELD_NS 8000000000ull
#define REASONS 6u

typedef struct {
    lt_sample row;   /* that is written of those so far; with `samples` 0: none */
    uint64_t weight_ns, kernel_ns, count;
    uint32_t samples;
    int is_one_wait; /* all are parts of it, one after the other */
} held;
struct sm_held {
    held of[REASONS];
};

static uint32_t level;

uint32_t sm_thinning_level(void) {
    return level;
}

/* What may be written by then: the logarithm is a line between powers of two. */
static uint64_t allowed(uint64_t passed_ns) {
    uint64_t doublings = 0, all = passed_ns / DOUBLING_NS + 1;
    while (all >> (doublings + 1))
        doublings++;
    double shares = (double)doublings + ((double)passed_ns / (double)DOUBLING_NS + 1.0) / (double)(1ull << doublings);
    return (uint64_t)((double)sm_rows_most() * (shares < SHARES ? shares / SHARES : 1.0));
}

static void set_level(void) {
    static uint64_t since_ns, before;
    uint64_t passed_ns = sm.now_ns > sm.start_ns ? sm.now_ns - sm.start_ns : 0, watched = sm.now_ns - since_ns;
    uint64_t written_bytes = sm_rows_written();
    if (!since_ns || !sm_rows_most() || watched < WATCH_NS) {
        since_ns = since_ns ? since_ns : sm.now_ns;
        return;
    }
    uint64_t now = allowed(passed_ns), later = allowed(passed_ns + AHEAD_NS);
    double rate = (double)(written_bytes - before) / (double)watched, ahead = rate * (double)AHEAD_NS;
    if (written_bytes > now && ahead > (double)(later - now) && level < MOST_LEVEL)
        level++;
    else if (level && (double)written_bytes + 2.0 * ahead < (double)later)
        level--;
    since_ns = sm.now_ns;
    before = written_bytes;
}

/* --- Held back --- */

static uint64_t at_random(uint64_t below) {
    static uint64_t x = 0x9e3779b97f4a7c15ull;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x % below;
}

static void write_row(const lt_sample *row) {
    lt_sample *into = sm_row(LT_SAMPLES, sizeof *into);
    if (into)
        *into = *row;
}

static void write_held(held *h) {
    h->row.weight_ns = h->weight_ns;
    h->row.kernel_ns = h->kernel_ns;
    h->row.count = h->count < LT_NONE ? (uint32_t)h->count : LT_NONE;
    if (h->samples > 1 && !h->is_one_wait)
        h->row.flags &= ~(uint32_t)(LT_EXACT | LT_UNFINISHED);
    write_row(&h->row);
    h->samples = 0;
}

static int is_same_reason(const lt_sample *a, const lt_sample *b) {
    return a->kind == b->kind && a->system_call == b->system_call && a->file == b->file
        && !((a->flags ^ b->flags) & (LT_PREEMPTED | LT_BEFORE));
}

/* With more reasons than places the last place is made free. */
static held *place_of(struct sm_held *all, const lt_sample *row) {
    held *empty = NULL;
    for (uint32_t i = 0; i < REASONS; i++) {
        held *h = &all->of[i];
        if (h->samples && is_same_reason(&h->row, row))
            return h;
        if (!h->samples && !empty)
            empty = h;
    }
    if (!empty)
        write_held(empty = &all->of[REASONS - 1]);
    return empty;
}

/* Of faults their number counts, of what has no weight nothing. */
static uint64_t weight_of(const lt_sample *row) {
    return row->kind == LT_FAULT ? row->count : row->weight_ns;
}

static void join(held *h, const lt_sample *row) {
    const uint32_t whole = LT_EXACT | LT_UNFINISHED;
    int goes_on = h->is_one_wait && (h->row.flags & whole) == whole && h->row.stack == row->stack
               && row->flags & LT_EXACT && h->row.at_ns + h->weight_ns == row->at_ns;
    h->weight_ns += row->weight_ns;
    h->kernel_ns += row->kernel_ns;
    h->samples++;
    if (goes_on) {
        h->row.flags = row->flags;
        h->row.waker = row->waker;
        return;
    }
    h->count += row->count;
    h->is_one_wait = 0;
    uint64_t all = h->row.kind == LT_FAULT ? h->count : h->weight_ns, its = weight_of(row);
    if (its && at_random(all) < its)
        h->row = *row;
}

/* --- Rows --- */

lt_sample sm_sample(const sm_thread *t, uint64_t at_ns, uint32_t kind, uint64_t weight_ns) {
    return (lt_sample){.at_ns = at_ns, .thread = t->number, .stack = LT_NONE, .weight_ns = weight_ns, .kind = kind,
                       .count = 1, .system_call = -2, .file = kind == LT_CPU ? sm.hz : 0, .waker = LT_NONE};
}

/* A row of LT_SAMPLES: now, or as a part of a later one. */
void sm_tell(sm_thread *t, const lt_sample *row) {
    if (!t->held && level)
        t->held = calloc(1, sizeof *t->held);
    if (!t->held) {
        write_row(row);
        return;
    }
    held *h = place_of(t->held, row);
    if (h->samples)
        join(h, row);
    else
        *h = (held){*row, row->weight_ns, row->kernel_ns, row->count, 1, row->kind == LT_OFFCPU};
    if (h->samples >> level)
        write_held(h);
}

/* What is held back for the thread, which has ended or is told as it is. */
void sm_tell_held(sm_thread *t) {
    for (uint32_t i = 0; t->held && i < REASONS; i++)
        if (t->held->of[i].samples)
            write_held(&t->held->of[i]);
    free(t->held);
    t->held = NULL;
}

static void move_on(held *h, uint64_t at_ns) {
    h->row.at_ns = at_ns;
    h->row.flags &= ~(uint32_t)LT_EXACT;
    h->is_one_wait = 0;
}

/* All samples that began before this are written, but for waits that are told in parts. */
uint64_t sm_held_oldest(void) {
    uint64_t oldest = sm.now_ns, least = sm.now_ns - HELD_NS;
    for (sm_process *p = sm_processes(); p; p = p->next)
        for (sm_thread *t = p->threads; t; t = t->next)
            for (uint32_t i = 0; t->held && i < REASONS; i++) {
                held *h = &t->held->of[i];
                if (!h->samples || (h->is_one_wait && h->row.flags & LT_UNFINISHED))
                    continue;
                if (h->row.at_ns < least)
                    move_on(h, least);
                oldest = h->row.at_ns < oldest ? h->row.at_ns : oldest;
            }
    return oldest;
}

void sm_thinning_each_second(void) {
    set_level();
    for (sm_process *p = level ? NULL : sm_processes(); p; p = p->next)
        for (sm_thread *t = p->threads; t; t = t->next)
            sm_tell_held(t);
}
