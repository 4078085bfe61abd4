/* The recording, as a program steers it: configured, run, stopped, written. The meaning of every function is that of
 * layerscope/profiler. */
#define _GNU_SOURCE
#include "interface.h"

#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FILE "profile.json"
#define END_PATIENCE_NS 2000000000u

li_globals li;
li_config li_asked = {.continuous = 1, .period_s = 1.0, .max_size_bytes = LI_MAX_SIZE_BYTES};
static int is_paused;
static uint64_t file_since_ns; /* from when on what is recorded belongs to the file that is named now */
static __thread char error[512];

/* Say why a call fails; always -1. */
int li_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(error, sizeof error, format, values);
    va_end(values);
    return -1;
}

LI_API const char *layerscope_version(void) { return LAYERSCOPE_VERSION; }
LI_API const char *layerscope_error(void) { return error; }
LI_API const char *layerscope_recording(void) { return li_recording_path(); }

/* --- Keys --- */

/* A number with a decimal point, whatever the program's language has (setlocale). */
static double number_in(const char *text, char **end) {
    return strtod_l(text, end, newlocale(LC_ALL_MASK, "C", (locale_t)0)); /* of "C" there is one, and none is made */
}

static int as_bool(const char *key, const char *value, int *into) {
    static const char *const yes[] = {"True", "true", "1"}, *const no[] = {"False", "false", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!strcmp(value, yes[i]) || !strcmp(value, no[i])) {
            *into = !strcmp(value, yes[i]);
            return 0;
        }
    return li_fail("the key %s is true or false, not '%s'", key, value);
}

static int as_bytes(const char *value, uint64_t *into) {
    static const char units[] = "kMGT";
    char *end;
    double number = number_in(value, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        number *= 1000;
    end += unit != NULL;
    if (end == value || (*end && strcmp(end, "B")) || !(number >= LI_LEAST_SIZE_BYTES) || number > 1e18)
        return li_fail("the key max_size is a size of at least 4MB like 500MB or 2GB, not '%s'", value);
    *into = (uint64_t)number;
    return 0;
}

static int as_file(const char *value, char into[PATH_MAX]) {
    char here[PATH_MAX] = "";
    size_t length = strlen(value);
    int is_absolute = value[0] == '/';
    if (!length || value[length - 1] == '/')
        return li_fail("the key filename is the path of a file, not '%s'", value);
    if (!is_absolute && !getcwd(here, sizeof here))
        return li_fail("the file %s has no place: the working directory is gone", value);
    if (strlen(here) + length + 2 > PATH_MAX)
        return li_fail("the key filename is too long (%zu bytes)", length);
    sprintf(into, "%s%s%s", here, is_absolute ? "" : "/", value);
    return 0;
}

static int set_key(const char *key, const char *value, li_config *config) {
    static const char *const bools[] = {"profile_all", "profile_symbolic", "profile_imperative", "profile_memory",
                                        "profile_api", "aggregate_stats"};
    int ignored;
    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++)
        if (!strcmp(key, bools[i]))
            return as_bool(key, value, &ignored);
    if (!strcmp(key, "continuous_dump"))
        return as_bool(key, value, &config->continuous);
    if (!strcmp(key, "filename"))
        return as_file(value, config->file);
    if (!strcmp(key, "max_size"))
        return as_bytes(value, &config->max_size_bytes);
    if (!strcmp(key, "gpu_memory_profile_filename_prefix"))
        return 0;
    if (!strcmp(key, "profile_process"))
        return strcmp(value, "worker") && strcmp(value, "server")
                   ? li_fail("the key profile_process is 'worker' or 'server', not '%s'", value) : 0;
    if (strcmp(key, "dump_period"))
        return li_fail("layerscope_set_config has no key '%s'; docs/c_interface.md lists its keys", key);
    char *end;
    config->period_s = number_in(value, &end);
    return end == value || *end || !(config->period_s > 0)
               ? li_fail("the key dump_period is a number of seconds above 0, not '%s'", value) : 0;
}

LI_API int layerscope_set_config(int n, const char *const *keys, const char *const *values) {
    li_config config = {.continuous = 1, .period_s = 1.0, .max_size_bytes = LI_MAX_SIZE_BYTES};
    if (n < 0 || (n && (!keys || !values)))
        return li_fail("layerscope_set_config takes the number of keys, the keys and the values");
    for (int i = 0; i < n; i++) {
        if (!keys[i] || !values[i])
            return li_fail("the key or the value number %d is NULL", i);
        if (set_key(keys[i], values[i], &config))
            return -1;
    }
    li_look();
    li_lock();
    int is_other = strcmp(config.file, li_asked.file) != 0;
    li_asked = config;
    if (is_other && li.has_run)
        file_since_ns = ls_monotonic_ns();
    int asks = li.is_attached && is_other && li.has_run && !is_paused && config.file[0];
    uint64_t since_ns = file_since_ns;
    li_unlock();
    return asks ? li_ask_for_trace(config.file, since_ns) : 0;
}

/* --- States --- */

/* The first call of all: under `layerscope run` everything is recorded from here on. */
const li_recorder *li_look(void) {
    li_lock();
    if (li.state == LI_UNKNOWN) {
        if (li_is_run_around())
            li.recorder = li_attach(&li.is_left_out);
        li.is_attached = li.recorder != NULL;
        __atomic_store_n(&li.state, li.is_attached ? LI_RUNNING : LI_STOPPED, __ATOMIC_RELEASE);
    }
    const li_recorder *found = li.state == LI_RUNNING ? li.recorder : NULL;
    li_unlock();
    return found;
}

static int run(void) {
    if (li.is_left_out)
        return 0;
    if (!li.recorder && li_is_run_around()) /* it may answer now; else it is said again why not */
        li.recorder = li_attach(&li.is_left_out);
    li.is_attached |= li_is_run_around();
    int failed = 0;
    if (!li.recorder && !li.is_attached)
        li.recorder = li_recording_begin();
    else if (!li.is_attached)
        failed = li_recording_running();
    if (!li.recorder || failed)
        return -1;
    if (is_paused)
        li.recorder->mark("profiler", LF_MARK_RESUMED, 0);
    is_paused = 0;
    if (!li.has_run)
        li.since_ns = file_since_ns = ls_monotonic_ns();
    li.has_run = 1;
    __atomic_store_n(&li.state, LI_RUNNING, __ATOMIC_RELEASE);
    return 0;
}

static int stop(void) {
    if (li.state != LI_RUNNING)
        return 0;
    __atomic_store_n(&li.state, LI_STOPPED, __ATOMIC_RELEASE);
    li.recorder->mark("profiler", LF_MARK_PAUSED, 0);
    is_paused = 1;
    return 0;
}

LI_API int layerscope_set_state(const char *state) {
    int runs = state && !strcmp(state, "run");
    if (!runs && (!state || strcmp(state, "stop")))
        return li_fail("the profiler has no state '%s': its states are 'stop' and 'run'", state ? state : "NULL");
    li_look();
    li_lock();
    int was_running = li.has_run && li.state == LI_RUNNING;
    int failed = runs ? run() : stop();
    int asks = runs && !failed && !was_running && li.is_attached && li_asked.file[0];
    char file[PATH_MAX];
    strcpy(file, li_asked.file);
    uint64_t since_ns = file_since_ns;
    li_unlock();
    return asks ? li_ask_for_trace(file, since_ns) : failed;
}

LI_API int layerscope_pause(void) { return layerscope_set_state("stop"); }
LI_API int layerscope_resume(void) { return layerscope_set_state("run"); }

LI_API int layerscope_dump(int finished) {
    li_look();
    if (li.is_left_out)
        return 0;
    if (!li.recorder)
        return li_fail("nothing was recorded: layerscope_set_state(\"run\") comes first");
    if (li.is_attached) {
        char file[PATH_MAX];
        li_lock();
        strcpy(file, li_asked.file);
        uint64_t since_ns = file_since_ns;
        li_unlock();
        return !file[0] && as_file(DEFAULT_FILE, file) ? -1 : li_ask_for_dump(file, since_ns, finished != 0);
    }
    li_lock();
    if (finished)
        stop();
    int failed = li_recording_dump(finished != 0);
    li_unlock();
    return failed;
}

/* The program ends: so does its recording. Runs behind everything that the program has registered for its end. */
__attribute__((destructor)) static void end(void) {
    if (!li.recorder || li.is_attached)
        return;
    int is_locked = li_lock_within(END_PATIENCE_NS); /* a signal handler may end the program in a call of ours */
    __atomic_store_n(&li.state, LI_STOPPED, __ATOMIC_RELEASE);
    if (is_locked)
        li_recording_dump(1);
    li_unlock();
}
