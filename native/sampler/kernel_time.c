/* What the kernel does for a thread, where rights allow: a second clock of each thread, which tells nobody by a signal
 * and ticks in the kernel alone. Its records have the functions of the kernel, the registers at its entry and a part of
 * the thread's stack, so the native frames are those of that moment. Frames of Python lie elsewhere. The innermost is
 * told by what the interpreter keeps on the stack (python_function.c). Those around it are what is read when the record
 * is, or what the next sample of the thread has, if that function is among them; else they are left out.
 *
 * How much CPU time was spent in the kernel is not said by these ticks but by the samples, as in samples.c: the ticks
 * since the sample before share it, and all adds up to the CPU time as it does without them. What no tick fell into
 * has no functions. */
#define _GNU_SOURCE
#include "kernel_time.h"

#include "perf_event.h"
#include "python_function.h"
#include "python_stacks.h"
#include "rate_limit.h"
#include "recording.h"
#include "thinning.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

/* Of ticks that wait for a sample, of each thread; later ones are left out. */
#define WAITING_MOST 256u
#define WAITS_MOST_NS 1000000000ull
#define KERNEL_MOST 128u
#define WORDS_MOST 4096u
#define NOT_KNOWN "(function not known)"
#define INTERPRETER "_PyEval_EvalFrameDefault"

typedef struct sm_kernel_tick kernel_tick;
struct sm_kernel_tick {
    kernel_tick *next;
    uint64_t at_ns;
    uint32_t how;
    int natives, kernels, pythons;
    int is_inside; /* the copy of the stack ends inside of all frames of the interpreter */
    sm_python_frame inner;   /* the innermost of Python, its code LT_NONE: not known */
    lu_native_frame *native; /* the leaf first, in the same block of memory */
    uint64_t *kernel;        /* the innermost first */
    sm_python_frame *python; /* with those around `inner`, if there are some */
};

/* To start and stop the clock at a switch costs about 2 us: up to so many in a second are 1 % of a CPU. */
static sm_rate_limit limit = {.most = 4000};

/* The clock of a thread in the kernel, on one CPU; inherited by all that it begins. 0, or minus an errno. */
int sm_kernel_open(int32_t tid, int cpu, uint32_t stack_bytes) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_CPU_CLOCK};
    a.sample_period = sm.period_ns;
    a.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN
                  | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    a.inherit = a.sample_id_all = a.use_clockid = a.watermark = 1;
    a.exclude_user = a.exclude_hv = a.exclude_callchain_user = 1;
    a.clockid = CLOCK_MONOTONIC;
    a.wakeup_watermark = 0xffffffffu;
    a.sample_stack_user = stack_bytes;
    a.sample_regs_user = SM_USER_REGISTERS;
    return sm_perf_event_open(&a, tid, cpu);
}

int sm_kernel_keep(int fd) {
    return sm_rate_limit_keep(&limit, fd);
}

/* The clocks that threads have inherited keep theirs: more ticks share the same time. */
void sm_kernel_new_rate(void) {
    sm_rate_limit_new_period(&limit, sm.period_ns);
}

void sm_kernel_tick(void) {
    sm_rate_limit_tick(&limit);
}

/* A thread came onto a CPU, where its clock is started: with too many of these the clocks cost too much. */
void sm_kernel_switched(void) {
    if (limit.used)
        sm_rate_limit_count(&limit);
}

/* --- Records --- */

typedef struct {
    const uint8_t *at, *end;
} bytes_left;

static int take(bytes_left *from, void *into, size_t bytes) {
    if ((size_t)(from->end - from->at) < bytes)
        return -1;
    if (into)
        memcpy(into, from->at, bytes);
    from->at += bytes;
    return 0;
}

/* The functions of the kernel; how many, -1 if the record is not as it should be. */
static int take_chain(bytes_left *from, uint64_t into[KERNEL_MOST]) {
    uint64_t count, address;
    int found = 0;
    if (take(from, &count, sizeof count))
        return -1;
    for (uint64_t i = 0; i < count; i++) {
        if (take(from, &address, sizeof address))
            return -1;
        if (address < PERF_CONTEXT_MAX && found < (int)KERNEL_MOST)
            into[found++] = address;
    }
    return found;
}

/* 0: the thread has a stack. */
static int take_user(bytes_left *from, uint64_t registers[LF_REGISTERS], lu_stack_copy *stack) {
    uint64_t form, value, bytes, written;
    if (take(from, &form, sizeof form) || form != PERF_SAMPLE_REGS_ABI_64)
        return -1;
    for (int i = 0; i < LF_REGISTERS; i++)
        if (take(from, &value, sizeof value))
            return -1;
        else
            registers[sm_user_registers[i]] = value;
    if (take(from, &bytes, sizeof bytes))
        return -1;
    *stack = (lu_stack_copy){registers[LF_RSP], from->at, 0, NULL, NULL};
    if (!bytes || take(from, NULL, bytes) || take(from, &written, sizeof written))
        return -1;
    stack->bytes = written < bytes ? written : bytes;
    return 0;
}

static int innermost_interpreter(const sm_process *p, const kernel_tick *tick) {
    int at = 0;
    while (at < tick->natives && !lu_space_in_function(p->space, tick->native[at].address, INTERPRETER))
        at++;
    return at;
}

/* What the interpreter may have its next instruction in, of the innermost of its frames: what its callees have saved,
 * the nearest one first, registers that calls preserve, and its own frame. */
static size_t words_of(const sm_process *p, const kernel_tick *tick, const uint64_t registers[LF_REGISTERS],
                       const lu_stack_copy *stack, uint64_t into[WORDS_MOST]) {
    static const int preserved[] = {LF_RBX, LF_RBP, LF_R12, LF_R13, LF_R14, LF_R15};
    int at = innermost_interpreter(p, tick);
    size_t count = 0;
    if (at == tick->natives)
        return 0;
    uint64_t begin = at ? tick->native[at - 1].frame : stack->base, end = stack->base + stack->bytes;
    end = tick->native[at].frame < end ? tick->native[at].frame : end;
    if (begin < stack->base || begin > end || (begin - stack->base) % 8 || end - stack->base > 8 * (WORDS_MOST - 6))
        return 0;
    for (uint64_t place = begin; place > stack->base; place -= 8)
        memcpy(&into[count++], stack->copy + (place - 8 - stack->base), 8);
    for (size_t i = 0; i < sizeof preserved / sizeof *preserved; i++)
        into[count++] = registers[preserved[i]];
    for (uint64_t place = begin; place + 8 <= end; place += 8)
        memcpy(&into[count++], stack->copy + (place - stack->base), 8);
    return count;
}

/* The frames of Python from that one outwards, among those of a later moment; how many, 0: it is not there. */
static int outwards(sm_python_frame inner, const sm_python_frame *from, int count, sm_python_frame *into) {
    for (int i = 0; i < count; i++)
        if (inner.code != LT_NONE && from[i].code == inner.code) {
            memcpy(into, from + i, (size_t)(count - i) * sizeof *into);
            into->place = inner.place | (from[i].place & LF_ENTRY);
            return count - i;
        }
    return 0;
}

static void find_python(sm_thread *t, kernel_tick *tick, const uint64_t registers[LF_REGISTERS],
                        const lu_stack_copy *stack) {
    static uint64_t words[WORDS_MOST];
    static lu_python_frame raw[LF_SAMPLES_FRAMES_MOST];
    static sm_python_frame now[LF_SAMPLES_FRAMES_MOST], around[LF_SAMPLES_FRAMES_MOST];
    size_t count = words_of(t->process, tick, registers, stack, words);
    tick->is_inside = innermost_interpreter(t->process, tick) == tick->natives;
    if (!count)
        return;
    int frames = sm_python_frames(t, raw, now);
    tick->inner = sm_python_at(t->process, raw, now, frames, words, count);
    tick->pythons = outwards(tick->inner, now, frames, around);
    tick->python = around;
}

static void keep(sm_thread *t, const kernel_tick *found) {
    size_t of_native = (size_t)found->natives * sizeof *found->native,
           of_kernel = (size_t)found->kernels * sizeof *found->kernel,
           of_python = (size_t)found->pythons * sizeof *found->python;
    kernel_tick *tick = malloc(sizeof *tick + of_native + of_kernel + of_python), **last = &t->kernel.ticks;
    if (!tick)
        return;
    *tick = *found;
    tick->native = memcpy(tick + 1, found->native, of_native);
    tick->kernel = memcpy(tick->native + tick->natives, found->kernel, of_kernel);
    tick->python = (sm_python_frame *)(tick->kernel + tick->kernels);
    if (of_python)
        memcpy(tick->python, found->python, of_python);
    while (*last)
        last = &(*last)->next;
    *last = tick;
    t->kernel.count++;
}

void sm_kernel_take(const void *record) {
    static lu_native_frame native[SM_FRAMES_MOST];
    const struct perf_event_header *header = record;
    bytes_left from = {(const uint8_t *)record + sizeof *header, (const uint8_t *)record + header->size};
    struct {
        uint32_t pid, tid;
        uint64_t time, cpu;
    } id;
    uint64_t kernel[KERNEL_MOST], registers[LF_REGISTERS] = {0};
    lu_stack_copy stack;
    if (take(&from, &id, sizeof id))
        return;
    sm_thread *t = sm_thread_at((int32_t)id.tid, id.time);
    int kernels = take_chain(&from, kernel);
    if (kernels <= 0 || !t || t->process->pid != (int32_t)id.pid || !t->process->is_sampled
        || t->kernel.count >= WAITING_MOST)
        return;
    kernel_tick tick = {.at_ns = id.time, .kernels = kernels, .kernel = kernel, .native = native,
                           .inner = {LT_NONE, 0}};
    lu_space *space = sm_space(t->process, 0);
    if (space && !take_user(&from, registers, &stack)) {
        uint32_t all = (1u << LF_REGISTERS) - 1;
        tick.natives = lu_unwind(space, registers, all, &stack, native, SM_FRAMES_MOST, &tick.how);
        find_python(t, &tick, registers, &stack);
    }
    keep(t, &tick);
}

/* --- Their stacks --- */

static uint32_t with_kernel(uint32_t stack, const kernel_tick *tick) {
    for (int i = tick->kernels - 1; i >= 0; i--) {
        uint32_t frame = sm_frame(LT_KERNEL, 0, tick->kernel[i] - (i > 0), i > 0);
        uint32_t inner = frame == LT_NONE ? LT_NONE : sm_stack(stack, frame);
        if (inner == LT_NONE) /* there is no room for more of it */
            break;
        stack = inner;
    }
    return stack;
}

/* The frames of the tick, and where its copy of the stack ends those of the sample that lie around: those of the same
 * calls end at the same addresses. How many, 0: they do not meet. */
static int whole(const kernel_tick *tick, const sm_user_stack *sample, lu_native_frame *into, uint32_t *how) {
    int count = tick->natives;
    memcpy(into, tick->native, (size_t)count * sizeof *into);
    *how = tick->how;
    if (*how & LU_UNWOUND_ROOT)
        return count;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < sample->count; j++)
            if (into[i].frame == sample->native[j].frame && i + sample->count - j <= SM_FRAMES_MOST) {
                memcpy(into + i + 1, sample->native + j + 1, (size_t)(sample->count - j - 1) * sizeof *into);
                *how = sample->how;
                return i + sample->count - j;
            }
    return 0;
}

/* How many frames of the interpreter there are (`evals`), and how many of the outermost are those of the sample too:
 * they end at the same address. */
static int common(sm_process *p, const lu_native_frame *native, int count, const sm_user_stack *sample, int *evals) {
    int same = 0, is_same = 1, at = sample->count - 1;
    *evals = 0;
    for (int i = count - 1; i >= 0; i--) {
        if (!lu_space_in_function(p->space, native[i].address, INTERPRETER))
            continue;
        ++*evals;
        while (at >= 0 && !lu_space_in_function(p->space, sample->native[at].address, INTERPRETER))
            at--;
        is_same = is_same && at >= 0 && sample->native[at--].frame == native[i].frame;
        same += is_same;
    }
    return same;
}

/* The frames of Python without the innermost groups, of which `kept` stay. Each ends, at its outermost frame, with
 * LF_ENTRY; they lie the innermost first. */
static int without_inner(const sm_user_stack *sample, int kept) {
    int at = sample->frames;
    for (int groups = 0; at > 0; at--)
        if (sample->python[at - 1].place & LF_ENTRY && ++groups > kept)
            break;
    return at;
}

static int groups_of(const sm_python_frame *python, int frames) {
    int groups = 0;
    for (int i = 0; i < frames; i++)
        groups += !!(python[i].place & LF_ENTRY);
    return groups;
}

/* The innermost frame of Python in the innermost of `evals` frames of the interpreter. Of those around that one the
 * outermost `same` have the frames of the sample, of those between nothing is known. */
static int alone(sm_process *p, sm_python_frame inner, const sm_user_stack *sample, int evals, int same,
                 sm_python_frame into[LF_SAMPLES_FRAMES_MOST]) {
    const sm_code_text unknown = {.process = p->number, .python = p->python, .name = NOT_KNOWN, .file = "",
                                  .lines = (const uint8_t *)"", .name_bytes = sizeof NOT_KNOWN - 1,
                                  .known_as = LT_NONE};
    int groups = groups_of(sample->python, sample->frames), count = 0;
    same = same < evals ? same : evals - 1;
    same = same < groups ? same : groups;
    int from = without_inner(sample, same);
    if (evals - same + sample->frames - from > (int)LF_SAMPLES_FRAMES_MOST)
        return 0;
    inner.code = inner.code == LT_NONE ? sm_code(&unknown) : inner.code;
    into[count++] = (sm_python_frame){inner.code, inner.place | LF_ENTRY};
    while (count < evals - same)
        into[count++] = (sm_python_frame){LT_NONE, LF_ENTRY};
    for (int i = from; i < sample->frames; i++)
        into[count++] = sample->python[i];
    return count;
}

static int python_of(sm_process *p, const kernel_tick *tick, const sm_user_stack *sample, int evals, int same,
                     sm_python_frame into[LF_SAMPLES_FRAMES_MOST]) {
    if (!evals)
        return 0;
    memcpy(into, tick->python, (size_t)tick->pythons * sizeof *into);
    if (tick->pythons && groups_of(into, tick->pythons) == evals)
        return tick->pythons;
    int frames = outwards(tick->inner, sample->python, sample->frames, into);
    if (frames && groups_of(into, frames) == evals)
        return frames;
    if (tick->is_inside && sample->has_fitted && same == evals) {
        memcpy(into, sample->python, (size_t)sample->frames * sizeof *into);
        return sample->frames;
    }
    return alone(p, tick->inner, sample, evals, sample->has_fitted ? same : 0, into);
}

static uint32_t stack_of(sm_process *p, const kernel_tick *tick, const sm_user_stack *sample) {
    static lu_native_frame native[SM_FRAMES_MOST];
    static sm_python_frame python[LF_SAMPLES_FRAMES_MOST];
    uint32_t how, flags = 0;
    int count = p->space ? whole(tick, sample, native, &how) : 0;
    if (!count) /* what was around the sample is around it */
        return with_kernel(sample->stack, tick);
    int evals, same = common(p, native, count, sample, &evals);
    int frames = python_of(p, tick, sample, evals, same, python);
    return with_kernel(sm_join(p, native, count, how, python, frames, &flags), tick);
}

/* --- Their weights --- */

static void drop(sm_thread *t) {
    kernel_tick *tick = t->kernel.ticks;
    t->kernel.ticks = tick->next;
    t->kernel.count--;
    free(tick);
}

static void tell(sm_thread *t, const lt_sample *of, uint32_t stack, uint64_t weight_ns) {
    lt_sample row = *of;
    row.stack = stack;
    row.weight_ns = row.kernel_ns = weight_ns;
    row.flags = 0;
    sm_tell(t, &row);
}

/* The ticks up to this sample share its time in the kernel, which it then has no more. The two clocks are not in step:
 * a tick may have to wait for the next sample that has some. */
void sm_kernel_share(sm_thread *t, lt_sample *sample, const sm_user_stack *user) {
    uint32_t left = 0;
    while (!sample->kernel_ns && t->kernel.ticks && t->kernel.ticks->at_ns + WAITS_MOST_NS < sample->at_ns)
        drop(t);
    if (!sample->kernel_ns)
        return;
    for (const kernel_tick *tick = t->kernel.ticks; tick && tick->at_ns <= sample->at_ns; tick = tick->next)
        left++;
    uint64_t rest_ns = left ? sample->kernel_ns : 0;
    sample->weight_ns -= rest_ns;
    sample->kernel_ns -= rest_ns;
    for (; left; left--) {
        uint64_t weight_ns = rest_ns / left;
        if (weight_ns)
            tell(t, sample, stack_of(t->process, t->kernel.ticks, user), weight_ns);
        rest_ns -= weight_ns;
        drop(t);
    }
}

/* No sample comes any more: each tick stands for one period of what is left of the CPU time. */
void sm_kernel_rest(sm_thread *t, uint64_t at_ns, uint64_t cpu_ns) {
    static const sm_user_stack nothing = {.stack = LT_NONE};
    while (t->kernel.ticks) {
        uint64_t rest_ns = cpu_ns > t->time.told_ns ? cpu_ns - t->time.told_ns : 0;
        uint64_t weight_ns = rest_ns < sm.period_ns ? rest_ns : sm.period_ns;
        lt_sample row = sm_sample(t, at_ns, LT_CPU, weight_ns);
        if (weight_ns)
            tell(t, &row, stack_of(t->process, t->kernel.ticks, &nothing), weight_ns);
        t->time.told_ns += weight_ns;
        drop(t);
    }
}
