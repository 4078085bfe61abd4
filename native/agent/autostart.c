/* The door into a process without Python, or with a Python that came to nothing of ours: the first library that uses
 * ITT or NVTX loads us, and LAYERSCOPE_AGENT (capture/agent.py writes it) says how the recorder is reached.
 *
 *     socket=NAME;tsc=0|1;ranks=0,3;window=first:last:every:by_time:mark;stacks=hz:timers;memory=1;api=0;
 *     refusals=FOLDER
 *
 * All but the socket may be missing, and what has another meaning there is percent-encoded. Whoever comes first
 * prepares, this door or that of Python; the other one finds it done. Where stacks are recorded Python itself comes in
 * by this door as soon as it starts. */
#define _GNU_SOURCE
#include "../frameworks/frameworks.h"
#include "client.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

LS_EXPORT void ls_window_set(int64_t first, int64_t last, int64_t every, int by_time, const char *mark);
LS_EXPORT const char *ls_refusal(int *error);
LS_EXPORT void ls_note_cost(uint64_t cpu_ns);
LS_EXPORT void ls_python_memory_start(void);

static void decode(char *text) {
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned code;
        int is_code = from[0] == '%' && sscanf(from + 1, "%2x", &code) == 1 && from[1] && from[2];
        *to = is_code ? (char)code : *from;
        from += is_code ? 3 : 1;
    }
    *to = 0;
}

/* The value of `key` in `settings`, as it stands there; empty: it is not there. */
static void value_of(const char *settings, const char *key, char *into, size_t bytes) {
    size_t length = strlen(key);
    *into = 0;
    for (const char *at = settings; *at; at += strcspn(at, ";"), at += *at == ';') {
        if (strncmp(at, key, length) || at[length] != '=')
            continue;
        size_t have = strcspn(at + length + 1, ";");
        have = have < bytes ? have : bytes - 1;
        memcpy(into, at + length + 1, have);
        into[have] = 0;
        return;
    }
}

/* Whether this process is of a rank that is recorded; one that is not known to be any rank is. */
static int is_chosen(const char *ranks) {
    int32_t rank, world_size;
    if (!*ranks || !ls_rank(&rank, &world_size))
        return 1;
    for (const char *at = ranks; *at; at += strcspn(at, ","), at += *at == ',')
        if (strtol(at, NULL, 10) == rank)
            return 1;
    return 0;
}

static void set_window(char *window) {
    long long first, last, every;
    int by_time, mark = 0;
    if (sscanf(window, "%lld:%lld:%lld:%d:%n", &first, &last, &every, &by_time, &mark) != 4 || !mark)
        return;
    decode(window + mark);
    ls_window_set(first, last, every, by_time, window + mark);
}

static void start_sampling(const char *stacks) {
    int hz, uses_timers;
    if (sscanf(stacks, "%d:%d", &hz, &uses_timers) == 2)
        ls_sampling_start(hz, uses_timers);
}

/* Of Python's objects, from its beginning on. */
static void start_counting_memory(void) {
    const char *settings = secure_getenv("LAYERSCOPE_AGENT");
    char text[8];
    value_of(settings ? settings : "", "memory", text, sizeof text);
    if (*text == '1')
        ls_python_memory_start();
}

/* Nobody else hears of a process that can hand nothing over. By a link: it takes no descriptor and no space. */
static void tell_refusal(const char *folder) {
    char why[64], note[4200];
    int error;
    const char *call = ls_refusal(&error);
    snprintf(why, sizeof why, "%s %d", call, error);
    snprintf(note, sizeof note, "%s/refused-%d", folder, (int)getpid());
    if (*folder && symlink(why, note))
        return; /* another user, or another root */
}

/* Threads call us when they end: we must not be unloaded. */
static void stay(void) {
    Dl_info us;
    if (dladdr((void *)(uintptr_t)stay, &us) && us.dli_fname)
        dlopen(us.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static ls_framework_request request = {.with_calls = 1, .is_late = 1};
static _Atomic int has_framework;

static void begin(const ls_framework *framework) {
    if (framework && !atomic_exchange(&has_framework, 1))
        framework->begin(&request);
}

/* Whether a framework is here by now; from then on it is recorded. */
static int framework_arrives(void) {
    char library[PATH_MAX];
    const ls_framework *framework = atomic_load(&has_framework) ? NULL : ls_framework_find(library);
    if (framework && !ls_prepare("", library, 0)) {
        uint64_t before = cpu_ns();
        begin(framework);
        ls_note_cost(cpu_ns() - before);
    }
    return atomic_load(&has_framework);
}

/* Something in this process begins to use ITT, NVTX or layerscope.h. 0: it is recorded; 1: its rank is left out. */
LS_EXPORT int ls_door_open(void) {
    if (ls.wiped) {
        framework_arrives();
        return 0;
    }
    const char *settings = secure_getenv("LAYERSCOPE_AGENT");
    char text[4096];
    if (!settings)
        return -1;
    value_of(settings, "ranks", text, sizeof text);
    if (!is_chosen(text))
        return 1;
    uint64_t before = cpu_ns();
    value_of(settings, "tsc", text, sizeof text);
    int use_tsc = *text == '1';
    value_of(settings, "socket", text, sizeof text);
    decode(text);
    if (!*text)
        return -1;
    char library[PATH_MAX];
    const ls_framework *framework = ls_framework_find(library);
    if (ls_prepare(text, framework ? library : "", use_tsc)) {
        value_of(settings, "refusals", text, sizeof text);
        decode(text);
        tell_refusal(text);
        return -1;
    }
    stay();
    value_of(settings, "window", text, sizeof text);
    set_window(text);
    value_of(settings, "stacks", text, sizeof text);
    start_sampling(text);
    value_of(settings, "api", text, sizeof text);
    request.with_calls = *text != '0';
    begin(framework);
    ls_note_cost(cpu_ns() - before);
    return 0;
}

/* We are loaded before the program begins: it has used no framework yet, and is seen to load one. */
LS_EXPORT void ls_door_preloaded(void) {
    request.is_late = 0;
    if (!ls_door_open() && !framework_arrives())
        ls_later_libraries(framework_arrives);
}

/* Python loads us as a module, for which it needs no other: ctypes would cost more than all that we do here, and would
 * have `struct` in sys.modules before one of the program's. There is no module in the end, and that is what we say. */
LS_EXPORT void *PyInit_layerscope_agent(void) {
    void (*set_error)(void *, const char *) = NULL;
    *(void **)&set_error = dlsym(RTLD_DEFAULT, "PyErr_SetString");
    void **import_error = dlsym(RTLD_DEFAULT, "PyExc_ImportError");
    if (set_error && import_error) {
        if (!ls_door_open())
            start_counting_memory();
        set_error(*import_error, "there is no such module");
    }
    return NULL;
}
