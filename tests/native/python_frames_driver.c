/* native/stacks/python_frames.c from outside. usage:
 *   python_frames_driver read PID VERSION RUNTIME TID...   the frames of threads of another process, which wait
 *   python_frames_driver offsets                           what this program was compiled with (-DHEADERS), one a line
 *   python_frames_driver noise SEED ROUNDS                 memory that makes no sense */
#define _GNU_SOURCE
#include "stacks/python_frames.c"

#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

#if defined(HEADERS)
#define Py_BUILD_CORE 1
#include <Python.h>
#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_debug_offsets.h"
#include "internal/pycore_interpframe.h"
#endif

#define HAS(member, type, field) \
    do { \
        if (l->member != offsetof(type, field)) \
            printf(#member ": %u, %zu in the headers\n", l->member, offsetof(type, field)); \
    } while (0)

static void compare(void) {
    const layout *l = layout_of(PY_VERSION_HEX >> 16 & 0xff);
    HAS(thread_next, PyThreadState, next);
    HAS(thread_native_id, PyThreadState, native_thread_id);
#if PY_VERSION_HEX < 0x030d0000
    HAS(thread_frame, PyThreadState, cframe);
    HAS(c_frame, _PyCFrame, current_frame);
    HAS(c_frame + 8, _PyCFrame, previous);
    HAS(code, _PyInterpreterFrame, f_code);
    HAS(instruction, _PyInterpreterFrame, prev_instr);
#else
    HAS(thread_frame, PyThreadState, current_frame);
    HAS(code, _PyInterpreterFrame, f_executable);
    HAS(instruction, _PyInterpreterFrame, instr_ptr);
#endif
#if PY_VERSION_HEX < 0x030c0000
    HAS(is_entry, _PyInterpreterFrame, is_entry);
#else
#if PY_VERSION_HEX < 0x030e0000
    if (FRAME_OWNED_BY_CSTACK != OWNED_BY_C_STACK)
#else
    if (FRAME_OWNED_BY_INTERPRETER != OWNED_BY_C_STACK || FRAME_OWNED_BY_CSTACK != OWNED_BY_C_STACK + 1)
#endif
        puts("owned by the C stack");
#endif
    HAS(previous, _PyInterpreterFrame, previous);
    HAS(owner, _PyInterpreterFrame, owner);
    HAS(first_line, PyCodeObject, co_firstlineno);
    HAS(file, PyCodeObject, co_filename);
    HAS(name, PyCodeObject, co_qualname);
    HAS(lines, PyCodeObject, co_linetable);
    HAS(units, PyCodeObject, co_code_adaptive);
    HAS(interpreters, _PyRuntimeState, interpreters.head);
    HAS(interpreter_next, PyInterpreterState, next);
    HAS(interpreter_threads, PyInterpreterState, threads.head);
    if (l->ascii_bytes != sizeof(PyASCIIObject) || l->compact_bytes != sizeof(PyCompactUnicodeObject))
        puts("heads of strings");
    if (STRING_STATE != offsetof(PyASCIIObject, state) || BYTES_FIRST != offsetof(PyBytesObject, ob_sval))
        puts("strings, bytes");
    if (TYPE_NAME != offsetof(PyTypeObject, tp_name) || FRAME_BYTES > sizeof(_PyInterpreterFrame))
        puts("types, frames");
#if PY_VERSION_HEX >= 0x030e0000
    _Py_DebugOffsets offsets = _Py_DebugOffsets_INIT(LU_RUNTIME_COOKIE);
    if (!is_as_said(l, (const uint8_t *)&offsets))
        puts("what the runtime says of itself");
#endif
    printf("%d.%d\n", PY_MAJOR_VERSION, PY_MINOR_VERSION);
}
#endif

static int read_other(void *pid, uint64_t address, void *into, size_t bytes) {
    struct iovec ours = {into, bytes}, theirs = {(void *)(uintptr_t)address, bytes};
    return process_vm_readv(*(pid_t *)pid, &ours, 1, &theirs, 1, 0) == (ssize_t)bytes ? 0 : -1;
}

static void print_frames(pid_t pid, uint32_t python, uint64_t runtime, int32_t tid) {
    lu_python_frame frames[64];
    lu_python_left_out left_out;
    uint64_t state = lu_python_thread(python, runtime, tid, read_other, &pid);
    int count = lu_python_frames(python, state, read_other, &pid, frames, 64, &left_out);
    printf("%d %d %d %d\n", tid, count, left_out.is_cut, left_out.between);
    for (int i = 0; i < count; i++) {
        uint64_t file, name, lines;
        int32_t first_line;
        char texts[2][1024];
        uint8_t table[32768];
        if (lu_python_code(python, frames[i].code, read_other, &pid, &file, &name, &lines, &first_line))
            exit(1);
        int file_bytes = lu_python_text(python, file, read_other, &pid, texts[0], sizeof texts[0]);
        int name_bytes = lu_python_text(python, name, read_other, &pid, texts[1], sizeof texts[1]);
        int line_bytes = lu_python_bytes(python, lines, read_other, &pid, table, sizeof table);
        if (file_bytes < 0 || name_bytes < 0 || line_bytes < 0 || name != frames[i].name || lines != frames[i].lines)
            exit(2);
        printf("%.*s|%.*s|%d|%u|%d|", name_bytes, texts[1], file_bytes, texts[0], first_line,
               frames[i].place & ~LF_ENTRY, frames[i].place >= LF_ENTRY);
        for (int k = 0; k < line_bytes; k++)
            printf("%02x", table[k]);
        puts("");
    }
}

/* Half of it is not there; the rest is small numbers, addresses and anything. */
static int read_noise(void *state, uint64_t address, void *into, size_t bytes) {
    uint64_t *seed = state, word;
    for (size_t i = 0; i < bytes; i += sizeof word) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        word = *seed >> 33;
        word = word % 4 == 0 ? word : word % 4 == 1 ? word % 64 : word % 4 == 2 ? address : word * 8;
        memcpy((uint8_t *)into + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
    }
    return *seed >> 60 == 0 ? -1 : 0;
}

static void make_noise(uint64_t seed, int rounds) {
    static lu_python_frame frames[512];
    static char text[1024];
    lu_python_left_out left_out;
    int most = 0;
    for (int i = 0; i < rounds; i++) {
        uint32_t python = 10u + (uint32_t)i % 6;
        uint64_t at = seed << 8;
        int count = lu_python_walk(python, at, i & 1 ? at - 64 : 0, read_noise, &seed, frames, 512, &left_out);
        count = count > most ? count : lu_python_frames(python, at, read_noise, &seed, frames, 512, &left_out);
        most = count > most ? count : most;
        if (lu_python_text(python, at, read_noise, &seed, text, sizeof text) > (int)sizeof text
            || lu_python_bytes(python, at, read_noise, &seed, (uint8_t *)text, sizeof text) > (int)sizeof text)
            exit(3);
        if (i % 64 == 0)
            lu_python_thread(python, at, 77, read_noise, &seed);
    }
    printf("%d\n", most);
}

int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[1], "noise"))
        make_noise(strtoull(argv[2], NULL, 10), atoi(argv[3]));
#if defined(HEADERS)
    else if (argc > 1 && !strcmp(argv[1], "offsets"))
        compare();
#endif
    else
        for (int i = 5; i < argc; i++)
            print_frames(atoi(argv[2]), (uint32_t)atoi(argv[3]), strtoull(argv[4], NULL, 10), atoi(argv[i]));
    return 0;
}
