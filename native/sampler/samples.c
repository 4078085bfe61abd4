/* Samples of the areas become rows: the copy of the stack is unwound, the frames of Python take their places in it, and
 * the CPU time since the sample before is what it stands for.
 *
 * The ticks of a thread's clock come once in a period of its CPU time, but those that fall into the kernel are not
 * told. So of the time w since the sample before, n = w / period, rounded, ticks were due. n - 1 of them fell into the
 * kernel, and so did (n - 1) / n of w: `kernel_ns`.
 *
 * Where its clock began a period anew (periods.c), some CPU time had been used since the sample before, `skipped`. Then
 * n = (w - skipped) / period, and what was skipped lies before the first of these ticks: if others were in the kernel, it
 * is theirs. */
#define _GNU_SOURCE
#include "samples.h"

#include "areas.h"
#include "events.h"
#include "fault_rate.h"
#include "jit_code.h"
#include "joined_stacks.h"
#include "kernel_time.h"
#include "outside_frames.h"
#include "periods.h"
#include "procfs.h"
#include "recording.h"
#include "thinning.h"

#include <stdlib.h>
#include <string.h>

#define MOST_CODES (1u << 20)

/* --- Codes --- */

static int keep_code(sm_process *p, uint32_t code, uint32_t number) {
    if (code >= MOST_CODES)
        return -1;
    if (code >= p->codes.room) {
        uint32_t room = p->codes.room ? p->codes.room : 1024;
        while (room <= code)
            room *= 2;
        uint32_t *larger = realloc(p->codes.numbers, room * sizeof *larger);
        if (!larger)
            return -1;
        memset(larger + p->codes.room, 0xff, (room - p->codes.room) * sizeof *larger);
        p->codes.numbers = larger, p->codes.room = room;
    }
    p->codes.numbers[code] = number;
    return 0;
}

/* The code that a process knows by this number. The sampler before us may have been told of it: the reader has it. */
static uint32_t code_of(sm_process *p, uint32_t code) {
    if (code == LF_BETWEEN)
        return code;
    if (code < p->codes.room && p->codes.numbers[code] != LT_NONE)
        return p->codes.numbers[code];
    if (!sm.generation)
        return LT_NONE;
    uint32_t number = sm_code(&(sm_code_text){p->number, p->python, "", "", (const uint8_t *)"", 0, 0, 0, 0, code});
    keep_code(p, code, number);
    return number;
}

static int frames_of(sm_process *p, const lf_sample *sample, sm_python_frame *into) {
    const lf_sample_frame *frames = (const lf_sample_frame *)(sample + 1);
    for (uint32_t i = 0; i < sample->frames; i++)
        into[i] = (sm_python_frame){code_of(p, frames[i].code), frames[i].place};
    return (int)sample->frames;
}

static void take_code(sm_process *p, const lf_sample_code *code, size_t bytes) {
    size_t rest = bytes - sizeof *code;
    if (code->name_bytes > rest || code->file_bytes > rest - code->name_bytes
        || code->lines_bytes > rest - code->name_bytes - code->file_bytes)
        return;
    const char *name = (const char *)(code + 1), *file = name + code->name_bytes;
    sm_code_text text = {p->number, p->python, name, file, (const uint8_t *)file + code->file_bytes, code->name_bytes,
                         code->file_bytes, code->lines_bytes, code->first_line, code->code};
    keep_code(p, code->code, sm_code(&text));
}

void sm_codes_forget(sm_process *p) {
    free(p->codes.numbers);
}

/* --- Samples --- */

/* The frames of Python that the handler has copied, or that are read now. */
static int python_of(sm_thread *t, const lf_sample *sample, const sm_user_stack *user, const lu_frame_registers *had,
                     const lu_stack_copy *copy, sm_python_frame *into, uint32_t *flags) {
    int is_torn = 0;
    if (!t->process->outside.is_read)
        return frames_of(t->process, sample, into);
    int count = sm_outside_frames(t, user->native, had, user->count, user->how, copy, into, &is_torn);
    *flags |= is_torn ? LT_TORN : 0u;
    sm.torn += (uint64_t)is_torn;
    return count;
}

static uint32_t unwind(sm_thread *t, const lf_sample *sample, const uint8_t *stack, uint32_t *flags,
                       sm_user_stack *user) {
    static lu_native_frame native[SM_FRAMES_MOST];
    static lu_frame_registers registers[SM_FRAMES_MOST];
    sm_process *p = t->process;
    lu_frame_registers *had = p->outside.is_read ? registers : NULL;
    static sm_python_frame python[LF_SAMPLES_FRAMES_MOST];
    lu_space *space = sm_space(p, 0);
    if (!space)
        return LT_NONE;
    if (p->outside.is_read)
        sm_outside_look(t);
    lu_stack_copy copy = {sample->registers[LF_RSP], stack, sample->stack_bytes, NULL, &p->pid, sm_read_snapshot};
    sm_snapshot_begin();
    uint32_t how = 0, all = (1u << LF_REGISTERS) - 1;
    int count = lu_unwind_registers(space, sample->registers, all, &copy, native, had, SM_FRAMES_MOST, &how);
    if (how & LU_UNWOUND_STALE) {
        sm_space(p, 1);
        count = lu_unwind_registers(space, sample->registers, all, &copy, native, had, SM_FRAMES_MOST, &how);
    }
    *user = (sm_user_stack){.how = how, .native = native, .count = count};
    int frames = python_of(t, sample, user, had, &copy, python, flags);
    lt_quality *q = &sm.quality;
    int is_cut = how & LU_UNWOUND_CUT || sample->head.flags & (LF_SAMPLE_STACK_CUT | LF_SAMPLE_FRAMES_CUT);
    q->to_root += !!(how & LU_UNWOUND_ROOT);
    q->jit += !!(how & LU_UNWOUND_JIT);
    q->jit_to_root += how & LU_UNWOUND_JIT && how & LU_UNWOUND_ROOT;
    q->cut += !!is_cut;
    uint32_t joined = sm_join(p, native, count, how, python, frames, flags);
    q->python += frames > 0;
    q->spliced += frames > 0 && !(*flags & LT_NO_SPLICE);
    *user = (sm_user_stack){joined, how, native, python, count, frames, !(*flags & LT_NO_SPLICE)};
    return joined;
}

uint64_t sm_lost_samples(const sm_thread *t) {
    const sm_process *p = t->process;
    return p->copied.is_on || t->copied.fds || !p->area ? sm.lost_copies : sm_area_lost(p->area);
}

static int is_copy(const lf_sample *sample) { return sample->event == SM_COPIED(SM_CPU); }

static uint64_t clock_period(const sm_thread *t) { return t->sampled.period_ns ? t->sampled.period_ns : sm.period_ns; }

/* The longest time from the sample before to this one in which no tick was due. */
static uint64_t period_of(const sm_thread *t, const lf_sample *sample) {
    if (is_copy(sample))
        return sm_events_copies_period();
    return clock_period(t) + t->sampled.skipped_ns;
}

/* Of `passed` CPU time since the sample before, what was in the kernel, by the ticks that were due. */
static uint64_t missed_ns(const sm_thread *t, uint64_t passed) {
    uint64_t skipped = t->sampled.skipped_ns < passed ? t->sampled.skipped_ns : passed;
    uint64_t ticks = (passed - skipped + clock_period(t) / 2) / clock_period(t);
    return ticks > 1 ? passed - (passed - skipped) / ticks : 0;
}

/* Copies are made by a clock for each CPU, so the time between two of them says nothing. All together they leave out
 * what was in the kernel, and up to a period for each CPU. Each stands for a period of the time in which its clock was
 * not paused, and for as much of the rest as that is of the whole. */
static uint64_t left_by_copies(sm_thread *t, uint64_t passed_ns, uint64_t period_ns) {
    int cpus = __builtin_popcountll(t->wait.cpus);
    double all_ns = (double)(t->copied.all_ns += passed_ns), paused_ns = (double)t->copied.paused_ns;
    double scale = paused_ns < all_ns / 2 ? all_ns / (all_ns - paused_ns) : 2;
    double user_ns = (double)period_ns * scale * (double)(++t->copied.samples + (uint64_t)(cpus ? cpus : 1));
    double kernel_ns = all_ns - user_ns - (double)t->copied.kernel_ns;
    if (kernel_ns < 1)
        return 0;
    uint64_t found_ns = kernel_ns < (double)passed_ns ? (uint64_t)kernel_ns : passed_ns;
    t->copied.kernel_ns += found_ns;
    return found_ns;
}

/* The CPU time since the sample before, and the part of it in the kernel, as above. Where samples were lost meanwhile
 * nobody knows what more than a period of it was. */
static void weigh(sm_thread *t, const lf_sample *sample, lt_sample *row) {
    uint64_t alive_ns = sm.now_ns > t->start_ns ? sm.now_ns - t->start_ns : 0;
    uint64_t period_ns = period_of(t, sample);
    uint64_t passed = sample->cpu_ns > t->time.told_ns ? sample->cpu_ns - t->time.told_ns : 0;
    if (passed > alive_ns + period_ns) /* not what a clock of this thread can say */
        passed = 0;
    t->time.told_ns += passed;
    uint64_t lost = sm_lost_samples(t);
    if (lost != t->sampled.lost_before && passed > period_ns) {
        lt_sample unknown = sm_sample(t, sample->at_ns, LT_CPU, passed - period_ns);
        sm_tell(t, &unknown);
        passed = period_ns;
    }
    t->sampled.lost_before = lost;
    t->sampled.last_ns = sample->at_ns;
    t->sampled.last_stack = row->stack;
    row->weight_ns = passed;
    if (is_copy(sample)) {
        row->kernel_ns = left_by_copies(t, passed, period_ns);
        return;
    }
    if (!(sample->head.flags & LF_SAMPLE_TIMER))
        row->kernel_ns = missed_ns(t, passed);
    t->sampled.skipped_ns = 0;
}

/* Which event made it. */
static int event_of(const sm_thread *t, const lf_sample *sample) {
    int found = SM_EVENTS - 1;
    while (found > SM_CPU && sample->event != SM_COPIED(found)
           && (t->events[found] < 0 || sample->event != t->events[found] || sample->head.flags & LF_SAMPLE_TIMER))
        found--;
    return found;
}

/* Whether the time of a sample can be: readers of the file rely on it. */
static int is_of_now(uint64_t at_ns) {
    return at_ns + SM_SECOND_NS > sm.start_ns && (at_ns <= sm.now_ns || at_ns <= sm_clock(CLOCK_MONOTONIC));
}

void sm_take_sample(sm_process *p, const lf_sample *sample, size_t bytes) {
    size_t frames_bytes = ((size_t)sample->frames * sizeof(lf_sample_frame) + 15) & ~(size_t)15;
    sm_thread *t = sm_thread_at(sample->tid, sample->at_ns);
    sm.quality.samples++;
    if (!t || t->process != p || sample->frames > LF_SAMPLES_FRAMES_MOST
        || sample->stack_bytes > LF_SAMPLES_STACK_MOST
        || sizeof *sample + frames_bytes + sample->stack_bytes > bytes || !is_of_now(sample->at_ns)) {
        sm.quality.lost++;
        return;
    }
    int event = event_of(t, sample), fault = event != SM_CPU;
    uint32_t faults = fault ? sm_fault_weight(t, event, sample->at_ns, sample->event == SM_COPIED(event)) : 0;
    if (fault && !faults) {
        sm.quality.samples--;
        return;
    }
    uint32_t flags = 0;
    sm_user_stack user = {.stack = LT_NONE};
    uint32_t stack = unwind(t, sample, (const uint8_t *)(sample + 1) + frames_bytes, &flags, &user);
    lt_sample row = sm_sample(t, sample->at_ns, fault ? LT_FAULT : LT_CPU, 0);
    t->sampled.count++;
    row.stack = stack;
    row.flags = flags;
    if (fault) {
        row.count = faults;
        *(event == SM_MAJOR ? &t->sampled.faults_major : &t->sampled.faults_minor) += faults;
    }
    else
        weigh(t, sample, &row);
    if (!fault && t->events[SM_CPU] >= 0 && !is_copy(sample))
        sm_period_vary(t, sample->at_ns);
    p->copied.is_read_later |= user.how & LU_UNWOUND_LATER;
    if (!fault)
        sm_kernel_share(t, &row, &user);
    sm_tell(t, &row);
}

void sm_take_record(sm_process *p, const lf_sample_head *head, size_t bytes) {
    if (head->kind == LF_SAMPLE_STACK && bytes >= sizeof(lf_sample))
        sm_take_sample(p, (const lf_sample *)head, bytes);
    else if (head->kind == LF_SAMPLE_CODE && bytes >= sizeof(lf_sample_code))
        take_code(p, (const lf_sample_code *)head, bytes);
    else if (head->kind == LF_SAMPLE_MADE && bytes >= sizeof(lf_sample_made))
        sm_take_made(p, (const lf_sample_made *)head, bytes);
    else if (head->kind == LF_SAMPLE_NAME && bytes >= sizeof(lf_sample_name))
        sm_take_name(p, (const lf_sample_name *)head, bytes);
}
