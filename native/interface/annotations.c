/* What the program says of itself: ranges, counters, markers, steps. */
#define _GNU_SOURCE
#include "interface.h"

#include <stdlib.h>
#include <string.h>

/* Both have room in what the agent keeps of a text, as in layerscope/profiler/objects.py. */
#define NAME_BYTES 700u
#define DOMAIN_BYTES 300u
#define TEXT_BYTES (NAME_BYTES + DOMAIN_BYTES + 2)
_Static_assert(TEXT_BYTES <= LF_NAME_LIMIT, "a name and its domain fit into a text");

/* The ranges that a thread has pushed. */
typedef struct {
    uint32_t depth;
    layerscope_range ranges[LF_OPEN_SLOTS];
} pushed;

static __thread pushed *mine;
static pthread_key_t key;
static pthread_once_t have_key = PTHREAD_ONCE_INIT;

/* At most `most` bytes of one line of text, whole characters; where it ends. */
static char *put(char *into, const char *text, size_t most) {
    size_t n = 0;
    for (; n < most && text[n]; n++)
        into[n] = text[n] == '\n' || text[n] == '\r' ? ' ' : text[n];
    if (text[n])
        while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
    return into + n;
}

/* A name and its domain as the agent takes them: the domain in a second line. */
static const char *text_of(const char *domain, const char *name, char into[TEXT_BYTES]) {
    char *end = put(into, name ? name : "", NAME_BYTES);
    if (domain && *domain) {
        *end++ = '\n';
        end = put(end, domain, DOMAIN_BYTES);
    }
    *end = 0;
    return into;
}

static layerscope_range begin(const char *domain, const char *name, int kind) {
    layerscope_range range = {{0, 0}};
    const li_recorder *to = li_running();
    char text[TEXT_BYTES];
    if (to && to->range_begin(text_of(domain, name, text), kind, range.opaque))
        range.opaque[0] = 0;
    return range;
}

LI_API layerscope_range layerscope_range_begin(const char *domain, const char *name) {
    return begin(domain, name, LF_TASK);
}

LI_API layerscope_range layerscope_frame_begin(const char *domain, const char *name) {
    return begin(domain, name, LF_FRAME);
}

LI_API void layerscope_range_end(layerscope_range range) {
    if (range.opaque[0]) /* then there is a recorder */
        li.recorder->range_end(range.opaque);
}

/* The thread ends; what else it runs at its end may push again. */
static void let_go(void *p) {
    mine = NULL;
    free(p);
}

static void make_key(void) { pthread_key_create(&key, let_go); }

/* Of this thread; made when it first pushes, so that threads with small stacks do not pay for it. */
static pushed *of_this_thread(void) {
    if (LS_UNLIKELY(!mine)) {
        mine = calloc(1, sizeof *mine);
        pthread_once(&have_key, make_key);
        pthread_setspecific(key, mine);
    }
    return mine;
}

LI_API void layerscope_push(const char *domain, const char *name) {
    pushed *p = of_this_thread();
    if (p && p->depth < LF_OPEN_SLOTS)
        p->ranges[p->depth] = begin(domain, name, LF_TASK);
    if (p)
        p->depth++; /* beyond that many only counted, so that the right ones end */
}

LI_API int layerscope_pop(void) {
    pushed *p = mine;
    if (!p || !p->depth)
        return li_fail("layerscope_pop without a layerscope_push on this thread");
    if (--p->depth < LF_OPEN_SLOTS)
        layerscope_range_end(p->ranges[p->depth]);
    return 0;
}

LI_API void layerscope_counter(const char *domain, const char *name, int64_t value) {
    const li_recorder *to = li_running();
    char text[TEXT_BYTES];
    if (to)
        to->counter(text_of(domain, name, text), value);
}

LI_API void layerscope_marker(const char *domain, const char *name, layerscope_scope scope) {
    const li_recorder *to = li_running();
    char text[TEXT_BYTES];
    if (to)
        to->mark(text_of(domain, name, text), LF_MARK_MARKER, (int32_t)scope);
}

LI_API void layerscope_step(void) {
    const li_recorder *to = li_running();
    if (to)
        to->mark("step", LF_MARK_STEP, 0);
}
