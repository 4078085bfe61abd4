/* Numbers for what repeats: frames, stacks as a tree of prefixes, codes of Python. Each is written once.
 *
 * One open hash from two 64-bit numbers to one; of texts those are two hashes. Each is bounded: three quarters of a
 * power of two, so that all of its slots are used. A stack that is new when there are too many is charged to the one
 * that it grows from. */
#define _GNU_SOURCE
#include "intern.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_SLOTS (1u << 12)
#define MOST_STACKS (3u << 17)
#define MOST_FRAMES (3u << 16)
#define MOST_CODES (3u << 15)
#define MOST_KNOWN (3u << 16)

typedef struct {
    uint64_t a, b;
    uint32_t number, used;
} slot;
typedef struct {
    slot *slots;
    uint32_t mask, used, most;
} table;

static table frames = {.most = MOST_FRAMES}, stacks = {.most = MOST_STACKS}, codes = {.most = MOST_CODES},
             known = {.most = MOST_KNOWN};
static uint16_t *depths; /* by stack */
static uint32_t depths_room;

static uint64_t mixed(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15f39cc060ull) * 0xc2b2ae3d27d4eb4full;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
    return x ^ x >> 29;
}

static slot *find(const table *t, uint64_t a, uint64_t b) {
    for (uint32_t at = (uint32_t)mixed(a, b) & t->mask;; at = (at + 1) & t->mask) {
        slot *s = &t->slots[at];
        if (!s->used || (s->a == a && s->b == b))
            return s;
    }
}

static int grow(table *t) {
    uint32_t slots = t->slots ? (t->mask + 1) * 2 : LEAST_SLOTS;
    table larger = {calloc(slots, sizeof(slot)), slots - 1, t->used, t->most};
    if (!larger.slots)
        return -1;
    for (uint32_t i = 0; t->slots && i <= t->mask; i++)
        if (t->slots[i].used)
            *find(&larger, t->slots[i].a, t->slots[i].b) = t->slots[i];
    free(t->slots);
    *t = larger;
    return 0;
}

static void *say_full(void) {
    static int is_said;
    if (!is_said++)
        sm_problem("too_many_stacks", 0, "the innermost frames of stacks that are new from then on",
                   "allow the recording more (run --max-size), or record a part of the run (--after, --for)",
                   "there are more different stacks than are kept: new ones are charged to the one they grow from");
    return NULL;
}

/* The place of (a, b); `*is_new`: it had none. NULL: there is no room for more. */
static slot *enter(table *t, uint64_t a, uint64_t b, int *is_new) {
    if (t->slots) {
        slot *s = find(t, a, b);
        *is_new = 0;
        if (s->used)
            return s;
    }
    if (t->used >= t->most || !sm_may_define())
        return say_full();
    if ((!t->slots || t->used >= (t->mask + 1) / 4 * 3) && grow(t))
        return NULL;
    slot *s = find(t, a, b);
    *is_new = 1;
    *s = (slot){a, b, t->used++, 1};
    return s;
}

/* The stack before this one, from the outside in: most of it comes again, and a table is looked up all over memory,
 * which others have used meanwhile. One for each of some outermost frames, as threads take turns. */
#define PATHS 4u
#define PATH_LENGTH 256u
typedef struct {
    uint32_t parent, frame, next; /* next: its number and one, 0: free */
} step;
static step paths[PATHS][PATH_LENGTH];
static uint32_t path, length; /* of the stack that grows */

/* The place of what grows from `parent` in the stack before; NULL: it is too long. */
static step *step_at(uint32_t parent, uint32_t frame) {
    if (parent == LT_NONE) {
        path = frame % PATHS;
        length = 0;
    }
    int goes_on = !length || paths[path][length - 1].next == parent + 1;
    return goes_on && length < PATH_LENGTH ? &paths[path][length++] : NULL;
}

static void leave(table *t, slot *s) {
    memset(s, 0, sizeof *s); /* the last one that was entered: nothing lies behind it */
    t->used--;
}

uint32_t sm_frame(uint32_t kind, uint32_t of, uint64_t address, uint32_t flags) {
    int is_new;
    slot *s = enter(&frames, (uint64_t)kind << 40 | (uint64_t)flags << 32 | of, address, &is_new);
    if (!s)
        return LT_NONE;
    if (is_new) {
        lt_frame *row = sm_row(LT_FRAMES, sizeof *row);
        if (!row) {
            leave(&frames, s);
            return LT_NONE;
        }
        *row = (lt_frame){s->number, kind, of, flags, address};
    }
    return s->number;
}

static int keep_depth(uint32_t stack, uint16_t depth) {
    if (stack >= depths_room) {
        uint32_t room = depths_room ? depths_room * 2 : LEAST_SLOTS;
        uint16_t *larger = realloc(depths, room * sizeof *depths);
        if (!larger)
            return -1;
        depths = larger, depths_room = room;
    }
    depths[stack] = depth;
    return 0;
}

static uint32_t look_up(uint32_t parent, uint32_t frame) {
    int is_new;
    slot *s = enter(&stacks, parent, frame, &is_new);
    if (!s)
        return LT_NONE;
    if (is_new) {
        uint16_t depth = parent == LT_NONE ? 0 : (uint16_t)(depths[parent] + 1);
        lt_stack *row = keep_depth(s->number, depth) ? NULL : sm_row(LT_STACKS, sizeof *row);
        if (!row) {
            leave(&stacks, s);
            return LT_NONE;
        }
        *row = (lt_stack){s->number, parent, frame, depth};
    }
    return s->number;
}

uint32_t sm_stack(uint32_t parent, uint32_t frame) {
    step *at = step_at(parent, frame);
    if (at && at->next && at->parent == parent && at->frame == frame)
        return at->next - 1;
    uint32_t number = look_up(parent, frame);
    if (at && number != LT_NONE)
        *at = (step){parent, frame, number + 1};
    return number;
}

static uint64_t hash(uint64_t h, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        h = mixed(h, word);
    }
    uint64_t last = bytes;
    for (size_t i = 0; i < bytes; i++)
        last = last << 8 | at[i];
    return mixed(h, last);
}

static int tell_code(uint32_t number, const sm_code_text *text) {
    size_t rest = (size_t)text->name_bytes + text->file_bytes + text->lines_bytes;
    lt_code *row = sm_text_row(LT_CODES, sizeof *row, rest);
    if (!row)
        return -1;
    *row = (lt_code){number, text->process, text->first_line, text->name_bytes, text->file_bytes,
                     text->lines_bytes, text->python, text->known_as};
    char *into = (char *)(row + 1);
    memcpy(into, text->name, text->name_bytes);
    memcpy(into + text->name_bytes, text->file, text->file_bytes);
    memcpy(into + text->name_bytes + text->file_bytes, text->lines, text->lines_bytes);
    return 0;
}

uint32_t sm_code(const sm_code_text *text) {
    int is_told_before = !text->name_bytes; /* to another sampler: its number is all that is known */
    uint64_t about[3] = {(uint64_t)text->process << 32 | (uint32_t)text->first_line,
                         (uint64_t)text->name_bytes << 32 | text->file_bytes, is_told_before ? text->known_as : 0};
    uint64_t a = hash(1, about, sizeof about), b = hash(2, about, sizeof about);
    for (uint64_t *one = &a;; one = &b) {
        *one = hash(hash(hash(*one, text->name, text->name_bytes), text->file, text->file_bytes), text->lines,
                    text->lines_bytes);
        if (one == &b)
            break;
    }
    int is_new;
    slot *s = enter(&codes, a, b, &is_new);
    if (!s)
        return LT_NONE;
    if (is_new && tell_code(s->number, text)) {
        leave(&codes, s);
        return LT_NONE;
    }
    if (!is_new && text->known_as != LT_NONE && !is_told_before)
        tell_code(s->number, &(sm_code_text){text->process, text->python, "", "", (const uint8_t *)"", 0, 0, 0, 0,
                                             text->known_as});
    return s->number;
}

/* LT_NONE is in it until somebody puts something there. What was known can be found out again. */
uint32_t *sm_known(uint64_t a, uint64_t b) {
    int is_new;
    if (known.used >= known.most) {
        memset(known.slots, 0, (known.mask + (size_t)1) * sizeof *known.slots);
        known.used = 0;
    }
    slot *s = enter(&known, a, b, &is_new);
    if (s && is_new)
        s->number = LT_NONE;
    return s ? &s->number : NULL;
}
