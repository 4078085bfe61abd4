/* The recording of the program's own: its folder, and the files that say what it is. What they hold is what
 * recording/run.py and cli/run.py write. */
#define _GNU_SOURCE
#include "interface.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX ".layerscope"
#define MOST_ALIKE 10000

static const li_recorder own = {ls_range_begin, ls_range_end, ls_counter, ls_mark};
static char path[PATH_MAX];
static pid_t maker; /* the process whose recording it is: it says how it ends */
static char run_id[17], started_utc[32];
static uint64_t start_ns;
static int is_running;

/* Held by a process: what a parent held is free in its child. */
static int32_t holder;

/* 0: it was not to be had in that time. */
int li_lock_within(uint64_t patience_ns) {
    int32_t me = getpid();
    uint64_t start = ls_monotonic_ns();
    for (int32_t found = 0; !__atomic_compare_exchange_n(&holder, &found, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);)
        if (found == me) {
            if (ls_monotonic_ns() - start > patience_ns)
                return 0;
            sched_yield();
            found = 0;
        }
    return 1;
}

void li_lock(void) { li_lock_within(UINT64_MAX); }

void li_unlock(void) { __atomic_store_n(&holder, 0, __ATOMIC_RELEASE); }

const char *li_recording_path(void) { return path; }

/* --- The folder --- */

static int make_folders(char *folder) {
    for (char *slash = folder + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        int failed = mkdir(folder, 0777) && errno != EEXIST;
        *slash = '/';
        if (failed)
            return -1;
    }
    return mkdir(folder, 0777) && errno != EEXIST ? -1 : 0;
}

/* `folder` and `stem` of the recording's name. */
static int name(char folder[PATH_MAX], char stem[NAME_MAX]) {
    if (li_asked.file[0]) {
        const char *slash = strrchr(li_asked.file, '/'), *dot = strrchr(slash + 1, '.');
        int length = dot && dot > slash + 1 ? (int)(dot - slash - 1) : (int)strlen(slash + 1);
        snprintf(folder, PATH_MAX, "%.*s", slash > li_asked.file ? (int)(slash - li_asked.file) : 1, li_asked.file);
        snprintf(stem, NAME_MAX - 32, "%.*s", length, slash + 1);
        return make_folders(folder);
    }
    li_program_name(stem, NAME_MAX - 32);
    return getcwd(folder, PATH_MAX) ? 0 : -1;
}

/* Make the folder, under the first name that is free. */
static int make(void) {
    char folder[PATH_MAX], stem[NAME_MAX];
    if (name(folder, stem))
        return -1;
    int failed = -1;
    for (int number = 1; failed && number < MOST_ALIKE; number++) {
        char alike[16] = "";
        if (number > 1)
            snprintf(alike, sizeof alike, "-%d", number);
        int length = snprintf(path, sizeof path, "%s/%s%s" SUFFIX, strcmp(folder, "/") ? folder : "", stem, alike);
        if (length + 64u > sizeof path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        failed = mkdir(path, 0777);
        if (failed && errno != EEXIST)
            return -1;
    }
    return failed;
}

static void file_in(char into[PATH_MAX + 32], const char *name_of_file) {
    snprintf(into, PATH_MAX + 32, "%s/%s", path, name_of_file);
}

static int write_and_free(const char *name_of_file, li_text *text) {
    char file[PATH_MAX + 32];
    file_in(file, name_of_file);
    int failed = li_write_file(file, text);
    free(text->data);
    if (failed)
        errno = -failed;
    return failed;
}

/* --- What it says --- */

static void add_usage(li_text *text, uint64_t cpu_ns) {
    struct rusage used;
    char now[32], raw[PATH_MAX + 32];
    getrusage(RUSAGE_SELF, &used);
    li_utc(now);
    file_in(raw, "raw");
    li_add(text, ", \"finished_utc\": \"%s\", \"program\": {\"wall_ns\": %llu, ", now,
           (unsigned long long)(ls_monotonic_ns() - start_ns));
    li_add(text, "\"user_ns\": %lld, \"system_ns\": %lld, ",
           used.ru_utime.tv_sec * 1000000000ll + used.ru_utime.tv_usec * 1000ll,
           used.ru_stime.tv_sec * 1000000000ll + used.ru_stime.tv_usec * 1000ll);
    li_add(text, "\"max_rss_bytes\": %lld, \"faults_minor\": %ld, \"faults_major\": %ld}, ", used.ru_maxrss * 1024ll,
           used.ru_minflt, used.ru_majflt);
    li_add(text, "\"cost\": {\"drainer_cpu_ns\": %llu, \"raw_bytes\": %llu}", (unsigned long long)cpu_ns,
           (unsigned long long)li_raw_bytes(raw));
}

/* `run.json`; `finished`: the recording is complete, and the thread that wrote it took `cpu_ns`. */
static int write_run(int finished, uint64_t cpu_ns) {
    li_text text = {0};
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here))
        here[0] = 0;
    li_add(&text, "{\"schema\": %d, \"layerscope\": \"%s\", \"run_id\": \"%s\", ", LI_SCHEMA, LAYERSCOPE_VERSION,
           run_id);
    li_add(&text, "\"state\": \"%s\", \"command\": ", finished ? "finished" : "running");
    li_add_command(&text);
    li_add(&text, ", \"cwd\": ");
    li_add_json(&text, here, strlen(here));
    li_add(&text, ", \"environment\": ");
    li_add_environment(&text);
    li_add(&text, ", \"host\": ");
    li_add_host(&text);
    li_add(&text, ", \"started_utc\": \"%s\", \"start_ns\": %llu, \"session_pid\": %d", started_utc,
           (unsigned long long)start_ns, maker);
    if (finished)
        add_usage(&text, cpu_ns);
    li_add(&text, "}\n");
    return write_and_free("run.json", &text);
}

/* What a converter must know of the end; before it, what to say if it never comes. */
static int write_session(int finished) {
    li_text text = {0};
    li_add(&text, "{\"pid\": %d, ", maker);
    if (finished)
        li_add(&text, "\"end_ns\": %llu, \"exit\": null, \"problems\": []}\n", (unsigned long long)ls_monotonic_ns());
    else
        li_add(&text, "\"problems\": [{\"layer\": \"ranges\", \"code\": \"not_finished\", "
               "\"what\": \"the program was killed, or ended by _exit, before its recording was complete\", "
               "\"remedy\": \"nothing to do: what had been written by then is here\", "
               "\"lost\": \"up to 0.2 s at the end\"}]}\n");
    return write_and_free("raw/session.json", &text);
}

static int write_all(void) {
    char raw[PATH_MAX + 32];
    li_text ignored = {0}, options = {0};
    unsigned char id[8];
    file_in(raw, "raw");
    maker = getpid();
    start_ns = ls_monotonic_ns();
    li_utc(started_utc);
    if (getrandom(id, sizeof id, GRND_NONBLOCK) != sizeof id)
        memcpy(id, &start_ns, sizeof id);
    for (size_t i = 0; i < sizeof id; i++)
        sprintf(run_id + 2 * i, "%02x", id[i]);
    if (mkdir(raw, 0777))
        return -1;
    li_add(&ignored, "*\n");
    li_add(&options, "{\"max_size\": %llu}\n", (unsigned long long)li_asked.max_size_bytes);
    int failed = write_and_free(".gitignore", &ignored);
    failed |= write_and_free("raw/options.json", &options);
    return failed || write_session(0) || write_run(0, 0);
}

static void remove_all(void) {
    static const char *const files[] = {"run.json", "raw/session.json", "raw/options.json", ".gitignore"};
    char file[PATH_MAX + 32];
    int error = errno;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        file_in(file, files[i]);
        unlink(file);
    }
    file_in(file, "raw");
    rmdir(file);
    rmdir(path);
    path[0] = 0;
    errno = error;
}

/* --- From its beginning to its end --- */

/* Begin it. NULL, and the reason is said: nothing is recorded. */
const li_recorder *li_recording_begin(void) {
    if (make()) {
        li_fail("the recording could not be made in %s: %s. Name another place with the key filename",
                path[0] ? path : "the working directory", strerror(errno));
        path[0] = 0;
        return NULL;
    }
    int failed = write_all();
    if (!failed) {
        ls_taker = li_take;
        int code = ls_prepare("", "", li_tsc_is_usable());
        failed = code;
        errno = code ? -code : errno;
    }
    if (failed) {
        li_fail("the recording %s could not be begun: %s", path, strerror(errno));
        remove_all();
        return NULL;
    }
    is_running = 1;
    return &own;
}

/* Recording goes on, maybe after the recording was complete. */
int li_recording_running(void) {
    li_process *p = li_process_here();
    if (p)
        li_process_wake(p);
    if (is_running || maker != getpid())
        return 0;
    is_running = 1;
    write_session(0);
    if (write_run(0, 0))
        return li_fail("the recording %s could not be written on: %s", path, strerror(errno));
    return 0;
}

/* Write down what is recorded so far; `finished`: and that it is complete. */
int li_recording_dump(int finished) {
    li_process *p = li_process_here();
    int failed = p ? li_process_flush(p, finished) : 0;
    if (failed)
        li_fail("not all of the recording %s could be written: the disk is full, or the folder is gone", path);
    if (!finished || maker != getpid())
        return failed;
    is_running = 0;
    if (write_session(1) || write_run(1, p ? __atomic_load_n(&p->cpu_ns, __ATOMIC_RELAXED) : 0))
        return li_fail("the recording %s could not be completed: %s", path, strerror(errno));
    return failed;
}
