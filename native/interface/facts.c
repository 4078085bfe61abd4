/* What a recording says of its program and its machine, as `layerscope run` says it: secrets are masked, and of the
 * environment only what changes performance is kept (model/secrets.py, host/machine.py, host/clock.py). */
#define _GNU_SOURCE
#include "interface.h"

#include <cpuid.h>
#include <regex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char **environ;

#define SECRET "(pass(word|wd|phrase)?|secret|token|api[-_]?key|access[-_]?key|auth|credential)s?"
static const char SECRET_NAMED[] = "^(-{0,2}[[:alnum:]_.-]*" SECRET "[[:alnum:]_.-]*=).";
static const char SECRET_OPTION[] = "^--?[[:alnum:]_.-]*" SECRET "[[:alnum:]_.-]*$";
static const char PASSWORD_IN_URL[] = "(^|[^[:alnum:]_])([a-z][a-z0-9+.-]*://[^/[:space:]:@]+:)([^@[:space:]/]+)@";
static const char KEPT[] =
    "^((ATEN|BLIS|CUBLAS|CUDA|CUDNN|DNNL|GOMP|JAX|KMP|MALLOC|MKLDNN|MKL|MXNET|NCCL|NPY|NUMEXPR|OMPI_COMM_WORLD|"
    "OMP|ONEDNN|OPENBLAS|PYTORCH|TBB|TORCHELASTIC|TORCHINDUCTOR|TORCH|VECLIB|XLA)_[^=]*|CONDA_PREFIX|"
    "GLIBC_TUNABLES|GROUP_RANK|LD_LIBRARY_PATH|LD_PRELOAD|LOCAL_RANK|LOCAL_WORLD_SIZE|PMIX_RANK|PMI_LOCAL_RANK|"
    "PMI_LOCAL_SIZE|PMI_RANK|PMI_SIZE|PYTHONHASHSEED|PYTHONOPTIMIZE|RANK|SLURM_JOB_ID|SLURM_LOCALID|SLURM_NODEID|"
    "SLURM_NTASKS|SLURM_PROCID|SLURM_STEP_ID|TF_CPP_MAX_VLOG_LEVEL|TF_CPP_MIN_LOG_LEVEL|TF_CUDNN_DETERMINISTIC|"
    "TF_CUDNN_USE_AUTOTUNE|TF_DETERMINISTIC_OPS|TF_DISABLE_MKL|TF_ENABLE_ONEDNN_OPTS|TF_FORCE_GPU_ALLOW_GROWTH|"
    "TF_GPU_ALLOCATOR|TF_GPU_THREAD_COUNT|TF_GPU_THREAD_MODE|TF_NUM_INTEROP_THREADS|TF_NUM_INTRAOP_THREADS|"
    "TF_USE_LEGACY_KERAS|TF_XLA_FLAGS|VIRTUAL_ENV|WORLD_SIZE)=";

#define MOST_WORDS 4096
#define MOST_BYTES (256u << 10)

/* --- The clock --- */

/* Whether the kernel keeps time by the TSC, and the CPU says that it neither varies nor stops. */
int li_tsc_is_usable(void) {
    char source[32];
    unsigned a, b, c, d;
    if (li_read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source) < 0)
        return 0;
    return !strcmp(source, "tsc\n") && __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1);
}

/* A name for the CLOCK_MONOTONIC of this process, as host/clock.py gives it. */
static void add_monotonic_clock(li_text *text) {
    char boot[64], space[64];
    if (li_read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot) < 0)
        boot[0] = 0;
    boot[strcspn(boot, "\n")] = 0;
    ssize_t n = readlink("/proc/self/ns/time", space, sizeof space - 1);
    space[n > 0 ? n : 0] = 0;
    li_add(text, n > 0 && boot[0] ? "\"%s %s\"" : "\"%s\"", boot, space);
}

void li_utc(char into[32]) {
    time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(into, 32, "%Y-%m-%dT%H:%M:%S+00:00", &parts);
}

/* --- The program --- */

static int matches(const char *pattern, const char *word, regmatch_t *groups, size_t count) {
    regex_t expression;
    if (regcomp(&expression, pattern, REG_EXTENDED | REG_ICASE | (count ? 0 : REG_NOSUB)))
        return 0;
    int found = !regexec(&expression, word, count, groups, 0);
    regfree(&expression);
    return found;
}

/* Append one word of a command line as JSON, without what is a secret. */
static void add_masked(li_text *text, const char *word) {
    li_text plain = {0};
    regmatch_t group[4];
    if (matches(SECRET_NAMED, word, group, 2)) {
        li_add(&plain, "%.*s***", (int)group[1].rm_eo, word);
    } else {
        while (matches(PASSWORD_IN_URL, word, group, 4)) {
            li_add(&plain, "%.*s***@", (int)group[2].rm_eo, word);
            word += group[3].rm_eo + 1;
        }
        li_add(&plain, "%s", word);
    }
    if (plain.failed)
        li_add(text, "\"\"");
    else
        li_add_json(text, plain.data, plain.used);
    free(plain.data);
}

/* Append the command line of this process as a JSON list. */
void li_add_command(li_text *text) {
    char *line = malloc(MOST_BYTES);
    int bytes = line ? li_read_file("/proc/self/cmdline", line, MOST_BYTES) : -1;
    int hides_next = 0, words = 0;
    li_add(text, "[");
    for (int at = 0; at < bytes && words < MOST_WORDS; at += (int)strlen(line + at) + 1) {
        const char *word = line + at;
        li_add(text, words++ ? ", " : "");
        if (hides_next && word[0] != '-') {
            li_add(text, "\"***\"");
            hides_next = 0;
            continue;
        }
        hides_next = matches(SECRET_OPTION, word, NULL, 0);
        add_masked(text, word);
    }
    li_add(text, words ? "]" : "\"program\"]");
    free(line);
}

/* What a person calls the program. */
void li_program_name(char *into, size_t bytes) {
    char line[PATH_MAX];
    if (li_read_file("/proc/self/cmdline", line, sizeof line) < 1)
        strcpy(line, "program");
    const char *slash = strrchr(line, '/');
    snprintf(into, bytes, "%s", slash && slash[1] ? slash + 1 : slash ? "program" : line);
    for (char *c = into; *c; c++) /* what names a folder must be UTF-8, and one line */
        if ((unsigned char)*c < 0x21 || (unsigned char)*c > 0x7e)
            *c = '_';
}

/* Append the variables of the environment that a recording may keep, as a JSON object. */
void li_add_environment(li_text *text) {
    int kept = 0;
    li_add(text, "{");
    for (char **one = environ; one && *one; one++) {
        const char *equals = strchr(*one, '=');
        char option[256];
        regex_t names;
        if (!equals || regcomp(&names, KEPT, REG_EXTENDED | REG_NOSUB))
            continue;
        int is_kept = !regexec(&names, *one, 0, NULL, 0);
        regfree(&names);
        snprintf(option, sizeof option, "--%.*s", (int)(equals - *one), *one);
        if (!is_kept || matches(SECRET_OPTION, option, NULL, 0))
            continue;
        li_add(text, kept++ ? ", " : "");
        li_add_json(text, *one, (size_t)(equals - *one));
        li_add(text, ": ");
        li_add_json(text, equals + 1, strlen(equals + 1));
    }
    li_add(text, "}");
}

/* --- The machine --- */

static double quota(void) {
    char text[64];
    double most, period;
    if (li_read_file("/sys/fs/cgroup/cpu.max", text, sizeof text) > 0 && sscanf(text, "%lf %lf", &most, &period) == 2)
        return most / period;
    return 0;
}

static void add_cpu_model(li_text *text) {
    char info[4096];
    if (li_read_file("/proc/cpuinfo", info, sizeof info) < 0)
        info[0] = 0;
    const char *model = strstr(info, "model name"), *colon = model ? strchr(model, ':') : NULL;
    const char *words = colon && colon[1] ? colon + 2 : "";
    li_add_json(text, words, strcspn(words, "\n"));
}

/* Append of the facts of host/machine.py what can be told in a few lines, as a JSON object. */
void li_add_host(li_text *text) {
    struct utsname host;
    cpu_set_t set;
    char number[32];
    uname(&host);
    double cpus = sched_getaffinity(0, sizeof set, &set) ? (double)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    double allowed = quota();
    long long memory = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    li_add(text, "{\"name\": ");
    li_add_json(text, host.nodename, strlen(host.nodename));
    cpus = allowed > 0 && allowed < cpus ? allowed : cpus;
    ls_real_text(number, sizeof number, 6, cpus);
    li_add(text, ", \"cpu\": {\"granted\": %s, \"model\": ", number);
    add_cpu_model(text);
    li_add(text, ", \"machine\": ");
    li_add_json(text, host.machine, strlen(host.machine));
    li_add(text, "}, \"memory\": {\"total_bytes\": %lld}, \"kernel\": {\"release\": ", memory);
    li_add_json(text, host.release, strlen(host.release));
    li_add(text, "}}");
}

#define KIND_AS_JSON(name, number, kind, layer) "[\"" kind "\", \"" layer "\"], "

/* Append what the raw file says of this process. The list of kinds ends with an empty one. */
void li_add_process(li_text *text, const lf_page *page) {
    li_add(text, "{\"pid\": %d, \"ppid\": %d, \"start_ns\": %llu, \"clock\": \"%s\", \"ahead_ns\": 0, ", page->pid,
           page->ppid, (unsigned long long)page->process_start, page->clock_is_tsc ? "tsc" : "monotonic");
    if (page->rank >= 0 && page->world_size > 0)
        li_add(text, "\"rank\": %d, \"world_size\": %d, ", page->rank, page->world_size);
    if (page->role[0])
        li_add(text, "\"role\": \"%s\", ", page->role);
    li_add(text, "\"kinds\": [" LF_SPAN_KINDS(KIND_AS_JSON) "[\"\", \"\"]], \"monotonic_clock\": ");
    add_monotonic_clock(text);
    li_add(text, ", \"argv\": ");
    li_add_command(text);
    li_add(text, "}");
}
