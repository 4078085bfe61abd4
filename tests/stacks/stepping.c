/* stepping STEPS: a child runs instruction by instruction; before each one its stack is unwound from a copy that begins
 * at the stack pointer, and compared with the return addresses that its CALLs have left and its RETs have taken. Prints
 * "steps N equal N", and the first few that differ. */
#define _GNU_SOURCE
#include "stacks/stacks.h"

#include <alloca.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH 512
#define COPY (64u << 10)

/* --- The child --- */

static volatile unsigned sink;

static __attribute__((noinline)) int leaf(int n) { return (int)(sink = sink * 3 + (unsigned)n); }

static __attribute__((noinline)) int turned(int n, int more) {
    volatile int here[4] = {n, more, n, more};
    return leaf(here[n & 3]) + (n > 0 ? turned(n - 1, more) : 0);
}

static __attribute__((noinline)) int with_alloca(int n) {
    char *room = alloca((size_t)(16 + n * 24));
    memset(room, n, 16);
    return turned(2, room[3]) + (n ? with_alloca(n - 1) : 0);
}

static __attribute__((noinline)) double aligned(int n) {
    _Alignas(64) volatile double wide[8];
    for (int i = 0; i < 8; i++)
        wide[i] = n * i;
    return wide[n & 7] + with_alloca(3);
}

static int by_value(const void *a, const void *b) { return leaf(*(const int *)a - *(const int *)b); }

static void work(void) {
    char text[64];
    int numbers[8] = {5, 3, 9, 1, 7, 2, 8, 4};
    for (int i = 0;; i++) {
        snprintf(text, sizeof text, "%d %g", i, aligned(i));
        qsort(numbers, 8, sizeof *numbers, by_value);
        free(malloc((size_t)(i % 64) + 1));
    }
}

/* --- The parent --- */

static uint64_t calls[DEPTH]; /* return addresses, the outermost first */
static int depth;

static int read_child(pid_t pid, uint64_t address, void *into, size_t bytes) {
    struct iovec here = {into, bytes}, there = {(void *)address, bytes};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)bytes ? 0 : -1;
}

static size_t copy_stack(pid_t pid, uint64_t from, uint8_t *into) {
    size_t done = 0;
    while (done < COPY) {
        size_t bytes = 4096 - (from + done) % 4096;
        bytes = bytes < COPY - done ? bytes : COPY - done;
        if (read_child(pid, from + done, into + done, bytes))
            break;
        done += bytes;
    }
    return done;
}

static int unwound(lu_space *space, pid_t pid, const struct user_regs_struct *r, lu_native_frame *frames) {
    static uint8_t copy[COPY];
    uint64_t registers[LF_REGISTERS] = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp, r->r8,
                                        r->r9,  r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip};
    lu_stack_copy stack = {r->rsp, copy, copy_stack(pid, r->rsp, copy), NULL, NULL, NULL};
    uint32_t how;
    return lu_unwind(space, registers, (1u << LF_REGISTERS) - 1, &stack, frames, DEPTH, &how);
}

/* What the instruction at `before` has done to the return addresses. */
static void follow(pid_t pid, const struct user_regs_struct *before, const struct user_regs_struct *after) {
    uint64_t top = 0;
    uint8_t code[2] = {0};
    read_child(pid, before->rip, code, sizeof code);
    read_child(pid, after->rsp, &top, sizeof top);
    if (code[0] == 0xc3 || code[0] == 0xc2 || (code[0] == 0xf3 && code[1] == 0xc3))
        depth -= depth > 0;
    else if (after->rsp == before->rsp - 8 && top > before->rip && top - before->rip <= 8 && depth < DEPTH)
        calls[depth++] = top;
}

static int is_equal(const lu_native_frame *frames, int count) {
    if (count != depth + 1)
        return 0;
    for (int i = 1; i < count; i++)
        if (frames[i].address + 1 != calls[depth - i])
            return 0;
    return 1;
}

int main(int argc, char **argv) {
    static lu_native_frame frames[DEPTH];
    struct user_regs_struct before, after;
    int status, equal = 0, steps = argc > 1 ? atoi(argv[1]) : 10000, shown = argc > 2 ? atoi(argv[2]) : 3;
    pid_t pid = fork();
    if (!pid) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        work();
    }
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        return 2;
    lu_space *space = lu_space_of(pid);
    ptrace(PTRACE_GETREGS, pid, 0, &before);
    depth = unwound(space, pid, &before, frames) - 1; /* from here on it has to stay right */
    for (int i = 0; i < depth; i++)
        calls[i] = frames[depth - i].address + 1;
    for (int i = 0; i < steps; i++, before = after) {
        if (ptrace(PTRACE_SINGLESTEP, pid, 0, 0) || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) ||
            ptrace(PTRACE_GETREGS, pid, 0, &after))
            return 3;
        follow(pid, &before, &after);
        int count = unwound(space, pid, &after, frames), is_same = is_equal(frames, count);
        equal += is_same;
        if (is_same || shown-- <= 0)
            continue;
        lu_place place = lu_space_find(space, after.rip);
        printf("step %d %s+%#lx: %d frames, %d calls\n", i,
               place.kind == LU_PLACE_FILE ? lu_object_of(place.object)->path : "-", place.address, count, depth);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    lu_space_free(space);
    printf("steps %d equal %d\n", steps, equal);
    return 0;
}
