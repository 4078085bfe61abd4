/* One look at all threads of a process, from outside: nothing stops it. A thread that waits stays as it is while it is
 * read, and is read again if it did not; of one that runs, the frames of Python are read until two readings agree.
 *
 * Each line is a JSON object that says in its first member what it is about (model/threads_now.py has the same):
 * `object` an ELF file, `code` a function of Python, `thread`, and at last `process`. */
#define _GNU_SOURCE
#include "dump.h"

#include "../agent/location_table.h"
#include "dump_waits.h"
#include "joined_stacks.h"
#include "json.h"
#include "one_copy.h"
#include "outside_python.h"
#include "procfs.h"
#include "python_locks.h"
#include "python_objects.h"
#include "recording.h"
#include "wait_stacks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define TRIES 6
#define RUNNING_TRIES 40
/* How often and how long a copy of a running thread is waited for, and of all of them. */
#define COPIES_MOST 5
#define COPY_MS 20
#define ALL_COPIES_MS 300
#define COPY_BYTES (64u << 10)
#define TEXT_BYTES 1024u
#define LINES_BYTES (64u << 10)
#define LOCKS_MOST 16
#define PYTHON_THREADS_MOST 20000

typedef struct {
    uint8_t *lines;
    uint32_t bytes;
    int32_t first_line;
} code_lines;

static struct {
    code_lines *codes;
    uint32_t codes_count, codes_room, objects_told;
    lu_python_thread_facts *python_threads;
    int python_count, refused, is_native, copies_ms;
    uint32_t threads;
} all;

/* --- Functions of Python --- */

static uint32_t tell_code(const sm_process *p, const lu_python_frame *frame) {
    static char name[TEXT_BYTES], file[TEXT_BYTES];
    static uint8_t lines[LINES_BYTES];
    int32_t pid = p->pid, first_line;
    uint64_t at_file, at_name, at_lines;
    if (lu_python_code(p->python, frame->code, sm_read_pages, &pid, &at_file, &at_name, &at_lines, &first_line))
        return LT_NONE;
    int name_bytes = lu_python_text(p->python, at_name, sm_read_pages, &pid, name, sizeof name);
    int file_bytes = lu_python_text(p->python, at_file, sm_read_pages, &pid, file, sizeof file);
    int lines_bytes = lu_python_bytes(p->python, at_lines, sm_read_pages, &pid, lines, sizeof lines);
    if (all.codes_count == all.codes_room) {
        uint32_t room = all.codes_room ? 2 * all.codes_room : 256;
        code_lines *larger = realloc(all.codes, room * sizeof *larger);
        if (!larger)
            return LT_NONE;
        all.codes = larger, all.codes_room = room;
    }
    if (name_bytes < 0 || file_bytes < 0)
        return LT_NONE;
    code_lines *kept = &all.codes[all.codes_count];
    *kept = (code_lines){malloc(lines_bytes > 0 ? (size_t)lines_bytes : 1), 0, first_line};
    if (kept->lines && lines_bytes > 0)
        memcpy(kept->lines, lines, kept->bytes = (uint32_t)lines_bytes);
    printf("{\"code\":%u,\"name\":", all.codes_count);
    sm_json_text(name, (size_t)name_bytes);
    printf(",\"file\":");
    sm_json_text(file, (size_t)file_bytes);
    printf("}\n");
    return all.codes_count++;
}

static uint32_t code_of(const sm_process *p, const lu_python_frame *frame) {
    uint64_t name = frame->name ^ frame->lines << 20 ^ (uint64_t)(uint32_t)frame->first_line << 40;
    uint32_t *known = sm_known(frame->code ^ (uint64_t)(uint32_t)p->pid << 48, name);
    if (known && *known == LT_NONE)
        *known = tell_code(p, frame);
    return known ? *known : LT_NONE;
}

/* --- Stacks --- */

typedef struct {
    int count, frames; /* native, and of Python */
    uint32_t how;
    int is_cut, is_torn;
    lu_native_frame native[SM_FRAMES_MOST];
    sm_python_frame python[LF_SAMPLES_FRAMES_MOST];
    lu_python_frame raw[LF_SAMPLES_FRAMES_MOST];
} stack;

static void python_frames(const sm_process *p, uint64_t state, stack *s) {
    lu_python_left_out left_out = {0};
    int32_t pid = p->pid;
    s->frames = 0;
    int count = state ? lu_python_frames(p->python, state, sm_read_pages, &pid, s->raw, LF_SAMPLES_FRAMES_MOST - 1,
                                         &left_out) : 0;
    s->is_cut = left_out.is_cut;
    s->is_torn = 0;
    for (int i = 0; i < count; i++) {
        if (left_out.between && i == left_out.behind)
            s->python[s->frames++] = (sm_python_frame){LF_BETWEEN, (uint32_t)left_out.between};
        s->python[s->frames++] = (sm_python_frame){code_of(p, &s->raw[i]), s->raw[i].place};
    }
}

static void native_frames(sm_process *p, const sm_call *c, stack *s) {
    static uint8_t copied[COPY_BYTES] __attribute__((aligned(16)));
    int32_t pid = p->pid;
    struct iovec ours = {copied, sizeof copied}, theirs = {(void *)(uintptr_t)c->stack_pointer, sizeof copied};
    ssize_t bytes = process_vm_readv(pid, &ours, 1, &theirs, 1, 0);
    lu_stack_copy copy = {c->stack_pointer, copied, bytes > 0 ? (size_t)bytes : 0, sm_read_pages, &pid, NULL};
    uint64_t registers[LF_REGISTERS] = {[LF_RSP] = c->stack_pointer, [LF_RIP] = c->instruction};
    s->count = p->space && c->stack_pointer
        ? lu_unwind(p->space, registers, 1u << LF_RSP | 1u << LF_RIP, &copy, s->native, SM_FRAMES_MOST, &s->how) : 0;
}

/* Whether these are the same functions. */
static int are_same(const sm_python_frame *before, int count, const stack *s) {
    int is_same = count == s->frames && !s->is_cut;
    for (int i = 0; is_same && i < count; i++)
        is_same = before[i].code == s->python[i].code && before[i].code != LT_NONE;
    return is_same;
}

/* Of a thread that runs: two readings with the same functions are a stack that there was. */
static void python_of_running(const sm_process *p, uint64_t state, stack *s) {
    static sm_python_frame before[LF_SAMPLES_FRAMES_MOST];
    int count = -1;
    for (int i = 0; i < RUNNING_TRIES; i++) {
        sm_pages_forget();
        python_frames(p, state, s);
        if (are_same(before, count, s))
            return;
        count = s->frames;
        memcpy(before, s->python, (size_t)count * sizeof *before);
    }
    s->is_torn = 1;
}

/* Its native functions, of a copy that the kernel makes: with functions of Python that were the same before and after. */
static void running_frames(sm_process *p, int32_t tid, uint64_t state, stack *s) {
    static sm_python_frame before[LF_SAMPLES_FRAMES_MOST];
    static sm_one_copy c;
    int32_t pid = p->pid;
    python_of_running(p, state, s);
    if (!p->space || (state && !all.is_native))
        return;
    for (int i = 0; i < COPIES_MOST && all.copies_ms > 0; i++) {
        int count = s->frames, failed = sm_copy_once(tid, COPY_MS, &c);
        all.copies_ms -= failed == -EAGAIN ? COPY_MS : 1;
        if (failed == -EAGAIN)
            continue;
        if (failed)
            return;
        lu_stack_copy copy = {c.registers[LF_RSP], c.stack, c.bytes, sm_read_memory, &pid, NULL};
        memcpy(before, s->python, (size_t)count * sizeof *before);
        python_of_running(p, state, s);
        if (s->is_torn || !are_same(before, count, s))
            continue;
        s->count = lu_unwind(p->space, c.registers, (1u << LF_REGISTERS) - 1, &copy, s->native, SM_FRAMES_MOST, &s->how);
        return;
    }
}

/* --- Lines --- */

static void tell_objects(void) {
    for (; all.objects_told < lu_objects(); all.objects_told++) {
        const lu_object_facts *o = lu_object_of(all.objects_told);
        printf("{\"object\":%u,\"path\":", all.objects_told);
        sm_json_text(o->path, strlen(o->path));
        printf(",\"mtime_ns\":%" PRIu64 ",\"build_id\":\"", o->mtime_ns);
        for (uint32_t i = 0; i < o->build_id_bytes; i++)
            printf("%02x", o->build_id[i]);
        printf("\"}\n");
    }
}

typedef struct {
    sm_process *process;
    const char *separator;
} frame_line;

static void tell_native(void *of, uint64_t address, int is_caller) {
    frame_line *to = of;
    lu_place place = lu_space_find(to->process->space, address);
    int object = place.kind == LU_PLACE_FILE ? (int)place.object : -1;
    printf("%s[%d,%" PRIu64 ",%d]", to->separator, object, object < 0 ? address : place.address, is_caller);
    to->separator = ",";
}

static void tell_python(void *of, uint32_t code, uint32_t place) {
    frame_line *to = of;
    const code_lines *known = &all.codes[code];
    printf("%s[%u,%d]", to->separator, code, ls_line_of_place(known->lines, known->bytes, known->first_line, place));
    to->separator = ",";
}

static void tell_cut(void *of, uint32_t kind) {
    frame_line *to = of;
    printf("%s[%d]", to->separator, (int)kind);
    to->separator = ",";
}

static void tell_frames(sm_process *p, stack *s) {
    uint32_t flags = 0;
    frame_line line = {p, ""};
    sm_taker to = {tell_native, tell_python, tell_cut, &line};
    printf(",\"frames\":[");
    if (s->count || s->frames)
        sm_place(p, s->native, s->count, s->count ? s->how : LU_UNWOUND_ROOT, s->python, s->frames, &flags, &to);
    printf("]");
}

/* The locks whose `with` blocks it is in; but for those that a `Condition.wait` farther in has released. */
static void tell_held(const sm_process *p, uint64_t state) {
    sm_python_lock released[LOCKS_MOST];
    int released_count = 0;
    uint64_t frame = 0, here[2];
    int32_t pid = p->pid;
    const char *separator = "";
    if (!state || lu_python_here(p->python, state, sm_read_pages, &pid, here))
        return;
    printf(",\"holds\":[");
    frame = here[0];
    for (int i = 0; frame && i < (int)LF_SAMPLES_FRAMES_MOST; i++) {
        sm_python_lock held[LOCKS_MOST];
        lu_python_frame is;
        uint64_t outer = lu_python_outwards(p->python, frame, sm_read_pages, &pid, &is);
        int count = is.code ? sm_python_held(p, frame, &is, held, LOCKS_MOST) : 0;
        if (is.code && released_count < LOCKS_MOST)
            released_count += sm_python_released(p, frame, &is, &released[released_count]);
        for (int k = 0; k < count; k++) {
            int is_held = 1;
            for (int j = 0; j < released_count; j++)
                is_held = is_held && released[j].object != held[k].object;
            if (!is_held)
                continue;
            printf("%s[%" PRIu64 ",%" PRIu64 "]", separator, held[k].address, held[k].object);
            separator = ",";
        }
        frame = outer;
    }
    printf("]");
}

static void tell_lock(const sm_process *p, const sm_call *c) {
    sm_python_lock lock;
    if (sm_is_futex_wait(c) && sm_python_waits_for(p, c->stack_pointer, c->arguments[0], &lock))
        printf(",\"lock\":[%" PRIu64 ",%" PRIu64 ",%d,%" PRIu64 "]", lock.address, lock.object, lock.kind, lock.owner);
}

/* What Python's own Thread objects say: how the thread is called, and which one it joins. */
static void tell_names(const sm_process *p, uint64_t state) {
    uint64_t here[2], frame;
    int32_t pid = p->pid;
    if (!state || lu_python_here(p->python, state, sm_read_pages, &pid, here))
        return;
    frame = here[0];
    for (int i = 0, is_known = 0; frame && i < (int)LF_SAMPLES_FRAMES_MOST && !is_known; i++) {
        lu_python_frame is;
        uint64_t at = frame;
        frame = lu_python_outwards(p->python, frame, sm_read_pages, &pid, &is);
        if (is.code && i == 0)
            sm_tell_owner(p, at, &is);
        if (is.code)
            is_known = sm_tell_thread_object(p, at, &is);
    }
}

static uint64_t state_of(const sm_process *p, int32_t tid, uint64_t *identification) {
    const lu_python_thread_facts *found = NULL;
    for (int i = 0; i < all.python_count; i++) {
        const lu_python_thread_facts *one = &all.python_threads[i];
        if (one->tid == tid && (!found || lu_python_is_rather(p->python, found->runs, one->runs)))
            found = one;
    }
    if (!found)
        return 0;
    *identification = found->identification;
    return found->state;
}

/* A thread as one line; nothing if it has ended. */
static void tell_thread(int32_t pid, int32_t tid, void *of) {
    static stack s;
    sm_process *p = of;
    sm_thread t = {.process = p, .tid = tid, .wait_fd = -1};
    sm_status status;
    sm_call before, after;
    uint64_t identification = 0;
    int is_waiting = 0;
    if (sm_read_status(pid, tid, &status))
        return;
    uint64_t state = state_of(p, status.own_tid, &identification);
    s.is_torn = s.is_cut = s.count = s.frames = 0;
    for (int i = 0; i < TRIES && !is_waiting; i++) {
        errno = 0;
        if (sm_read_call(&t, &before)) {
            all.refused = errno == EACCES || errno == EPERM ? errno : all.refused;
            break;
        }
        sm_pages_forget();
        native_frames(p, &before, &s);
        python_frames(p, state, &s);
        is_waiting = !sm_read_call(&t, &after) && !memcmp(&before, &after, sizeof before);
    }
    if (!is_waiting) {
        s.count = 0;
        running_frames(p, tid, state, &s);
        sm_read_status(pid, tid, &status);
    }
    tell_objects();
    printf("{\"thread\":%d,\"pid\":%d,\"own_tid\":%d,\"name\":", tid, pid, status.own_tid);
    sm_json_text(status.name, strlen(status.name));
    printf(",\"state\":\"%c\",\"switches\":%" PRIu64 ",\"identification\":%" PRIu64 ",\"state_at\":%" PRIu64
           ",\"is_torn\":%s,\"is_native\":%s", status.state, status.switches, identification, state,
           s.is_torn ? "true" : "false", s.count ? "true" : "false");
    tell_names(p, state);
    if (is_waiting) {
        sm_tell_call(p, &before);
        tell_lock(p, &before);
    }
    tell_held(p, state);
    tell_frames(p, &s);
    printf("}\n");
    sm_look_end(&t);
    all.threads++;
}

static void find_python(sm_process *p) {
    int32_t pid = p->pid;
    sm_python_find(p);
    all.python_count = 0;
    if (p->python <= LF_PYTHON_UNKNOWN)
        return;
    if (!all.python_threads)
        all.python_threads = malloc(PYTHON_THREADS_MOST * sizeof *all.python_threads);
    if (all.python_threads)
        all.python_count = lu_python_threads(p->python, p->python_runtime, sm_read_pages, &pid, all.python_threads,
                                             PYTHON_THREADS_MOST);
}

static void tell_gil(const sm_process *p) {
    if (!all.python_count)
        return;
    sm_pages_forget();
    sm_gil gil = sm_python_gil(p, all.python_threads[all.python_count - 1].state); /* of the first interpreter */
    printf(",\"gil\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", gil.from, gil.until, gil.holder);
}

void sm_dump(int32_t pid, int is_native) {
    sm_process p = {.pid = pid};
    all.is_native = is_native;
    all.copies_ms = ALL_COPIES_MS;
    all.threads = 0;
    all.refused = 0;
    errno = 0;
    if (!sm_space(&p, 1))
        all.refused = errno ? errno : ESRCH;
    find_python(&p);
    sm_each_task(pid, tell_thread, &p);
    printf("{\"process\":%d,\"python\":%u,\"threads\":%u,\"errno\":%d", pid, p.python, all.threads, all.refused);
    if (p.outside.refused)
        printf(",\"refused\":\"%s\"", p.outside.refused);
    tell_gil(&p);
    printf("}\n");
    sm_space_forget(&p);
}
