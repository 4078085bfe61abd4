/* Requests that a program answers. Several are under way on one thread where it is written with coroutines, so each
 * lies on a track of its own: the first one that no other request has. What runs in the context (contextvars) of a
 * request belongs to it, on whatever thread, until it ends. */
#define _GNU_SOURCE
#include "requests.h"

#include <dlfcn.h>

#define MOST 4096u /* at a time; more are not recorded */
#define PLACE_BITS 16u

typedef struct {
    uint32_t track, is_taken;
    uint64_t serial;  /* of the request that has it */
    int64_t number;   /* of the request in the program, where requests are counted, -1: they are not */
    int is_in_window; /* that was asked for */
} lane;

static lane lanes[MOST];
static uint64_t generation, serials;

static int (*get_variable)(void *variable, void *otherwise, void **value);
static void *(*set_variable)(void *variable, void *value), *(*number)(uint64_t value);
static uint64_t (*value_of)(void *number);
static void (*release)(void *object), (*clear_error)(void);
static void *variable; /* what a context has: a serial and a place */

/* --- Their tracks ------------------------------------------------------------------------------------------------ */

/* A forked child has none of the requests of its parent. Locked. */
static void begin_process(uint64_t now) {
    if (generation == now)
        return;
    for (uint32_t place = 0; place < MOST; place++)
        lanes[place] = (lane){0};
    generation = now;
}

/* 0: all are taken. */
static uint32_t take(uint64_t now, uint64_t *serial, int64_t number, int is_in_window) {
    uint32_t place = 0;
    ls_lock(&ls.wiped->async_lock);
    begin_process(now);
    while (place < MOST && lanes[place].is_taken)
        place++;
    if (place < MOST) {
        lane *l = &lanes[place];
        if (!l->track)
            l->track = ls_new_track();
        l->number = number;
        l->is_in_window = is_in_window;
        LS_STORE(l->serial, ++serials);
        LS_STORE(l->is_taken, 1);
        *serial = serials;
    }
    ls_unlock(&ls.wiped->async_lock);
    return place < MOST ? place + 1 : 0;
}

static lane *lane_of(uint64_t mark) {
    uint64_t place = mark & ((1u << PLACE_BITS) - 1);
    if (!ls.wiped || !place || place > MOST || generation != LS_LOAD(ls.wiped->generation))
        return NULL;
    lane *l = &lanes[place - 1];
    return LS_LOAD(l->is_taken) && LS_LOAD(l->serial) == mark >> PLACE_BITS ? l : NULL;
}

static uint64_t begin(uint64_t handle[2], int64_t number, int is_in_window) {
    const ls_thread *t = ls_thread_here();
    if (!t)
        return 0;
    uint64_t serial = 0;
    uint32_t place = take(t->generation, &serial, number, is_in_window);
    if (!place)
        return 0;
    handle[0] = ls_ticks();
    handle[1] = serial << PLACE_BITS | place;
    __atomic_add_fetch(&ls.page->open_requests, 1, __ATOMIC_RELAXED);
    return handle[1];
}

/* What answers nobody begins on a track of requests, at `handle[0]`. Its mark, which is `handle[1]`; 0: it is not
 * recorded. */
uint64_t ls_request_take(uint64_t handle[2]) {
    handle[0] = handle[1] = 0;
    return ls.wiped && (!LS_LOAD(ls.watching) || ls_window_is_open()) ? begin(handle, -1, 0) : 0;
}

/* The same of a request that has arrived: a window of steps counts it. */
LS_EXPORT uint64_t ls_request_begin(uint64_t handle[2]) {
    handle[0] = handle[1] = 0;
    if (!ls.wiped)
        return 0;
    int is_watched = LS_LOAD(ls.watching) != 0, is_in = 0;
    int64_t number = is_watched ? ls_window_request_begins(&is_in) : -1;
    if (is_watched && !ls_window_is_open() && !ls_window_only_counts())
        return 0;
    uint64_t mark = begin(handle, number, is_in);
    if (is_in && !mark)
        ls_window_request_ended(number, is_in);
    return mark;
}

/* The thread that writes it says whose record it is, and at its next one that it is itself again. `args`: the name that
 * is the text of its arguments, 0: none. */
void ls_request_write(ls_thread *t, lf_record span, uint32_t track, uint32_t of_request, uint32_t args) {
    span.end = ls_ticks();
    if (!ls_ring_has_room(t, LS_ANY_SPAN)) {
        ls_ring_lose(t, 0);
        return;
    }
    *ls_ring_next(t) = (lf_record){.start = span.start, .seq = LF_OF_REQUESTS, .module = track, .kind = LF_THREAD_BEGIN};
    span.flags = of_request || args ? LF_FLAG_EXTRA : 0;
    *ls_ring_advance(t) = span;
    if (of_request)
        ls_extra(t, LF_EXTRA_SUBMITTED, span.start, of_request);
    if (args)
        ls_extra(t, LF_EXTRA_ARGS, args, 0);
    ls_ring_publish(t);
    t->announced = 0;
}

/* What had this mark and is over, without a track: it was already. */
static lane give_back(uint64_t mark) {
    lane was = {0};
    if (!lane_of(mark))
        return was;
    ls_lock(&ls.wiped->async_lock);
    lane *l = lane_of(mark);
    if (l) {
        was = *l;
        LS_STORE(l->is_taken, 0);
        __atomic_sub_fetch(&ls.page->open_requests, 1, __ATOMIC_RELAXED);
    }
    ls_unlock(&ls.wiped->async_lock);
    return was;
}

/* The track of that; 0: none. */
uint32_t ls_request_give_back(uint64_t mark) { return give_back(mark).track; }

/* It is answered, on whatever thread; `text`: its name, and in a second line its domain. A second end does nothing. */
LS_EXPORT void ls_request_end(const uint64_t handle[2], const char *text) {
    lane was = give_back(handle[1]);
    ls_thread *t = was.track ? ls_thread_here() : NULL;
    if (!t)
        return;
    ls_cached_name name;
    ls_name_find(text, &name);
    lf_record span = {.start = handle[0], .name = name.id, .seq = -1, .kind = LF_TASK};
    if (!ls_window_only_counts())
        ls_request_write(t, span, was.track, 0, 0);
    if (LS_LOAD(ls.watching))
        ls_window_request_ended(was.number, was.is_in_window);
}

/* --- What belongs to them ---------------------------------------------------------------------------------------- */

static int find_python(void) {
    void *(*make)(const char *name, void *otherwise) = NULL;
    *(void **)&make = dlsym(RTLD_DEFAULT, "PyContextVar_New");
    *(void **)&get_variable = dlsym(RTLD_DEFAULT, "PyContextVar_Get");
    *(void **)&set_variable = dlsym(RTLD_DEFAULT, "PyContextVar_Set");
    *(void **)&number = dlsym(RTLD_DEFAULT, "PyLong_FromUnsignedLongLong");
    *(void **)&value_of = dlsym(RTLD_DEFAULT, "PyLong_AsUnsignedLongLong");
    *(void **)&release = dlsym(RTLD_DEFAULT, "Py_DecRef");
    *(void **)&clear_error = dlsym(RTLD_DEFAULT, "PyErr_Clear");
    if (!make || !get_variable || !set_variable || !number || !value_of || !release || !clear_error)
        return -1;
    variable = make("layerscope_request", NULL);
    if (!variable)
        clear_error();
    return variable ? 0 : -1;
}

/* What runs in this context from now on, and in contexts that are copied of it, belongs to the request with this mark;
 * 0: to none. GIL held. */
LS_EXPORT void ls_request_enter(uint64_t mark) {
    if (!variable && find_python())
        return;
    void *value = number(mark);
    void *token = value ? set_variable(variable, value) : NULL;
    if (!token)
        clear_error();
    if (token)
        release(token);
    if (value)
        release(value);
}

/* The mark that this context has, of a request that may be over; 0: none. */
static uint64_t mark_here(void) {
    void *value = NULL;
    if (!variable)
        return 0;
    if (get_variable(variable, NULL, &value) || !value) {
        clear_error();
        return 0;
    }
    uint64_t mark = value_of(value);
    release(value);
    return mark;
}

static const lane *lane_here(void) { return LS_UNLIKELY(variable != NULL) ? lane_of(mark_here()) : NULL; }

/* The mark of the request that is under way here; 0: none. GIL held. */
LS_EXPORT uint64_t ls_request_mark(void) { return lane_here() ? mark_here() : 0; }

/* The track of it; 0: none. GIL held. */
uint32_t ls_request_here(void) {
    const lane *l = lane_here();
    return l ? l->track : 0;
}
