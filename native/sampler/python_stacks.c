/* The frames of Python that a thread has, read from outside. */
#define _GNU_SOURCE
#include "python_stacks.h"

#include "procfs.h"
#include "recording.h"

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

static uint32_t code_of(const sm_process *p, const lu_python_frame *frame) {
    uint64_t name = frame->name ^ frame->lines << 20 ^ (uint64_t)(uint32_t)frame->first_line << 40;
    uint32_t *known = sm_known(frame->code ^ (uint64_t)p->number << 48, name);
    if (!known)
        return LT_NONE;
    if (*known == LT_NONE)
        *known = new_code(p, frame);
    return *known;
}

/* The frames of the thread as they are now, in both ways; how many. At most LF_SAMPLES_FRAMES_MOST. */
int sm_python_frames(sm_thread *t, lu_python_frame *frames, sm_python_frame *into) {
    const sm_process *p = t->process;
    int32_t pid = p->pid;
    int is_cut = 0;
    if (p->python <= LF_PYTHON_UNKNOWN || sm.now_ns < t->no_python_ns + NO_PYTHON_NS)
        return 0;
    uint64_t state = lu_python_thread(p->python, p->python_runtime, t->tid, sm_read_memory, &pid);
    if (!state) {
        t->no_python_ns = sm.now_ns;
        return 0;
    }
    int count = lu_python_frames(p->python, state, sm_read_memory, &pid, frames, LF_SAMPLES_FRAMES_MOST, &is_cut);
    for (int i = 0; i < count; i++)
        into[i] = (sm_python_frame){code_of(p, &frames[i]), frames[i].place};
    return count > 0 ? count : 0;
}
