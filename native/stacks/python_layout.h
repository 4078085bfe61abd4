/* Where the members of CPython's structures lie: the same in all releases of a minor version (CPython says so in
 * pycore_runtime.h of 3.13). tests/native/test_python_frames.py compares the numbers with the headers of each version
 * that is there, and what the runtime of 3.14 says of itself must agree. */
#ifndef LAYERSCOPE_STACKS_PYTHON_LAYOUT_H
#define LAYERSCOPE_STACKS_PYTHON_LAYOUT_H

#include "../samples.h"

#include <stddef.h>
#include <string.h>

enum { NO_C_FRAME = 0xffff };

/* Offsets in bytes. */
typedef struct {
    uint16_t thread_next, thread_native_id, thread_frame;
    uint16_t c_frame;  /* 3.11, 3.12: the thread names a _PyCFrame, which has the frame here */
    uint16_t previous, code, instruction, owner;
    uint16_t is_entry; /* 3.11; 0: frames owned by the C stack tell */
    uint16_t first_line, file, name, lines, units;
    uint16_t interpreters, interpreter_next, interpreter_threads;
    uint16_t ascii_bytes, compact_bytes; /* of the heads of str objects */
} layout;

static const layout layouts[] = {
    {8, 160, 56, 8, 48, 32, 56, 69, 68, 72, 112, 128, 136, 184, 40, 0, 16, 48, 72},                   /* 3.11 */
    {8, 144, 56, 0, 8, 0, 56, 70, 0, 68, 112, 128, 136, 192, 40, 0, 72, 40, 56},                      /* 3.12 */
    {8, 160, 72, NO_C_FRAME, 8, 0, 56, 70, 0, 68, 112, 128, 136, 200, 632, 7264, 7344, 40, 56},       /* 3.13 */
    {8, 160, 72, NO_C_FRAME, 8, 0, 56, 74, 0, 68, 112, 128, 136, 208, 808, 7272, 7344, 40, 56},       /* 3.14 */
};

static inline const layout *layout_of(uint32_t python) {
    return python >= LF_PYTHON_3_11 && python <= LF_PYTHON_3_14 ? &layouts[python - LF_PYTHON_3_11] : NULL;
}

static inline uint64_t word_at(const uint8_t *bytes, size_t offset) {
    uint64_t word;
    memcpy(&word, bytes + offset, sizeof word);
    return word;
}

/* Where the runtime of 3.14 says in a word what the layout has. */
static const struct {
    uint16_t says, member; /* in _Py_DebugOffsets, in the layout */
} said[] = {
    {40, offsetof(layout, interpreters)}, {64, offsetof(layout, interpreter_next)},
    {72, offsetof(layout, interpreter_threads)}, {192, offsetof(layout, thread_next)},
    {208, offsetof(layout, thread_frame)}, {224, offsetof(layout, thread_native_id)},
    {256, offsetof(layout, previous)}, {264, offsetof(layout, code)},
    {272, offsetof(layout, instruction)}, {288, offsetof(layout, owner)},
    {320, offsetof(layout, file)}, {336, offsetof(layout, name)},
    {344, offsetof(layout, lines)}, {352, offsetof(layout, first_line)},
    {384, offsetof(layout, units)},
};

static inline int is_as_said(const layout *l, const uint8_t *offsets) {
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        uint16_t known;
        memcpy(&known, (const uint8_t *)l + said[i].member, sizeof known);
        if (word_at(offsets, said[i].says) != known)
            return 0;
    }
    return 1;
}

#endif
