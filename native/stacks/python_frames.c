/* The frames of CPython, read through `read` alone: inside the program in a signal handler, and from outside.
 *
 * Builds with Py_DEBUG or without the GIL are laid out otherwise (python_layout.h): to native/agent/interpreter.c they
 * are LF_PYTHON_UNKNOWN.
 *
 * Python calls Python without a C frame in between. Where a C frame of the interpreter begins, 3.11 sets `is_entry` in
 * the frame; later ones put a frame of no function, owned by the C stack, outside of it. What a frame of 3.14 names is
 * marked in the lowest bits where it is not counted. */
#include "python_frames.h"
#include "python_layout.h"

#include <string.h>

#define FRAME_BYTES 80u   /* of an _PyInterpreterFrame: all that is looked at */
#define OBJECT_TYPE 8u    /* in a PyObject: ob_type */
#define TYPE_NAME 24u     /* in a PyTypeObject: tp_name */
#define STRING_LENGTH 16u /* in a PyASCIIObject: length, and its bits of state */
#define STRING_STATE 32u
#define CODE_UNITS 16u /* in a PyCodeObject: ob_size, units of two bytes */
#define BYTES_SIZE 16u /* in a PyBytesObject: ob_size, and the first byte */
#define BYTES_FIRST 32u
enum { OWNED_BY_C_STACK = 3 }; /* and 4 */
#define RUNTIME_VERSION 8u /* in _Py_DebugOffsets, of which so many bytes are looked at */
#define OFFSETS_BYTES 392u
enum { VALUES = 72, VALUES_3_14 = 80, NUMBER_MARK = 3 }; /* of a frame: localsplus */
#define RETURN_OF_INIT_BYTES 16u
#define MARKS 7ull /* of what frames of 3.14 name, in the lowest bits */
#define INTERPRETER_BYTES 1024u /* of the C stack that a C frame of the interpreter takes at most */
enum { KIND_SHIFT = 2, KIND_MASK = 7, IS_COMPACT = 1 << 5, IS_ASCII = 1 << 6 };
/* More threads, or interpreters, there are not: a list that does not end is one that changes. */
#define THREADS_MOST 100000u

/* The object that a word names. 0: it could not be read. */
static uint64_t follow(lu_read read, void *of, uint64_t address) {
    uint64_t word;
    return read(of, address, &word, sizeof word) ? 0 : word;
}

/* --- Which builds are understood --- */

static const char *refusal_by_offsets(uint64_t version, const uint8_t *offsets) {
    uint32_t minor = version >> 16 & 0xff;
    if (memcmp(offsets, LU_RUNTIME_COOKIE, sizeof LU_RUNTIME_COOKIE - 1))
        return "its runtime does not say how it is laid out";
    if (word_at(offsets, LU_RUNTIME_FREE_THREADED))
        return "it is a free-threaded build";
    if (word_at(offsets, RUNTIME_VERSION) >> 16 != version >> 16)
        return "its runtime is of another version";
    return minor < LF_PYTHON_3_14 || is_as_said(layout_of(minor), offsets)
        ? NULL : "its frames are laid out otherwise than those of releases";
}

const char *lu_python_refusal(uint64_t version, uint64_t runtime, lu_read read, void *of) {
    uint8_t offsets[OFFSETS_BYTES];
    uint32_t minor = version >> 16 & 0xff;
    if (!version)
        return "it is older than 3.11";
    if (version >> 24 != 3 || !layout_of(minor))
        return "it is of a version that layerscope does not know";
    if (minor < LF_PYTHON_3_13)
        return NULL;
    return read(of, runtime, offsets, sizeof offsets) ? "its runtime cannot be read"
                                                      : refusal_by_offsets(version, offsets);
}

/* --- Frames --- */

/* Where in its code a frame is. One that has just been made is before its first instruction. */
static uint32_t place_of(const layout *l, const uint8_t *frame, uint64_t code) {
    int64_t bytes = (int64_t)(word_at(frame, l->instruction) - code - l->units);
    return bytes < 0 || bytes >= (int64_t)LF_ENTRY ? 0 : (uint32_t)bytes;
}

static uint64_t code_in(const layout *l, const uint8_t *frame) { return word_at(frame, l->code) & ~MARKS; }

/* Where `__init__` of a class returns to in 3.13 and later, when its call was specialised: a frame of code that is of no
 * function. No text is called as its file is, and begins before the first line. */
static int is_return_of_init(const layout *l, uint64_t code, uint32_t place, lu_read read, void *of) {
    uint64_t file, name;
    uint32_t line;
    if (l->c_frame != NO_C_FRAME || place > RETURN_OF_INIT_BYTES || read(of, code + l->first_line, &line, sizeof line)
        || line)
        return 0;
    return !read(of, code + l->file, &file, sizeof file) && !read(of, code + l->name, &name, sizeof name)
        && file == name;
}

static int is_shim(const layout *l, const uint8_t *frame) {
    return !l->is_entry && frame[l->owner] >= OWNED_BY_C_STACK;
}

static int is_entry(const layout *l, const uint8_t *frame) { return l->is_entry && frame[l->is_entry]; }

/* The innermost frame of a thread, and where the frames of its C frame have to end. */
typedef struct {
    uint64_t frame, c_frame, end;
    int is_checked; /* `end` is known, and they may end elsewhere */
} beginning;

/* Of this _PyCFrame. -1: it cannot be read. */
static int begin_at(const layout *l, uint64_t c_frame, lu_read read, void *of, beginning *into) {
    uint64_t words[2];
    if (read(of, c_frame + l->c_frame, words, sizeof words))
        return -1;
    *into = (beginning){words[0], c_frame, 0, 1};
    return read(of, words[1] + l->c_frame, &into->end, sizeof into->end) ? -1 : 0;
}

/* -1: it is not known.
 *
 * In 3.11 and 3.12 a C frame of the interpreter names its _PyCFrame to the thread before it has filled it in. When that
 * may be so, at `stack_pointer`, its frames have to end where those of the one before it begin. Else the one before it
 * may be found, in what is there already or still from the last time. */
static int begin_walk(const layout *l, uint64_t thread_state, uint64_t stack_pointer, lu_read read, void *of,
                      beginning *into) {
    uint64_t at;
    if (read(of, thread_state + l->thread_frame, &at, sizeof at))
        return -1;
    *into = (beginning){at, 0, 0, 0};
    if (l->c_frame == NO_C_FRAME)
        return 0;
    into->c_frame = at;
    int may_be_new = stack_pointer && at >= stack_pointer && at - stack_pointer < INTERPRETER_BYTES;
    if (may_be_new && !begin_at(l, at, read, of, into))
        return 0;
    *into = (beginning){0, at, 0, may_be_new};
    return may_be_new ? 0 : read(of, at + l->c_frame, &into->frame, sizeof into->frame);
}

/* The frames of a walk: the innermost from the beginning of `into` on, the outermost in turns behind them. */
typedef struct {
    lu_python_frame *into, *last;
    int inner, outer, count; /* how many there is room for; all so far */
} kept_frames;

static void keep_frame(kept_frames *k, lu_python_frame frame) {
    int at = k->count < k->inner ? k->count : k->inner + (k->count - k->inner) % k->outer;
    k->last = &k->into[at];
    *k->last = frame;
    k->count++;
}

static void reverse(lu_python_frame *frames, int from, int to) {
    for (; from < --to; from++) {
        lu_python_frame swapped = frames[from];
        frames[from] = frames[to], frames[to] = swapped;
    }
}

/* Puts them in order; how many there are, and how many are left out behind the first `inner`. */
static int finish_frames(const kept_frames *k, int *between) {
    int most = k->inner + k->outer;
    *between = k->count > most ? k->count - most : 0;
    if (!*between)
        return k->count;
    int turned = (k->count - k->inner) % k->outer;
    reverse(k->into, k->inner, k->inner + turned);
    reverse(k->into, k->inner + turned, most);
    reverse(k->into, k->inner, most);
    return most;
}

enum { WALKED, WALK_CUT, WALK_WRONG }; /* wrong: the C frame was not filled in */

static int walk_from(const layout *l, const beginning *begin, lu_read read, void *of, kept_frames *into) {
    int between = 0, is_checked = begin->is_checked;
    uint64_t at = begin->frame;
    if (!at && is_checked)
        return WALK_WRONG;
    while (at) {
        uint8_t frame[FRAME_BYTES];
        uint64_t here = at;
        /* Not more frames of the C stack than of Python, but for the innermost: what is read changes meanwhile. */
        if (into->count == (int)LF_WALKED_FRAMES_MOST || between > into->count + 1 || at % 8
            || read(of, at, frame, sizeof frame))
            return is_checked ? WALK_WRONG : WALK_CUT;
        at = word_at(frame, l->previous);
        int ends = is_shim(l, frame) || is_entry(l, frame);
        if (is_checked && ((ends && at != begin->end) || (!ends && !at)))
            return WALK_WRONG;
        is_checked = is_checked && !ends;
        if (is_shim(l, frame)) {
            between++;
            if (into->count)
                into->last->place |= LF_ENTRY;
            continue;
        }
        uint64_t code = code_in(l, frame);
        uint32_t place = place_of(l, frame, code) | (is_entry(l, frame) ? LF_ENTRY : 0);
        if (is_return_of_init(l, code, place, read, of))
            continue;
        keep_frame(into, (lu_python_frame){.at = here, .code = code, .place = place});
    }
    return WALKED;
}

/* In 3.11 and 3.12: the frames of the _PyCFrame before. */
static int walk_from_before(const layout *l, const beginning *begin, lu_read read, void *of, kept_frames *into) {
    beginning before;
    uint64_t c_frame;
    into->count = 0;
    if (read(of, begin->c_frame + l->c_frame + 8, &c_frame, sizeof c_frame) || begin_at(l, c_frame, read, of, &before))
        return WALK_WRONG;
    return walk_from(l, &before, read, of, into);
}

int lu_python_walk(uint32_t python, uint64_t thread_state, uint64_t stack_pointer, lu_read read, void *of,
                   lu_python_frame *into, int most, lu_python_left_out *left_out) {
    const layout *l = layout_of(python);
    int outer = most > 2 * (int)LF_OUTERMOST_FRAMES ? (int)LF_OUTERMOST_FRAMES : most / 2;
    kept_frames kept = {into, NULL, most - outer, outer, 0};
    beginning begin;
    *left_out = (lu_python_left_out){.is_cut = 1};
    if (!l || !thread_state || most < 2 || begin_walk(l, thread_state, stack_pointer, read, of, &begin))
        return -1;
    int outcome = walk_from(l, &begin, read, of, &kept);
    if (outcome == WALK_WRONG)
        outcome = walk_from_before(l, &begin, read, of, &kept);
    if (outcome == WALK_WRONG)
        return -1;
    left_out->is_cut = outcome == WALK_CUT;
    int count = finish_frames(&kept, &left_out->between);
    left_out->behind = left_out->between ? kept.inner : count;
    if (!left_out->is_cut || !left_out->between)
        return count;
    left_out->between = 0; /* those behind are not the outermost */
    return kept.inner;
}

int lu_python_here(uint32_t python, uint64_t thread_state, lu_read read, void *of, uint64_t into[2]) {
    const layout *l = layout_of(python);
    beginning begin;
    if (!l || begin_walk(l, thread_state, 0, read, of, &begin))
        return -1;
    into[0] = begin.frame;
    into[1] = 0;
    return into[0] && read(of, into[0] + l->instruction, &into[1], sizeof into[1]) ? -1 : 0;
}

static int read_own(void *of, uint64_t address, void *into, size_t bytes) {
    (void)of;
    memcpy(into, (const void *)(uintptr_t)address, bytes);
    return 0;
}

/* What lu_python_outwards gives, of these bytes of the frame. */
static uint64_t outwards(const layout *l, const uint8_t *frame, lu_read read, void *of, lu_python_frame *into) {
    if (!is_shim(l, frame)) {
        into->code = code_in(l, frame);
        into->place = place_of(l, frame, into->code);
        if (is_return_of_init(l, into->code, into->place, read, of))
            into->code = 0;
    }
    return word_at(frame, l->previous);
}

uint64_t lu_python_own_outwards(uint32_t python, uint64_t frame, lu_python_frame *into) {
    const layout *l = layout_of(python);
    into->code = 0;
    if (!l || !frame || frame % 8)
        return 0;
    return outwards(l, (const uint8_t *)(uintptr_t)frame, read_own, NULL, into);
}

int lu_python_c_frames(uint32_t python, uint64_t thread_state, lu_read read, void *of, uint64_t *into, int most) {
    const layout *l = layout_of(python);
    int count = 0;
    if (!l || l->c_frame == NO_C_FRAME)
        return 0;
    uint64_t at = follow(read, of, thread_state + l->thread_frame);
    for (; at && at % 8 == 0 && count < most; at = follow(read, of, at + l->c_frame + 8))
        into[count++] = at;
    return count;
}

uint32_t lu_python_frame_in_c_frame(uint32_t python) {
    const layout *l = layout_of(python);
    return l ? l->c_frame : 0;
}

uint64_t lu_python_code_of(uint32_t python, uint64_t frame, lu_read read, void *of) {
    const layout *l = layout_of(python);
    return l && frame % 8 == 0 ? follow(read, of, frame + l->code) & ~MARKS : 0;
}

void lu_python_known_by(uint32_t python, const uint8_t *code, lu_python_frame *into) {
    const layout *l = layout_of(python);
    into->name = word_at(code, l->name);
    into->lines = word_at(code, l->lines);
    memcpy(&into->first_line, code + l->first_line, sizeof into->first_line);
}

uint64_t lu_python_first_instruction(uint32_t python, uint64_t code) {
    const layout *l = layout_of(python);
    return l ? code + l->units : 0;
}

uint64_t lu_python_instructions(uint32_t python, uint64_t code, const uint8_t *bytes, uint64_t *first) {
    const layout *l = layout_of(python);
    *first = lu_python_first_instruction(python, code);
    return l ? 2 * word_at(bytes, CODE_UNITS) : 0;
}

/* The frame before `i` that has the same code, of the last few: recursion, and a frame that is asked twice. */
static const lu_python_frame *known_among(const lu_python_frame *frames, int i) {
    for (int k = i - 1; k >= 0 && k >= i - 8; k--)
        if (frames[k].code == frames[i].code)
            return &frames[k];
    return NULL;
}

int lu_python_frames(uint32_t python, uint64_t thread_state, lu_read read, void *of, lu_python_frame *into, int most,
                     lu_python_left_out *left_out) {
    int count = lu_python_walk(python, thread_state, 0, read, of, into, most, left_out);
    for (int i = 0; i < count; i++) {
        const lu_python_frame *same = known_among(into, i);
        uint8_t code[LU_PYTHON_CODE_BYTES];
        if (same) {
            into[i].name = same->name;
            into[i].lines = same->lines;
            into[i].first_line = same->first_line;
        } else if (read(of, into[i].code, code, sizeof code)) {
            *left_out = (lu_python_left_out){.behind = i, .is_cut = 1};
            return i;
        } else
            lu_python_known_by(python, code, &into[i]);
    }
    return count;
}

/* --- Threads --- */

static int runs_functions(const layout *l, uint64_t thread_state, lu_read read, void *of) {
    beginning begin;
    return !begin_walk(l, thread_state, 0, read, of, &begin) && begin.frame;
}

/* Interpreters are found from the newest one to the first. Up to CPython 3.12 a state has the number of the thread that
 * made it: the one of a later interpreter may be run by any other. */
int lu_python_is_rather(uint32_t python, int runs_before, int runs) {
    return !runs_before || (runs && python < LF_PYTHON_3_13);
}

uint64_t lu_python_thread(uint32_t python, uint64_t runtime, int32_t tid, lu_read read, void *of) {
    const layout *l = layout_of(python);
    uint32_t steps = 0;
    uint64_t found = 0;
    int found_runs = 0;
    uint64_t interpreter = l && runtime ? follow(read, of, runtime + l->interpreters) : 0;
    for (; interpreter; interpreter = follow(read, of, interpreter + l->interpreter_next)) {
        uint64_t thread = follow(read, of, interpreter + l->interpreter_threads);
        while (thread && follow(read, of, thread + l->thread_native_id) != (uint64_t)tid) {
            if (++steps > THREADS_MOST)
                return found;
            thread = follow(read, of, thread + l->thread_next);
        }
        int runs = thread && runs_functions(l, thread, read, of);
        if (thread && lu_python_is_rather(python, found_runs, runs))
            found = thread, found_runs = runs;
        if (++steps > THREADS_MOST)
            return found;
    }
    return found;
}

int lu_python_threads(uint32_t python, uint64_t runtime, lu_read read, void *of, lu_python_thread_facts *into, int most) {
    const layout *l = layout_of(python);
    int count = 0;
    uint32_t steps = 0;
    uint64_t interpreter = l && runtime ? follow(read, of, runtime + l->interpreters) : 0;
    for (; interpreter && steps < THREADS_MOST; interpreter = follow(read, of, interpreter + l->interpreter_next)) {
        uint64_t thread = follow(read, of, interpreter + l->interpreter_threads);
        for (; thread && count < most && ++steps < THREADS_MOST; thread = follow(read, of, thread + l->thread_next)) {
            uint64_t numbers[2]; /* thread_id lies before native_thread_id */
            if (read(of, thread + l->thread_native_id - 8, numbers, sizeof numbers))
                return count;
            int runs = runs_functions(l, thread, read, of);
            into[count++] = (lu_python_thread_facts){thread, numbers[0], (int32_t)numbers[1], runs};
        }
        steps++;
    }
    return count;
}

uint64_t lu_python_outwards(uint32_t python, uint64_t frame, lu_read read, void *of, lu_python_frame *into) {
    const layout *l = layout_of(python);
    uint8_t bytes[FRAME_BYTES];
    into->code = 0;
    if (!l || !frame || frame % 8 || read(of, frame, bytes, sizeof bytes))
        return 0;
    return outwards(l, bytes, read, of, into);
}

uint64_t lu_python_value_at(uint32_t python, uint64_t frame, uint32_t number) {
    return frame + (python >= LF_PYTHON_3_14 ? VALUES_3_14 : VALUES) + 8ull * number;
}

uint64_t lu_python_value(uint32_t python, uint64_t word) {
    if (python < LF_PYTHON_3_14)
        return word;
    return (word & NUMBER_MARK) == NUMBER_MARK ? 0 : word & ~MARKS;
}

int lu_python_is_thread(uint32_t python, uint64_t thread_state, int32_t tid, lu_read read, void *of) {
    const layout *l = layout_of(python);
    return l && follow(read, of, thread_state + l->thread_native_id) == (uint64_t)tid;
}

/* --- What a code object holds --- */

static int is_code(uint64_t object, lu_read read, void *of) {
    uint64_t type = object && object % 8 == 0 ? follow(read, of, object + OBJECT_TYPE) : 0;
    uint64_t name = type ? follow(read, of, type + TYPE_NAME) : 0;
    char text[5];
    return name && !read(of, name, text, sizeof text) && !memcmp(text, "code", sizeof text);
}

int lu_python_code(uint32_t python, uint64_t code, lu_read read, void *of, uint64_t *file, uint64_t *name,
                   uint64_t *lines, int32_t *first_line) {
    const layout *l = layout_of(python);
    uint8_t bytes[LU_PYTHON_CODE_BYTES];
    if (!l || !is_code(code, read, of) || read(of, code, bytes, sizeof bytes))
        return -1;
    lu_python_frame known;
    lu_python_known_by(python, bytes, &known);
    *file = word_at(bytes, l->file);
    *name = known.name;
    *lines = known.lines;
    *first_line = known.first_line;
    return 0;
}

int lu_python_bytes(uint32_t python, uint64_t object, lu_read read, void *of, uint8_t *into, size_t most) {
    uint64_t size;
    if (!layout_of(python) || !object || read(of, object + BYTES_SIZE, &size, sizeof size) || size > most)
        return -1;
    return size && read(of, object + BYTES_FIRST, into, size) ? -1 : (int)size;
}

/* One character as UTF-8, which has none for halves of surrogate pairs (bytes of a path that are no UTF-8). */
static size_t encode(uint32_t c, char into[4]) {
    if ((c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        c = 0xfffd;
    size_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i > 0; i--, c >>= 6)
        into[i] = (char)(0x80 | (c & 0x3f));
    into[0] = (char)(first[more] | c);
    return more + 1;
}

static int text_of_wide(uint64_t data, uint64_t length, uint32_t width, lu_read read, void *of, char *into,
                        size_t most) {
    uint8_t part[64];
    size_t used = 0;
    for (uint64_t i = 0, fits = sizeof part / width; i < length; i += fits) {
        fits = length - i < fits ? length - i : fits;
        if (read(of, data + i * width, part, fits * width))
            return -1;
        for (uint64_t k = 0; k < fits; k++) {
            uint32_t c = 0;
            char coded[4];
            memcpy(&c, part + k * width, width); /* little endian */
            size_t bytes = encode(c, coded);
            if (used + bytes > most)
                return (int)used;
            memcpy(into + used, coded, bytes);
            used += bytes;
        }
    }
    return (int)used;
}

int lu_python_text(uint32_t python, uint64_t object, lu_read read, void *of, char *into, size_t most) {
    const layout *l = layout_of(python);
    uint8_t head[STRING_STATE + 8];
    if (!l || !object || read(of, object, head, sizeof head))
        return -1;
    uint64_t length = word_at(head, STRING_LENGTH), state = word_at(head, STRING_STATE);
    uint32_t kind = state >> KIND_SHIFT & KIND_MASK;
    if (!(state & IS_COMPACT) || (kind != 1 && kind != 2 && kind != 4))
        return -1;
    if (!(state & IS_ASCII))
        return text_of_wide(object + l->compact_bytes, length, kind, read, of, into, most);
    length = length < most ? length : most;
    return length && read(of, object + l->ascii_bytes, into, length) ? -1 : (int)length;
}
