/* A method that begins a run and returns: another thread calls back where it is over. What stands for the method hands
 * on a function of ours in the place of the callback. Everything here runs with the GIL held. */
#define _GNU_SOURCE
#include "modules.h"
#include "python.h"
#include "requests.h"
#include "stand_ins.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MOST_ARGUMENTS 16

/* A run begins that ends on another thread: a call of a module on a track of requests. 0: it is not recorded. */
LS_EXPORT uint64_t ls_async_run_begin(uint64_t handle[3]) {
    handle[2] = ls_request_here();
    return ls_request_take(handle);
}

/* What is told of a run: the thread that has executed it, which calls back where it is over. */
static uint32_t executed_by(const ls_thread *t) {
    char json[32];
    ls_cached_name name = {.id = 0};
    snprintf(json, sizeof json, "{\"thread\":%d}", t->ring->h.tid);
    ls_name_find_arguments(json, &name);
    return name.id;
}

/* It is over; `module`: what was run, NULL: nothing was. */
LS_EXPORT void ls_async_run_end(const uint64_t handle[3], const void *module) {
    uint32_t track = ls_request_give_back(handle[1]);
    uint32_t called = track && module ? ls_module_name(module) : 0;
    ls_thread *t = called ? ls_thread_here() : NULL;
    lf_record run = {.start = handle[0], .name = called, .module = called, .kind = LF_MODULE};
    if (t)
        ls_request_write(t, run, track, (uint32_t)handle[2], executed_by(t));
}

static void *(*item)(void *tuple, ssize_t place);
static ssize_t (*size_of)(void *tuple);
static int (*is_other)(void *name, const char *text);

static int place; /* of the callback among the arguments that have no name, the object being the first */
static const char *name;
static void *begins, *fails;

static int find_python(void) {
    *(void **)&item = dlsym(RTLD_DEFAULT, "PyTuple_GetItem");
    *(void **)&size_of = dlsym(RTLD_DEFAULT, "PyTuple_Size");
    *(void **)&is_other = dlsym(RTLD_DEFAULT, "PyUnicode_CompareWithASCIIString");
    return item && size_of && is_other ? 0 : -1;
}

/* Where the callback is among the arguments, those with names behind the others; -1: it is not there. */
static ssize_t place_of_callback(ssize_t count, void *names, ssize_t named) {
    if (count > place)
        return place;
    for (ssize_t i = 0; i < named; i++)
        if (!is_other(item(names, i), name))
            return count + i;
    return -1;
}

/* What stands for a callback is called: `run` says that it is over, and gives the callback. */
static void *call_back(void *run, void *const *arguments, ssize_t count, void *names) {
    const void *given[LS_ASKED] = {NULL};
    void *callback = NULL;
    if (!ls_python_ask(run, given, &callback) || !callback)
        return NULL;
    void *result = ls_call_python(callback, arguments, count, names);
    ls_python_release(callback);
    return result;
}

static void *call(void *function, void *const *arguments, ssize_t count, void *names) {
    ssize_t named = names ? size_of(names) : 0;
    ssize_t at = count > 0 ? place_of_callback(count, names, named) : -1;
    if (at < 0 || count + named > MOST_ARGUMENTS)
        return ls_call_python(function, arguments, count, names);
    const void *given[LS_ASKED] = {arguments[0], arguments[at]};
    void *ours = NULL;
    if (!ls_python_ask(begins, given, &ours))
        return NULL;
    void *stands = ours && ours != arguments[at] ? ls_stand_for_function(ours, call_back) : NULL;
    void *handed[MOST_ARGUMENTS];
    memcpy(handed, arguments, (size_t)(count + named) * sizeof *handed);
    if (stands)
        handed[at] = stands;
    void *result = ls_call_python(function, handed, count, names);
    if (!result && stands)
        ls_python_tell_failure(fails, ours);
    if (stands)
        ls_python_release(stands);
    if (ours)
        ls_python_release(ours);
    return result;
}

/* What stands for `function`, whose argument number `at` (the object being number 0), called `called`, is the callback.
 * `begin(object, callback)` gives that, or what is called where the run is over, and gives it then; and `fail(that)` is
 * called where the method raises.
 * A new reference; NULL: this Python is not understood. Once in a process. */
LS_EXPORT void *ls_async_run_stand_in(void *function, int at, const char *called, void *begin, void *fail) {
    if (!ls.page || !ls.wiped || !ls_python_is_understood() || find_python())
        return NULL;
    char *copy = strdup(called);
    void *ours = copy ? ls_stand_for_function(function, call) : NULL;
    if (!ours)
        return NULL;
    ls_python_keep(begin);
    ls_python_keep(fail);
    place = at;
    name = copy;
    begins = begin;
    fails = fail;
    return ours;
}
