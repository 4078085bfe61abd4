/* compare PID FILE [shown]: unwinds the samples of a file of recorder.c and compares each with what libgcc said (0: it
 * does not know). Prints "samples N equal N further N cut N different N root N ...":
 * `further`: libgcc stopped at a frame without unwind information, we passed it by repair, and agree up to there;
 * `cut`: the rest of the stack was not copied, and we agree up to there. Times are CPU time. */
#define _GNU_SOURCE
#include "oracle.h"
#include "stacks/stacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static unsigned samples, equal, further, cut, different, roots, frames_in_all, evals;
static double nanoseconds;
static int shown = 3;

static void tell(const lu_space *space, const oracle_sample *s, const oracle_frame *theirs, const lu_native_frame *ours,
                 int count, uint32_t how) {
    different++;
    if (shown-- <= 0)
        return;
    printf("sp %#lx how %u copy %lu\n", s->registers[LF_RSP], how, s->bytes);
    for (int i = 0; i < count || (unsigned)i < s->frames; i++) {
        uint64_t mine = i < count ? ours[i].address : 0, other = (unsigned)i < s->frames ? theirs[i].address : 0;
        lu_place a = lu_space_find(space, mine), b = lu_space_find(space, other);
        printf("  %c %#lx %s+%#lx cfa %#lx | %#lx %s+%#lx sp %#lx\n", mine == other ? ' ' : '*', mine,
               a.kind == LU_PLACE_FILE ? strrchr(lu_object_of(a.object)->path, '/') : "-", a.address,
               i < count ? ours[i].frame : 0, other,
               b.kind == LU_PLACE_FILE ? strrchr(lu_object_of(b.object)->path, '/') : "-", b.address,
               (unsigned)i < s->frames ? theirs[i].sp : 0);
    }
}

static int agree(const oracle_frame *theirs, const lu_native_frame *ours, int count) {
    for (int i = 0; i < count; i++)
        if ((theirs[i].address && ours[i].address != theirs[i].address) ||
            (i && theirs[i].sp && ours[i - 1].frame != theirs[i].sp))
            return 0;
    return 1;
}

static void compare(lu_space *space, const oracle_sample *s, const oracle_frame *theirs, const uint8_t *stack) {
    static lu_native_frame ours[FRAMES_MOST];
    lu_stack_copy copy = {s->registers[LF_RSP], stack, s->bytes, NULL, NULL, NULL};
    struct timespec a, b;
    uint32_t how;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    int count = lu_unwind(space, s->registers, (1u << LF_REGISTERS) - 1, &copy, ours, FRAMES_MOST, &how);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    nanoseconds += (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
    samples++;
    frames_in_all += (unsigned)count;
    roots += !!(how & LU_UNWOUND_ROOT);
    for (int i = 0; i < count; i++)
        evals += (unsigned)lu_space_in_function(space, ours[i].address, "_PyEval_EvalFrameDefault");
    int both = count < (int)s->frames ? count : (int)s->frames;
    if (!agree(theirs, ours, both) || (count < (int)s->frames && !(how & LU_UNWOUND_CUT)))
        tell(space, s, theirs, ours, count, how);
    else if (count < (int)s->frames)
        cut++;
    else if (count == (int)s->frames)
        equal++;
    else if (how & LU_UNWOUND_REPAIRED || s->frames == 1) /* 1: it knew nothing of the leaf */
        further++;
    else
        tell(space, s, theirs, ours, count, how);
}

int main(int argc, char **argv) {
    static oracle_sample sample;
    static oracle_frame frames[FRAMES_MOST];
    static uint8_t stack[STACK_MOST];
    lu_space *space = argc > 2 ? lu_space_of(atoi(argv[1])) : NULL;
    FILE *file = argc > 2 ? fopen(argv[2], "rb") : NULL;
    if (!space || !file)
        return 2;
    if (argc > 3)
        shown = atoi(argv[3]);
    while (fread(&sample, sizeof sample, 1, file) == 1 &&
           fread(frames, sizeof *frames, sample.frames, file) == sample.frames &&
           fread(stack, 1, sample.bytes, file) == sample.bytes)
        compare(space, &sample, frames, stack);
    printf("samples %u equal %u further %u cut %u different %u root %u evals %u frames %u ns %.0f\n", samples, equal,
           further, cut, different, roots, evals, frames_in_all, samples ? nanoseconds / samples : 0);
    fclose(file);
    lu_space_free(space);
    return 0;
}
