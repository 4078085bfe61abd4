/* The names that a program in Python gives its threads. The kernel does not know them (CPython does not tell it before
 * 3.14), so they go into the area of samples. Two functions of `threading` are hooked by their vectorcall field, as calls
 * of modules are (modules.c): the one that a new thread begins with, and the one that sets another name. Both are called
 * from C, which calls functions by that field in all versions. All here runs with the GIL held. */
#define _GNU_SOURCE
#include "python.h"
#include "sampling.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static ls_function_hook beginnings, renames;
static lf_samples_header *(*area_here)(void);
static void *(*attribute_of)(void *object, const char *name);
static const char *(*text_of)(void *object, intptr_t *bytes);
static long (*number_of)(void *object);
static void (*decrease)(void *object), (*clear_error)(void);
static void *(*modules)(void), *(*item_of)(void *dictionary, const char *key);
static int (*has_gil)(void);

static int look_up(void) {
    *(void **)&attribute_of = dlsym(RTLD_DEFAULT, "PyObject_GetAttrString");
    *(void **)&text_of = dlsym(RTLD_DEFAULT, "PyUnicode_AsUTF8AndSize");
    *(void **)&number_of = dlsym(RTLD_DEFAULT, "PyLong_AsLong");
    *(void **)&decrease = dlsym(RTLD_DEFAULT, "Py_DecRef");
    *(void **)&clear_error = dlsym(RTLD_DEFAULT, "PyErr_Clear");
    *(void **)&modules = dlsym(RTLD_DEFAULT, "PyImport_GetModuleDict");
    *(void **)&item_of = dlsym(RTLD_DEFAULT, "PyDict_GetItemString");
    *(void **)&has_gil = dlsym(RTLD_DEFAULT, "PyGILState_Check");
    return attribute_of && text_of && number_of && decrease && clear_error && modules && item_of && has_gil ? 0 : -1;
}

static void write_down(int32_t tid, const char *name, size_t bytes_of_name) {
    lf_samples_header *area = area_here();
    size_t length = bytes_of_name < LF_THREAD_NAME_MOST ? bytes_of_name : LF_THREAD_NAME_MOST;
    size_t bytes = (sizeof(lf_sample_name) + length + 15) & ~(size_t)15;
    uint64_t position;
    lf_sample_name *record = area ? (lf_sample_name *)ls_samples_reserve(area, bytes, &position) : NULL;
    if (!record) /* no room: it has the name that the kernel knows */
        return;
    record->tid = tid;
    record->name_bytes = (uint32_t)length;
    record->at_ns = ls_monotonic_ns();
    memcpy(record + 1, name, length);
    ls_samples_commit(&record->head, bytes, LF_SAMPLE_NAME, 0, position);
}

static void tell_name(void *thread, int32_t tid) {
    void *name = attribute_of(thread, "_name");
    intptr_t bytes;
    const char *text = name ? text_of(name, &bytes) : NULL;
    if (!text)
        clear_error();
    else if (bytes)
        write_down(tid, text, (size_t)bytes);
    if (name)
        decrease(name);
}

/* In the place of Thread._bootstrap, in the thread itself. The last call leaves no frame of ours. */
static void *begun(void *function, void *const *arguments, size_t count, void *keywords) {
    if (ls_argument_count(count) >= 1)
        tell_name(arguments[0], (int32_t)syscall(SYS_gettid));
    return beginnings.original(function, arguments, count, keywords);
}

/* In the place of what sets Thread.name, in any thread. One that has not begun has no number. */
static void *renamed(void *function, void *const *arguments, size_t count, void *keywords) {
    void *answer = renames.original(function, arguments, count, keywords);
    void *number = answer && ls_argument_count(count) >= 1 ? attribute_of(arguments[0], "_native_id") : NULL;
    long tid = number ? number_of(number) : -1;
    if (answer && tid < 0)
        clear_error();
    if (number)
        decrease(number);
    if (tid > 0)
        tell_name(arguments[0], (int32_t)tid);
    return answer;
}

static void hook(void *class) {
    void *begin = attribute_of(class, "_bootstrap"), *like = attribute_of(class, "is_alive");
    void *name = attribute_of(class, "name"), *set = name ? attribute_of(name, "fset") : NULL;
    if (begin && like && !ls_function_is_hooked(&beginnings, begun))
        ls_hook_function(&beginnings, begin, like, begun);
    if (set && like && !ls_function_is_hooked(&renames, renamed))
        ls_hook_function(&renames, set, like, renamed);
    clear_error();
    void *const held[] = {begin, like, name, set};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        if (held[i])
            decrease(held[i]);
}

/* A thread of Python is about to begin; the calling thread has the GIL. `area`: that of this process, NULL: it has made
 * none. */
void ls_thread_names_begin(lf_samples_header *(*area)(void)) {
    area_here = area;
    if (ls_function_is_hooked(&beginnings, begun) || look_up() || !has_gil())
        return;
    void *threading = item_of(modules(), "threading");
    void *class = threading ? attribute_of(threading, "Thread") : NULL;
    if (class) {
        hook(class);
        decrease(class);
    } else if (threading)
        clear_error();
}

void ls_thread_names_end(void) {
    ls_unhook_function(&beginnings, begun);
    ls_unhook_function(&renames, renamed);
}
