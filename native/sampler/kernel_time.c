/* What the kernel does for a thread, where rights allow: a second clock of each thread, which tells nobody by a signal
 * and ticks in the kernel alone. Its records have the functions of the kernel, the registers at its entry and a part of
 * the thread's stack, so the native frames are those of that moment. Frames of Python lie elsewhere. Which function each
 * C frame of the interpreter ran is told by what the interpreter keeps there (python_function.c). Those around it come
 * from stacks that the thread had about then (recent_stacks.c); what none of them has is left out.
 *
 * How much CPU time was spent in the kernel is not said by these ticks but by the samples, as in samples.c: the ticks
 * since the sample before share it, and all adds up to the CPU time as it does without them. The two clocks are not in
 * step, so either waits for the other. What no tick falls into for a second has no functions. */
#define _GNU_SOURCE
#include "kernel_time.h"

#include "chance.h"
#include "interpreter_frames.h"
#include "outside_frames.h"
#include "perf_event.h"
#include "procfs.h"
#include "python_function.h"
#include "python_stacks.h"
#include "rate_limit.h"
#include "recent_stacks.h"
#include "recording.h"
#include "thinning.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

/* Of ticks that wait for a sample, of each thread; later ones are left out. */
#define WAITING_MOST 256u
#define WAITS_MOST_NS 1000000000ull
/* Who runs a function that nobody has seen yet is mostly seen soon. */
#define UNKNOWN_WAITS_NS 300000000ull
#define KERNEL_MOST 128u

typedef struct sm_kernel_tick kernel_tick;
struct sm_kernel_tick {
    kernel_tick *next;
    uint64_t at_ns;
    uint32_t how;
    int natives, kernels, pythons, evals;
    lu_native_frame *native; /* the leaf first, in the same block of memory */
    uint64_t *kernel;        /* the innermost first */
    sm_python_frame *python; /* of the whole thread, when the record was read */
    sm_python_frame *inner;  /* what each C frame of the interpreter ran, the innermost first; LT_NONE: not known */
    sm_interpreter_words *words; /* by which the first of these can be told; NULL: it is known */
};

/* To start and stop the clock at a switch costs about 2 us: up to so many in a second are 1 % of a CPU. */
static sm_rate_limit limit = {.most = 4000};

/* Another one than that of samples: a clock that ticks with theirs would see the kernel send their signals. */
static uint64_t own_period(void) { return sm.period_ns - sm.period_ns / 14; }

static int open_clock(int32_t tid, int cpu, uint32_t stack_bytes, uint64_t period_ns, int is_inherited) {
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_CPU_CLOCK};
    a.sample_period = period_ns;
    a.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_CALLCHAIN
                  | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    a.inherit = is_inherited != 0;
    a.sample_id_all = a.use_clockid = 1;
    a.exclude_user = a.exclude_hv = a.exclude_callchain_user = 1;
    a.clockid = CLOCK_MONOTONIC;
    a.wakeup_events = 1; /* frames of Python are read at once, or they are others */
    a.sample_stack_user = stack_bytes;
    a.sample_regs_user = SM_USER_REGISTERS;
    return sm_perf_event_open(&a, tid, cpu);
}

/* The clock of a thread in the kernel, on one CPU; inherited by all that it begins. A descriptor, or minus an errno. */
int sm_kernel_open(int32_t tid, int cpu, uint32_t stack_bytes) {
    return open_clock(tid, cpu, stack_bytes, own_period(), 1);
}

/* Another one of this thread alone. */
int sm_kernel_open_first(int32_t tid, int cpu, uint32_t stack_bytes, uint64_t period_ns) {
    return open_clock(tid, cpu, stack_bytes, period_ns, 0);
}

int sm_kernel_keep(int fd) {
    return sm_rate_limit_keep(&limit, fd);
}

/* The clocks that threads have inherited keep theirs: more ticks share the same time. */
void sm_kernel_new_rate(void) {
    sm_rate_limit_new_period(&limit, own_period());
}

/* The clock of a first thread can have another period, too: from 3/4 to 5/4. */
void sm_kernel_pause(int is_on) {
    static uint64_t state = 1;
    uint64_t period_ns = own_period();
    sm_rate_limit_pause(&limit, is_on);
    if (!is_on)
        sm_rate_limit_new_period(&limit, period_ns / 4 * 3 + sm_chance(&state, period_ns / 2));
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
    *stack = (lu_stack_copy){registers[LF_RSP], from->at, 0, NULL, NULL, NULL};
    if (!bytes || take(from, NULL, bytes) || take(from, &written, sizeof written))
        return -1;
    stack->bytes = written < bytes ? written : bytes;
    return 0;
}

static void find_python(sm_thread *t, kernel_tick *tick, const lu_frame_registers *had, const lu_stack_copy *stack) {
    static lu_python_frame raw[LF_SAMPLES_FRAMES_MOST];
    static sm_python_frame now[LF_SAMPLES_FRAMES_MOST], inner[SM_FRAMES_MOST];
    static sm_interpreter_words first;
    int is_whole, count = sm_python_frames_now(t, raw, now, &is_whole);
    sm_python_learn(t->process, raw, now, count);
    tick->pythons = is_whole ? count : 0;
    tick->python = now;
    tick->inner = inner;
    sm_recent_add(t, SM_RECENT_LOOK, now, tick->pythons);
    if (t->process->outside.is_read) {
        tick->evals = sm_outside_instructions(t, tick->native, had, tick->natives, stack, inner);
        return;
    }
    tick->evals = sm_interpreted(t, tick->native, had, tick->natives, stack, inner, &first);
    if (tick->evals && inner[0].code == LT_NONE)
        tick->words = &first;
}

static void keep(sm_thread *t, const kernel_tick *found) {
    size_t of_native = (size_t)found->natives * sizeof *found->native,
           of_kernel = (size_t)found->kernels * sizeof *found->kernel,
           of_python = (size_t)found->pythons * sizeof *found->python,
           of_inner = (size_t)found->evals * sizeof *found->inner, of_words = found->words ? sizeof *found->words : 0;
    kernel_tick *tick = malloc(sizeof *tick + of_native + of_kernel + of_python + of_inner + of_words);
    kernel_tick **last = &t->kernel.ticks;
    if (!tick)
        return;
    *tick = *found;
    tick->native = memcpy(tick + 1, found->native, of_native);
    tick->kernel = memcpy(tick->native + tick->natives, found->kernel, of_kernel);
    tick->python = (sm_python_frame *)(tick->kernel + tick->kernels);
    tick->inner = tick->python + tick->pythons;
    if (of_python)
        memcpy(tick->python, found->python, of_python);
    if (of_inner)
        memcpy(tick->inner, found->inner, of_inner);
    if (of_words)
        tick->words = memcpy(tick->inner + tick->evals, found->words, of_words);
    while (*last)
        last = &(*last)->next;
    *last = tick;
    t->kernel.count++;
}

void sm_kernel_take(const void *record) {
    static lu_native_frame native[SM_FRAMES_MOST];
    static lu_frame_registers had[SM_FRAMES_MOST];
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
    kernel_tick tick = {.at_ns = id.time, .kernels = kernels, .kernel = kernel, .native = native};
    lu_space *space = sm_space(t->process, 0);
    if (space && !take_user(&from, registers, &stack)) {
        uint32_t all = (1u << LF_REGISTERS) - 1;
        stack.of = &t->process->pid;
        stack.read_later = sm_read_snapshot;
        sm_snapshot_begin();
        tick.natives = lu_unwind_registers(space, registers, all, &stack, native, had, SM_FRAMES_MOST, &tick.how);
        find_python(t, &tick, had, &stack);
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

/* The same call, made from the same place. */
static int is_same(const lu_native_frame *one, const lu_native_frame *other) {
    return one->frame == other->frame && one->address == other->address;
}

/* Whether the frames of the tick from `i` on are those of the sample from `j` on. */
static int goes_on_as(const kernel_tick *tick, int i, const sm_user_stack *sample, int j) {
    for (; i < tick->natives && j < sample->count; i++, j++)
        if (!is_same(&tick->native[i], &sample->native[j]))
            return 0;
    return i == tick->natives;
}

/* The frames of the tick, and where its copy of the stack ends those of the sample that lie around. How many, 0: they do
 * not meet. */
static int whole(const kernel_tick *tick, const sm_user_stack *sample, lu_native_frame *into, uint32_t *how) {
    int count = tick->natives;
    memcpy(into, tick->native, (size_t)count * sizeof *into);
    *how = tick->how;
    if (*how & LU_UNWOUND_ROOT)
        return count;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < sample->count; j++)
            if (i + sample->count - j <= SM_FRAMES_MOST && goes_on_as(tick, i, sample, j)) {
                memcpy(into + i + 1, sample->native + j + 1, (size_t)(sample->count - j - 1) * sizeof *into);
                *how = sample->how;
                return i + sample->count - j;
            }
    return 0;
}

/* How many frames of the interpreter there are (`evals`), and how many of the outermost are those of the sample too: all
 * calls around them are the same. */
static int common(sm_process *p, const lu_native_frame *native, int count, const sm_user_stack *sample, int *evals) {
    int same = 0, goes_on = 1;
    *evals = 0;
    for (int i = count - 1, j = sample->count - 1; i >= 0; i--, j--) {
        int is_eval = sm_interpreter_at(p, native, i) == SM_INTERPRETS;
        *evals += is_eval;
        same += goes_on && is_eval && j >= 0 && native[i].frame == sample->native[j].frame
            && sm_interpreter_at(p, sample->native, j) == SM_INTERPRETS;
        goes_on = goes_on && j >= 0 && is_same(&native[i], &sample->native[j]);
    }
    return same;
}

/* The groups of a sample in which each C frame of the interpreter has one, the outermost first; how many. */
static int groups_of(const sm_user_stack *sample, sm_python_group into[SM_FRAMES_MOST]) {
    int groups = 0;
    for (int end = sample->has_fitted ? sample->frames : 0; end > 0 && groups < SM_FRAMES_MOST;) {
        int begin = sm_python_group_begin(sample->python, end);
        into[groups++] = (sm_python_group){sample->python + begin, end - begin, 0};
        end = begin;
    }
    return groups;
}

/* Frames of Python as they are put together, the innermost first. */
typedef struct {
    sm_python_frame *frames;
    int count, most;
} gathered;

static void gather(gathered *g, sm_python_frame frame) {
    if (g->count < g->most)
        g->frames[g->count++] = frame;
}

static void gather_group(gathered *g, const sm_python_group *group, uint32_t place) {
    for (int i = 0; i < group->count; i++)
        gather(g, group->frames[i]);
    if (place != LT_NONE && g->count >= group->count)
        g->frames[g->count - group->count].place = place | (group->frames->place & LF_ENTRY);
}

/* A function of which nobody has seen who called it: who did is left out, unless the sample's C frame, which seems to be
 * the same, began with that function. */
static void gather_alone(sm_process *p, gathered *g, sm_python_frame inner, const sm_python_group *sample) {
    if (inner.code == LT_NONE && !g->count)
        inner = sm_python_unknown(p);
    int is_first = sample && inner.code == sample->frames[sample->count - 1].code;
    gather(g, (sm_python_frame){inner.code, inner.place | (is_first ? LF_ENTRY : 0)});
    if (!is_first)
        gather(g, (sm_python_frame){LF_BETWEEN, 1 | LF_ENTRY});
}

/* The frames of Python of a tick whose native frames are whole: one group for each C frame of the interpreter. */
static int python_of(const sm_thread *t, const kernel_tick *tick, const lu_native_frame *native, int count,
                     const sm_user_stack *sample, gathered into) {
    static sm_python_frame inner[SM_FRAMES_MOST];
    static sm_python_group around[SM_FRAMES_MOST], of_sample[SM_FRAMES_MOST];
    int evals, same = common(t->process, native, count, sample, &evals), groups = groups_of(sample, of_sample);
    same = same < groups ? same : groups;
    for (int i = 0; i < evals; i++)
        inner[i] = i < tick->evals ? tick->inner[i] : (sm_python_frame){LT_NONE, 0};
    sm_recent_around(t, tick->python, tick->pythons, inner, evals, around);
    for (int i = 0; i < evals; i++) {
        const sm_python_group *there = evals - 1 - i < same ? &of_sample[evals - 1 - i] : NULL;
        if (around[i].frames)
            gather_group(&into, &around[i], inner[i].place);
        else if (there && i >= tick->evals)
            gather_group(&into, there, LT_NONE);
        else
            gather_alone(t->process, &into, inner[i], there);
    }
    return into.count;
}

/* How many of the outermost frames were the same when the record was read and when the sample was taken. */
static int stayed(const kernel_tick *tick, const sm_user_stack *sample) {
    int same = 0;
    while (same < tick->pythons && same < sample->frames
           && tick->python[tick->pythons - 1 - same].code == sample->python[sample->frames - 1 - same].code)
        same++;
    return same;
}

/* The same where the outermost native frames are not known. */
static int python_around(const sm_thread *t, const kernel_tick *tick, const sm_user_stack *sample, gathered into) {
    int frames = !tick->evals ? 0 : sm_recent_outwards(t, tick->python, tick->pythons, tick->inner, tick->evals,
                                                       into.frames);
    if (frames)
        return frames;
    if (tick->evals)
        gather_alone(t->process, &into, tick->inner[0], NULL);
    else
        for (int i = stayed(tick, sample); i > 0; i--)
            gather(&into, sample->python[sample->frames - i]);
    return into.count;
}

static uint32_t stack_of(const sm_thread *t, const kernel_tick *tick, const sm_user_stack *sample) {
    static lu_native_frame native[SM_FRAMES_MOST];
    static sm_python_frame python[LF_SAMPLES_FRAMES_MOST];
    gathered into = {python, 0, LF_SAMPLES_FRAMES_MOST};
    uint32_t how, flags = 0;
    sm_process *p = t->process;
    int count = p->space && tick->natives ? whole(tick, sample, native, &how) : 0;
    if (!tick->natives) /* what was around the sample is around it */
        return with_kernel(sample->stack, tick);
    if (count)
        return with_kernel(sm_join(p, native, count, how, python,
                                   python_of(t, tick, native, count, sample, into), &flags), tick);
    int frames = python_around(t, tick, sample, into);
    return with_kernel(sm_join(p, tick->native, tick->natives, tick->how, python, frames, &flags), tick);
}

/* --- Their weights --- */

static void drop(sm_thread *t, kernel_tick **at) {
    kernel_tick *tick = *at;
    *at = tick->next;
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

/* Whether nothing more has to be waited for. */
static int is_ready(sm_process *p, kernel_tick *tick, uint64_t now_ns) {
    if (tick->words && tick->inner[0].code == LT_NONE)
        tick->inner[0] = sm_python_at(p, tick->words, 0);
    return !tick->words || tick->inner[0].code != LT_NONE || tick->at_ns + UNKNOWN_WAITS_NS < now_ns;
}

static void share(sm_thread *t, const lt_sample *sample, const sm_user_stack *user, uint32_t ticks, uint64_t rest_ns) {
    for (kernel_tick **at = &t->kernel.ticks; ticks && *at;) {
        if (!is_ready(t->process, *at, sample->at_ns)) {
            at = &(*at)->next;
            continue;
        }
        uint64_t weight_ns = rest_ns / ticks--;
        if (weight_ns)
            tell(t, sample, stack_of(t, *at, user), weight_ns);
        rest_ns -= weight_ns;
        drop(t, at);
    }
}

/* The ticks up to this sample share its time in the kernel, which it then has no more. Without ticks it is left to those
 * that come, and they to the time that comes. */
void sm_kernel_share(sm_thread *t, lt_sample *sample, const sm_user_stack *user) {
    uint32_t ticks = 0;
    if (!t->kernel.recent && !t->kernel.ticks)
        return;
    sm_recent_add(t, SM_RECENT_SAMPLE, user->python, user->has_fitted ? user->frames : 0);
    if (!t->kernel.owed_ns)
        t->kernel.owed_from = sample->at_ns;
    sample->weight_ns -= sample->kernel_ns;
    t->kernel.owed_ns += sample->kernel_ns;
    if (sample->kernel_ns)
        t->kernel.owed_stack = sample->stack;
    sample->kernel_ns = 0;
    while (!t->kernel.owed_ns && t->kernel.ticks && t->kernel.ticks->at_ns + WAITS_MOST_NS < sample->at_ns)
        drop(t, &t->kernel.ticks);
    if (!t->kernel.owed_ns)
        return;
    for (kernel_tick *tick = t->kernel.ticks; tick && tick->at_ns <= sample->at_ns; tick = tick->next)
        ticks += (uint32_t)is_ready(t->process, tick, sample->at_ns);
    if (ticks)
        share(t, sample, user, ticks, t->kernel.owed_ns);
    else if (t->kernel.owed_from + WAITS_MOST_NS < sample->at_ns)
        tell(t, sample, t->kernel.owed_stack, t->kernel.owed_ns);
    else
        return;
    t->kernel.owed_ns = 0;
}

/* What a tick stands for when no sample comes any more: one period of what is left of the CPU time. What is a little more,
 * because of a longer period or a pause, is divided among them; of a thread that has ended, what lies between two ticks
 * and behind the last one, too. */
static uint64_t period_of_rest(const sm_thread *t, uint64_t all_ns) {
    uint64_t ticks = t->kernel.count;
    uint64_t ticked_ns = ticks * own_period(), most_ns = ticked_ns + ticked_ns / 4;
    if (t->end_ns && most_ns < ticked_ns + own_period() / 2)
        most_ns = ticked_ns + own_period() / 2;
    return ticks && all_ns > ticked_ns && all_ns < most_ns ? all_ns / ticks + 1 : own_period();
}

/* No sample comes any more. */
void sm_kernel_rest(sm_thread *t, uint64_t at_ns, uint64_t cpu_ns) {
    static const sm_user_stack nothing = {.stack = LT_NONE};
    uint64_t rest_ns = cpu_ns > t->time.told_ns ? cpu_ns - t->time.told_ns : 0, owed_ns = t->kernel.owed_ns;
    uint64_t period_ns = period_of_rest(t, rest_ns + owed_ns);
    while (t->kernel.ticks) {
        uint64_t all_ns = rest_ns + owed_ns, weight_ns = all_ns < period_ns ? all_ns : period_ns;
        uint64_t paid_ns = weight_ns < owed_ns ? weight_ns : owed_ns;
        lt_sample row = sm_sample(t, at_ns, LT_CPU, weight_ns);
        if (weight_ns)
            tell(t, &row, stack_of(t, t->kernel.ticks, &nothing), weight_ns);
        owed_ns -= paid_ns;
        rest_ns -= weight_ns - paid_ns;
        t->time.told_ns += weight_ns - paid_ns;
        drop(t, &t->kernel.ticks);
    }
    lt_sample row = sm_sample(t, at_ns, LT_CPU, owed_ns);
    if (owed_ns)
        tell(t, &row, t->kernel.owed_stack, owed_ns);
    t->kernel.owed_ns = 0;
}
