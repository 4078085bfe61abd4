/* Stacks of Python that a thread had lately, as its samples and looks from outside have them. A tick in the kernel
 * (kernel_time.c) tells which function each C frame of the interpreter ran, but not who called it from Python: that is
 * taken from a stack that has the same function in the same C frame, counted from the outermost; at the same instruction
 * if there is one. What was there when the tick was read, mostly soon, is asked first, then what other looks have found, the
 * newest first. Stacks of samples are those of time outside of the kernel, in which the same function may have other
 * callers, and of which the instruction says nothing: they are asked after those that looks have found lately, and the
 * newest is taken. What looks have found long ago comes last: the thread may have gone elsewhere since, and looks at very
 * deep stacks seldom succeed. */
#define _GNU_SOURCE
#include "recent_stacks.h"

#include "recording.h"

#include <stdlib.h>
#include <string.h>

#define STACKS_MOST 32u
/* Of a place, in bytes: the two ways to tell it differ by the length of an instruction. */
#define NEAR_BYTES 24u
#define LATELY_NS 250000000ull

enum { NOT_FOUND = 0, SAME_CODE = 1, SAME_PLACE = 2 };

typedef struct {
    sm_python_frame *frames;
    int count;
    uint64_t hash; /* of its codes */
    uint64_t at_ns;
} recent;

typedef struct {
    uint32_t count;
    recent stacks[STACKS_MOST]; /* the newest first */
} stacks;

struct sm_recent {
    stacks of[SM_RECENT_KINDS];
};

static uint64_t hash_of(const sm_python_frame *frames, int count) {
    uint64_t hash = (uint64_t)count;
    for (int i = 0; i < count; i++)
        hash = (hash ^ frames[i].code) * 0x100000001b3ull;
    return hash;
}

/* Room for the newest: that of the stack with the same functions, or of the oldest. */
static recent *first_of(stacks *r, uint64_t hash) {
    uint32_t at = 0;
    while (at < r->count && r->stacks[at].hash != hash)
        at++;
    if (at == r->count && r->count < STACKS_MOST)
        r->stacks[r->count++] = (recent){NULL, 0, 0, 0};
    else if (at == r->count)
        at--;
    recent moved = r->stacks[at];
    memmove(&r->stacks[1], &r->stacks[0], at * sizeof moved);
    r->stacks[0] = moved;
    return &r->stacks[0];
}

void sm_recent_add(sm_thread *t, int kind, const sm_python_frame *frames, int count) {
    if (count <= 0 || !(frames[count - 1].place & LF_ENTRY))
        return;
    if (!t->kernel.recent)
        t->kernel.recent = calloc(1, sizeof *t->kernel.recent);
    if (!t->kernel.recent)
        return;
    uint64_t hash = hash_of(frames, count);
    recent *into = first_of(&t->kernel.recent->of[kind], hash);
    if (into->count != count) {
        free(into->frames);
        into->frames = malloc((size_t)count * sizeof *frames);
    }
    into->hash = into->frames ? hash : 0;
    into->count = into->frames ? count : 0;
    into->at_ns = sm.now_ns;
    if (into->frames)
        memcpy(into->frames, frames, (size_t)count * sizeof *frames);
}

void sm_recent_free(sm_thread *t) {
    for (int kind = 0; t->kernel.recent && kind < SM_RECENT_KINDS; kind++)
        for (uint32_t i = 0; i < t->kernel.recent->of[kind].count; i++)
            free(t->kernel.recent->of[kind].stacks[i].frames);
    free(t->kernel.recent);
    t->kernel.recent = NULL;
}

/* --- Looking for functions in them --- */

/* What is asked one after the other. */
typedef struct {
    int kind;
    uint64_t from_ns, to_ns; /* added then */
} turn;

#define TURNS 3

static turn turn_of(int number) {
    uint64_t lately_ns = sm.now_ns > LATELY_NS ? sm.now_ns - LATELY_NS : 0;
    if (number == 0)
        return (turn){SM_RECENT_LOOK, lately_ns, UINT64_MAX};
    if (number == 1)
        return (turn){SM_RECENT_SAMPLE, 0, UINT64_MAX};
    return (turn){SM_RECENT_LOOK, 0, lately_ns};
}

static int is_asked(const turn *now, const recent *r) {
    return r->at_ns >= now->from_ns && r->at_ns < now->to_ns;
}

int sm_python_group_begin(const sm_python_frame *frames, int end) {
    int begin = end - 1;
    while (begin > 0 && !(frames[begin - 1].place & LF_ENTRY))
        begin--;
    return begin;
}

static int is_near(uint32_t a, uint32_t b) {
    a &= ~LF_ENTRY, b &= ~LF_ENTRY;
    return (a > b ? a - b : b - a) <= NEAR_BYTES;
}

/* The group from that function outwards, if [from, to) has it. */
static sm_python_group from_function(sm_python_frame inner, const sm_python_frame *frames, int from, int to) {
    sm_python_group found = {NULL, 0, NOT_FOUND};
    for (int i = from; i < to && found.likeness < SAME_PLACE; i++) {
        if (frames[i].code != inner.code)
            continue;
        int likeness = is_near(frames[i].place, inner.place) ? SAME_PLACE : SAME_CODE;
        if (likeness > found.likeness)
            found = (sm_python_group){frames + i, to - i, likeness};
    }
    return found;
}

static void around_one(const recent *r, const sm_python_frame *inner, int evals, sm_python_group *into) {
    for (int end = r->count, at = evals - 1; end > 0 && at >= 0; at--) {
        int begin = sm_python_group_begin(r->frames, end);
        if (inner[at].code != LT_NONE && into[at].likeness < SAME_PLACE) {
            sm_python_group found = from_function(inner[at], r->frames, begin, end);
            if (found.likeness > into[at].likeness)
                into[at] = found;
        }
        end = begin;
    }
}

static void around_in(const stacks *from, const turn *now, const sm_python_frame *inner, int evals, sm_python_group *into) {
    static sm_python_frame missing[SM_RECENT_EVALS_MOST];
    memcpy(missing, inner, (size_t)evals * sizeof *inner);
    for (uint32_t s = 0; s < from->count; s++) {
        if (!is_asked(now, &from->stacks[s]))
            continue;
        around_one(&from->stacks[s], missing, evals, into);
        for (int i = 0; i < evals; i++)
            if (now->kind == SM_RECENT_SAMPLE && into[i].frames)
                missing[i].code = LT_NONE;
    }
}

void sm_recent_around(const sm_thread *t, const sm_python_frame *look, int look_count, const sm_python_frame *inner,
                      int evals, sm_python_group *into) {
    static sm_python_group found[SM_RECENT_EVALS_MOST];
    const recent own = {(sm_python_frame *)look, look_count, 0, 0};
    for (int i = 0; i < evals; i++)
        into[i] = (sm_python_group){NULL, 0, NOT_FOUND};
    around_one(&own, inner, evals, into);
    for (int number = 0; t->kernel.recent && number < TURNS; number++) {
        const turn now = turn_of(number);
        memset(found, 0, (size_t)evals * sizeof *found);
        around_in(&t->kernel.recent->of[now.kind], &now, inner, evals, found);
        for (int i = 0; i < evals; i++)
            if (!into[i].frames)
                into[i] = found[i];
    }
}

/* How many of the functions are in the groups from `begin` outwards, and how near. Each but the innermost has called into
 * C, so it is the innermost of its group. */
static int likeness_at(const recent *r, int begin, const sm_python_frame *inner, int evals) {
    int likeness = 0;
    for (int i = 0; i < evals && begin < r->count; i++) {
        int end = begin + 1;
        while (end < r->count && !(r->frames[end - 1].place & LF_ENTRY))
            end++;
        sm_python_group found = from_function(inner[i], r->frames, begin, i ? begin + 1 : end);
        if (!found.likeness && inner[i].code != LT_NONE)
            break;
        likeness += found.likeness;
        begin = end;
    }
    return likeness;
}

static int outwards_in(const stacks *from, const turn *now, const sm_python_frame *inner, int evals, sm_python_frame *into) {
    const recent *best = NULL;
    int begin = 0, most = 0;
    for (uint32_t s = 0; s < from->count; s++) {
        const recent *r = &from->stacks[s];
        for (int i = 0; i < r->count && is_asked(now, r); i++) {
            int likeness = r->frames[i].code == inner[0].code ? likeness_at(r, i, inner, evals) : 0;
            if (likeness > most)
                best = r, begin = i, most = likeness;
        }
    }
    if (!best)
        return 0;
    memcpy(into, best->frames + begin, (size_t)(best->count - begin) * sizeof *into);
    into->place = inner[0].place | (into->place & LF_ENTRY);
    return best->count - begin;
}

int sm_recent_outwards(const sm_thread *t, const sm_python_frame *look, int look_count, const sm_python_frame *inner,
                       int evals, sm_python_frame *into) {
    static stacks own;
    own.count = 1;
    own.stacks[0] = (recent){(sm_python_frame *)look, look_count, 0, 0};
    if (inner[0].code == LT_NONE)
        return 0;
    int found = outwards_in(&own, &(turn){SM_RECENT_LOOK, 0, UINT64_MAX}, inner, evals, into);
    for (int number = 0; t->kernel.recent && !found && number < TURNS; number++) {
        const turn now = turn_of(number);
        found = outwards_in(&t->kernel.recent->of[now.kind], &now, inner, evals, into);
    }
    return found;
}
