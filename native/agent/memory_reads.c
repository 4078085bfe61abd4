/* Memory of this process, read by process_vm_readv: what is gone is an error and not a fault. A call costs more than
 * what it reads, so small things are read a page at a time, and those of which the places are known all in one call. */
#define _GNU_SOURCE
#include "sampling.h"

#include <string.h>
#include <unistd.h>

extern void *__libc_stack_end; /* of the dynamic linker */

static int copy(pid_t pid, uint64_t address, void *into, size_t bytes) {
    struct iovec ours = {into, bytes}, theirs = {(void *)(uintptr_t)address, bytes};
    return process_vm_readv(pid, &ours, 1, &theirs, 1, 0) == (ssize_t)bytes ? 0 : -1;
}

/* Whether this process may do so: a seccomp filter may forbid it. */
int ls_can_read(void) {
    uint64_t word = 1, read = 0;
    return !copy(getpid(), (uint64_t)(uintptr_t)&word, &read, sizeof read) && read == word;
}

static const uint8_t *page_with(ls_scratch *s, uint64_t page) {
    for (uint32_t i = 0; i < LS_COPIES; i++)
        if (s->copied[i] == page)
            return s->copies[i];
    uint32_t i = s->next_copy++ % LS_COPIES;
    s->copied[i] = 0;
    if (copy(s->pid, page, s->copies[i], LS_COPY_BYTES))
        return NULL;
    s->copied[i] = page;
    return s->copies[i];
}

/* An lu_read: of the copy of the stack what is in there, else of pages that are copied for this sample. */
int ls_read_here(void *scratch, uint64_t address, void *into, size_t bytes) {
    ls_scratch *s = scratch;
    uint64_t page = address & ~(uint64_t)(LS_COPY_BYTES - 1), inside = address - page;
    if (address >= s->stack_at && address - s->stack_at <= s->stack_bytes
        && bytes <= s->stack_bytes - (address - s->stack_at)) {
        memcpy(into, s->stack + (address - s->stack_at), bytes);
        return 0;
    }
    if (!page)
        return -1;
    if (bytes > LS_COPY_BYTES - inside)
        return copy(s->pid, address, into, bytes);
    const uint8_t *found = page_with(s, page);
    if (!found)
        return -1;
    memcpy(into, found + inside, bytes);
    return 0;
}

/* Where the stack ends on which `from` is, as the C library lays it out: that of a thread at what the thread register
 * names, that of the first thread where the program was started. Another thread's may follow at once. */
static uint64_t end_of_stack(uint64_t from) {
    uint64_t end, first_end = (uint64_t)(uintptr_t)__libc_stack_end;
    __asm__("mov %%fs:0, %0" : "=r"(end));
    if (from >= end)
        end = from < first_end ? first_end : UINT64_MAX;
    return end;
}

/* The stack from `from` on, up to its end or as much as fits; whether there is more. The copies of an earlier sample
 * are forgotten. */
int ls_read_stack(ls_scratch *s, uint64_t from) {
    memset(s->copied, 0, sizeof s->copied);
    size_t pieces = 0, asked = 0, left = end_of_stack(from) - from;
    size_t most = left < LF_SAMPLES_STACK_MOST ? left : LF_SAMPLES_STACK_MOST;
    while (asked < most) {
        size_t bytes = LS_COPY_BYTES - (from + asked) % LS_COPY_BYTES;
        bytes = bytes < most - asked ? bytes : most - asked;
        s->theirs[pieces++] = (struct iovec){(void *)(uintptr_t)(from + asked), bytes};
        asked += bytes;
    }
    s->ours[0] = (struct iovec){s->stack, asked};
    ssize_t got = process_vm_readv(s->pid, s->ours, 1, s->theirs, pieces, 0);
    s->stack_at = from;
    s->stack_bytes = got > 0 ? (size_t)got : 0;
    return s->stack_bytes == LF_SAMPLES_STACK_MOST && left > LF_SAMPLES_STACK_MOST;
}

/* Whether the code of frame `i` is asked for already. */
static int is_asked(const ls_scratch *s, size_t asked, uint64_t code) {
    for (size_t k = 0; k < asked; k++)
        if (s->found[s->asked[k]].code == code)
            return 1;
    return 0;
}

/* What the code objects of the frames [from, to) are known by. The first frame whose code cannot be read, or `to`. */
static int read_some(ls_scratch *s, uint32_t python, int from, int to) {
    size_t asked = 0;
    for (int i = from; i < to; i++) {
        if (is_asked(s, asked, s->found[i].code))
            continue;
        s->ours[asked] = (struct iovec){s->codes[asked], LU_PYTHON_CODE_BYTES};
        s->theirs[asked] = (struct iovec){(void *)(uintptr_t)s->found[i].code, LU_PYTHON_CODE_BYTES};
        s->asked[asked++] = (uint16_t)i;
    }
    ssize_t got = process_vm_readv(s->pid, s->ours, asked, s->theirs, asked, 0);
    size_t whole = got > 0 ? (size_t)got / LU_PYTHON_CODE_BYTES : 0;
    int end = whole < asked ? s->asked[whole] : to;
    for (int i = from; i < end; i++)
        for (size_t k = 0; k < whole; k++)
            if (s->found[s->asked[k]].code == s->found[i].code)
                lu_python_known_by(python, s->codes[k], &s->found[i]);
    return end;
}

/* Fill in what the code objects of the first `count` frames found are known by, in this version of Python; how many of
 * them are whole. */
int ls_read_codes(ls_scratch *s, uint32_t python, int count) {
    for (int from = 0; from < count;) {
        int to = count - from > (int)LS_CODES_AT_ONCE ? from + (int)LS_CODES_AT_ONCE : count;
        int end = read_some(s, python, from, to);
        if (end < to)
            return end;
        from = to;
    }
    return count;
}
