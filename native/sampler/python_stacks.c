/* The frames of Python that a thread has, read from outside. */
#define _GNU_SOURCE
#include "python_stacks.h"

#include "procfs.h"
#include "recording.h"

#include <string.h>

#define TEXT_BYTES 1024u
#define LINES_BYTES (64u << 10)
/* A thread without a state of Python may get one later. */
#define NO_PYTHON_NS 1000000000ull

static uint32_t new_code(const sm_process *p, const lu_python_frame *frame) {
    static char name[TEXT_BYTES], file[TEXT_BYTES];
    static uint8_t lines[LINES_BYTES];
    int32_t pid = p->pid, first_line;
    uint64_t at_file, at_name, at_lines;
    if (lu_python_code(p->python, frame->code, sm_read_memory, &pid, &at_file, &at_name, &at_lines, &first_line))
        return LT_NONE;
    int name_bytes = lu_python_text(p->python, at_name, sm_read_memory, &pid, name, sizeof name);
    int file_bytes = lu_python_text(p->python, at_file, sm_read_memory, &pid, file, sizeof file);
    int lines_bytes = lu_python_bytes(p->python, at_lines, sm_read_memory, &pid, lines, sizeof lines);
    if (name_bytes < 0 || file_bytes < 0)
        return LT_NONE;
    sm_code_text text = {p->number, p->python, name, file, lines, (uint32_t)name_bytes, (uint32_t)file_bytes,
                         lines_bytes < 0 ? 0 : (uint32_t)lines_bytes, first_line, LT_NONE};
    return sm_code(&text);
}

uint32_t sm_python_code(const sm_process *p, lu_python_frame *frame) {
    uint8_t head[LU_PYTHON_CODE_BYTES];
    int32_t pid = p->pid;
    if (!frame->lines && sm_read_memory(&pid, frame->code, head, sizeof head))
        return LT_NONE;
    if (!frame->lines)
        lu_python_known_by(p->python, head, frame);
    uint64_t name = frame->name ^ frame->lines << 20 ^ (uint64_t)(uint32_t)frame->first_line << 40;
    uint32_t *known = sm_known(frame->code ^ (uint64_t)p->number << 48, name);
    if (!known)
        return LT_NONE;
    if (*known == LT_NONE)
        *known = new_code(p, frame);
    return *known;
}

/* Frames lie side by side: a page is read at once. */
#define PAGE_BYTES 4096u
typedef struct {
    int32_t pid;
    uint64_t page;
    uint8_t bytes[PAGE_BYTES];
} pages;

static int read_pages(void *from, uint64_t address, void *into, size_t bytes) {
    pages *of = from;
    uint64_t page = address & ~(uint64_t)(PAGE_BYTES - 1);
    if (!page || bytes > PAGE_BYTES - (address - page))
        return sm_read_memory(&of->pid, address, into, bytes);
    if (of->page != page && sm_read_memory(&of->pid, page, of->bytes, PAGE_BYTES)) {
        of->page = 0;
        return -1;
    }
    of->page = page;
    memcpy(into, of->bytes + (address - page), bytes);
    return 0;
}

/* The frames of the thread with this state, in both ways; how many, and whether all are there. */
static int frames_of(const sm_process *p, uint64_t state, lu_python_frame *frames, sm_python_frame *into, int *is_cut) {
    lu_python_left_out left_out;
    pages of = {.pid = p->pid};
    int count = lu_python_frames(p->python, state, read_pages, &of, frames, LF_SAMPLES_FRAMES_MOST - 1, &left_out);
    for (int i = 0; i < count; i++)
        into[i] = (sm_python_frame){sm_python_code(p, &frames[i]), frames[i].place};
    *is_cut = left_out.is_cut;
    if (count <= 0 || !left_out.between)
        return count > 0 ? count : 0;
    size_t outer = (size_t)(count - left_out.behind);
    memmove(&into[left_out.behind + 1], &into[left_out.behind], outer * sizeof *into);
    memmove(&frames[left_out.behind + 1], &frames[left_out.behind], outer * sizeof *frames);
    into[left_out.behind] = (sm_python_frame){LF_BETWEEN, (uint32_t)left_out.between};
    frames[left_out.behind] = frames[left_out.behind - 1];
    return count + 1;
}

uint64_t sm_python_state(sm_thread *t) {
    const sm_process *p = t->process;
    int32_t pid = p->pid;
    if (p->python <= LF_PYTHON_UNKNOWN || sm.now_ns < t->no_python_ns + NO_PYTHON_NS)
        return 0;
    if (t->python_state && lu_python_is_thread(p->python, t->python_state, t->tid, sm_read_memory, &pid))
        return t->python_state;
    uint64_t state = lu_python_thread(p->python, p->python_runtime, t->tid, sm_read_memory, &pid);
    t->python_state = state;
    if (!state)
        t->no_python_ns = sm.now_ns;
    return state;
}

/* The frames of the thread as they are now, in both ways; how many. At most LF_SAMPLES_FRAMES_MOST. */
int sm_python_frames(sm_thread *t, lu_python_frame *frames, sm_python_frame *into) {
    int is_cut;
    uint64_t state = sm_python_state(t);
    return state ? frames_of(t->process, state, frames, into, &is_cut) : 0;
}

int sm_python_frames_now(sm_thread *t, lu_python_frame *frames, sm_python_frame *into, int *is_whole) {
    uint32_t python = t->process->python;
    int32_t pid = t->process->pid;
    uint64_t state = sm_python_state(t), before[2], after[2];
    int is_cut = 0;
    *is_whole = 0;
    if (!state || lu_python_here(python, state, sm_read_memory, &pid, before))
        return 0;
    int count = frames_of(t->process, state, frames, into, &is_cut);
    if (!is_cut && !lu_python_here(python, state, sm_read_memory, &pid, after))
        *is_whole = before[0] == after[0] && before[1] == after[1];
    return count;
}
