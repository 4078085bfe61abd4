/* live PID SAMPLES INTERVAL_US [lost|repaired|all]: stops the threads of a process at random times, unwinds copies of
 * their stacks, and tells by the kind of the leaf how many came to the root of their thread. Of threads in user mode
 * all registers are known; of those in a system call RSP and RIP alone, as of a thread that is looked at from outside.
 * Times are CPU time. The last argument says which stacks are printed. */
#define _GNU_SOURCE
#include "stacks/stacks.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MOST 256
#define STACK_MOST (192u << 10)
#define KINDS_MOST 512

typedef struct {
    char leaf[200];
    unsigned samples, root, cut, repaired, stale;
} kind;

static kind kinds[KINDS_MOST];
static int kind_count, show;
static double times[1 << 20];
static unsigned time_count, frames_sum, evals;
static uint8_t copy[STACK_MOST];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static kind *kind_of(const char *leaf) {
    for (int i = 0; i < kind_count; i++)
        if (!strcmp(kinds[i].leaf, leaf))
            return &kinds[i];
    if (kind_count == KINDS_MOST)
        return &kinds[0];
    snprintf(kinds[kind_count].leaf, sizeof kinds[0].leaf, "%s", leaf);
    return &kinds[kind_count++];
}

static void print_frames(lu_space *space, const lu_native_frame *frames, int count) {
    for (int i = 0; i < count; i++) {
        lu_place p = lu_space_find(space, frames[i].address);
        const char *path = p.kind == LU_PLACE_FILE ? lu_object_of(p.object)->path : "-";
        printf("  #%d %#lx %s+%#lx cfa %#lx\n", i, frames[i].address, path, p.address, frames[i].frame);
    }
}

static size_t read_stack(pid_t pid, uint64_t from) {
    size_t done = 0;
    while (done < STACK_MOST) {
        size_t bytes = 4096 - ((from + done) & 4095);
        if (bytes > STACK_MOST - done)
            bytes = STACK_MOST - done;
        struct iovec here = {copy + done, bytes}, there = {(void *)(from + done), bytes};
        if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)bytes)
            break;
        done += bytes;
    }
    return done;
}

static void sample(pid_t pid, pid_t tid, lu_space *space) {
    struct user_regs_struct u;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &u))
        return;
    uint64_t registers[LF_REGISTERS] = {u.rax, u.rdx, u.rcx, u.rbx, u.rsi, u.rdi, u.rbp, u.rsp, u.r8,
                                        u.r9,  u.r10, u.r11, u.r12, u.r13, u.r14, u.r15, u.rip};
    int blocked = (long)u.orig_rax >= 0;
    uint32_t known = blocked ? 1u << LF_RSP | 1u << LF_RIP : (1u << LF_REGISTERS) - 1, how;
    lu_stack_copy stack = {u.rsp, copy, read_stack(pid, u.rsp), NULL, NULL, NULL};
    lu_native_frame frames[LF_SAMPLES_FRAMES_MOST];
    int count = 0;
    double best = 1e18;
    for (int i = 0; i < 2; i++) {
        double begin = now();
        count = lu_unwind(space, registers, known, &stack, frames, LF_SAMPLES_FRAMES_MOST, &how);
        double took = now() - begin;
        if (i == 0)
            times[time_count++ % (1 << 20)] = took;
        best = took < best ? took : best;
        if (i == 0 && how & LU_UNWOUND_STALE && !(how & LU_UNWOUND_ROOT)) {
            lu_space_refresh(space);
            continue;
        }
        break;
    }
    frames_sum += (unsigned)count;
    char leaf[200];
    lu_place p = lu_space_find(space, u.rip);
    snprintf(leaf, sizeof leaf, "%s %s", blocked ? "blocked" : "cpu",
             p.kind == LU_PLACE_FILE ? strrchr(lu_object_of(p.object)->path, '/') ?: "vdso"
                                     : p.kind == LU_PLACE_JIT ? "jit" : "nowhere");
    kind *k = kind_of(leaf);
    k->samples++;
    k->root += !!(how & LU_UNWOUND_ROOT);
    k->cut += !!(how & LU_UNWOUND_CUT);
    k->repaired += !!(how & LU_UNWOUND_REPAIRED);
    k->stale += !!(how & LU_UNWOUND_STALE);
    for (int i = 0; i < count; i++)
        evals += (unsigned)lu_space_in_function(space, frames[i].address, "_PyEval_EvalFrameDefault");
    if ((show == 1 && !(how & LU_UNWOUND_ROOT)) || show == 2 || (show == 3 && how & LU_UNWOUND_REPAIRED)) {
        printf("%s tid %d how %u sp %#llx rbp %#llx rip %#llx copy %zu\n", leaf, tid, how, u.rsp, u.rbp, u.rip,
               stack.bytes);
        print_frames(space, frames, count);
    }
}

static int threads(pid_t pid, pid_t *into) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    int count = 0;
    for (struct dirent *e; folder && (e = readdir(folder));)
        if (e->d_name[0] != '.' && count < THREADS_MOST)
            into[count++] = atoi(e->d_name);
    if (folder)
        closedir(folder);
    return count;
}

static int by_size(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    pid_t pid = atoi(argv[1]), tids[THREADS_MOST];
    unsigned wanted = (unsigned)atoi(argv[2]), seen = 0;
    show = argc > 4 ? !strcmp(argv[4], "all") ? 2 : !strcmp(argv[4], "repaired") ? 3 : 1 : 0;
    lu_space *space = lu_space_of(pid);
    double refreshes = 0, refreshed = 0, begin;
    while (space && seen < wanted) {
        usleep((useconds_t)(atoi(argv[3]) + rand() % 1000));
        int count = threads(pid, tids);
        if (!count)
            break;
        for (int i = 0; i < count; i++) {
            int status;
            if (ptrace(PTRACE_SEIZE, tids[i], NULL, NULL))
                continue;
            if (!ptrace(PTRACE_INTERRUPT, tids[i], NULL, NULL) && waitpid(tids[i], &status, __WALL) == tids[i] &&
                WIFSTOPPED(status)) {
                if (seen % 64 == 0) {
                    begin = now();
                    lu_space_refresh(space);
                    refreshed += now() - begin;
                    refreshes++;
                }
                sample(pid, tids[i], space);
                seen++;
            }
            ptrace(PTRACE_DETACH, tids[i], NULL, NULL);
        }
    }
    for (int i = 0; i < kind_count; i++)
        printf("%-40s samples %u root %u cut %u repaired %u stale %u\n", kinds[i].leaf, kinds[i].samples, kinds[i].root,
               kinds[i].cut, kinds[i].repaired, kinds[i].stale);
    unsigned n = time_count < 1 << 20 ? time_count : 1 << 20;
    qsort(times, n, sizeof *times, by_size);
    double sum = 0;
    for (unsigned i = 0; i < n; i++)
        sum += times[i];
    if (n)
        printf("unwinds %u frames %.1f evals %.1f mean %.1f us p50 %.1f p90 %.1f p99 %.1f max %.1f; refresh %.0f us\n",
               n, (double)frames_sum / n, (double)evals / n, sum / n / 1e3, times[n / 2] / 1e3, times[n * 9 / 10] / 1e3,
               times[n * 99 / 100] / 1e3, times[n - 1] / 1e3, refreshes ? refreshed / refreshes / 1e3 : 0);
    lu_space_free(space);
    return 0;
}
