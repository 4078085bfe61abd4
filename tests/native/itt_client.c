/* A program that uses ITT as Intel's static library does: it loads the collector that INTEL_LIBITTNOTIFY64 names and
 * has its pointers filled in. Linked with the agent itself (for sanitizers) it takes that one.
 *
 * usage: itt_client SCENARIO [NUMBERS...]     see `scenarios` below; what each one records is known by its test */
#define _GNU_SOURCE
#include "agent/itt.h"

#include <dlfcn.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static ls_domain *(*domain_create)(const char *);
static ls_label *(*string_handle_create)(const char *);
static void (*task_begin)(const ls_domain *, itt_id, itt_id, ls_label *);
static void (*task_end)(const ls_domain *);
static void (*task_begin_fn)(const ls_domain *, itt_id, itt_id, void *);
static void (*task_begin_overlapped)(const ls_domain *, itt_id, itt_id, ls_label *);
static void (*task_end_overlapped)(const ls_domain *, itt_id);
static void (*frame_begin_v3)(const ls_domain *, itt_id *);
static void (*frame_end_v3)(const ls_domain *, itt_id *);
static void (*frame_submit_v3)(const ls_domain *, itt_id *, unsigned long long, unsigned long long);
static unsigned long long (*get_timestamp)(void);
static int (*event_create)(const char *, int);
static int (*event_start)(int);
static int (*event_end)(int);
static void (*marker)(const ls_domain *, itt_id, ls_label *, int);
static void (*pause_itt)(void);
static void (*resume_itt)(void);
static void (*thread_set_name)(const char *);
static void *(*counter_create)(const char *, const char *);
static void *(*counter_create_typed)(const char *, const char *, int);
static void (*counter_set_value)(void *, void *);
static void (*counter_inc)(void *);
static void (*counter_dec_delta)(void *, unsigned long long);
static void (*counter_inc_delta_v3)(const ls_domain *, ls_label *, unsigned long long);
static void (*metadata_add)(const ls_domain *, itt_id, ls_label *, int, size_t, void *);
static void (*metadata_str_add)(const ls_domain *, itt_id, ls_label *, const char *, size_t);
static void (*formatted_metadata_add)(const ls_domain *, ls_label *, ...);
static void (*sync_prepare)(void *) = (void (*)(void *))1; /* nobody collects these: it must become NULL */

static const itt_id null_id;
static unsigned long long numbers[4];

#define ENTRY(name) {"__itt_" #name, (void **)&name, NULL, NULL, 1 << 12}
static itt_function functions[] = {
    ENTRY(domain_create), ENTRY(string_handle_create), ENTRY(task_begin), ENTRY(task_end), ENTRY(task_begin_fn),
    ENTRY(task_begin_overlapped), ENTRY(task_end_overlapped), ENTRY(frame_begin_v3), ENTRY(frame_end_v3),
    ENTRY(frame_submit_v3), ENTRY(get_timestamp), ENTRY(event_create), ENTRY(event_start), ENTRY(event_end),
    ENTRY(marker), {"__itt_pause", (void **)&pause_itt, NULL, NULL, 2}, {"__itt_resume", (void **)&resume_itt, NULL,
    NULL, 2}, ENTRY(thread_set_name), ENTRY(counter_create), ENTRY(counter_create_typed), ENTRY(counter_set_value),
    ENTRY(counter_inc), ENTRY(counter_dec_delta), ENTRY(counter_inc_delta_v3), ENTRY(metadata_add),
    ENTRY(metadata_str_add), ENTRY(formatted_metadata_add), ENTRY(sync_prepare), {NULL, NULL, NULL, NULL, 0},
};

/* Whether somebody collects. */
static int initialize(void) {
    static itt_global global = {.magic = {0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30}, .version_major = 3,
                                .version_minor = 26, .functions = functions};
#ifdef WITH_THE_AGENT
    const char *path = NULL;
#else
    const char *path = getenv("INTEL_LIBITTNOTIFY64");
#endif
    void *library = path ? dlopen(path, RTLD_LAZY) : RTLD_DEFAULT;
    void *found = library || !path ? dlsym(library, "__itt_api_init") : NULL;
    if (found)
        ((void (*)(itt_global *, int))found)(&global, -1);
    return task_begin && !sync_prepare;
}

static void begin(ls_domain *domain, const char *name) {
    task_begin(domain, null_id, null_id, string_handle_create(name));
}

static void a_function(void) {}

static void tasks(void) {
    ls_domain *mine = domain_create("mine"), *theirs = domain_create("theirs");
    ls_domain *execute = domain_create("dnnl::primitive::execute"), *create = domain_create("dnnl::primitive::create");
    begin(mine, "outer");
    begin(theirs, "inner of theirs");
    task_end(mine); /* ends outer: each domain has a stack of its own */
    begin(mine, "after outer");
    task_end(mine);
    task_end(theirs);
    task_end(theirs); /* one too many */
    begin(create, "convolution");
    formatted_metadata_add(create, string_handle_create("%s"), "cpu,convolution,jit:avx2");
    task_end(create);
    for (int i = 0; i < 2; i++) {
        char info[64];
        snprintf(info, sizeof info, "cpu,convolution,call %d", i); /* one address, two texts */
        begin(execute, "convolution");
        formatted_metadata_add(execute, string_handle_create("%s"), info);
        task_end(execute);
    }
    begin(execute, "convolution");
    metadata_str_add(execute, null_id, string_handle_create("info"), "cpu,convolution,call 2 and no end", 22);
    task_end(execute);
    begin(domain_create(NULL), "in no domain");
    task_begin(mine, null_id, null_id, string_handle_create(NULL));
    task_end(domain_create(NULL));
    ls_domain *disabled = domain_create("disabled");
    disabled->flags = 0;
    begin(disabled, "not recorded");
    task_end(disabled);
    task_begin_fn(mine, null_id, null_id, (void *)a_function);
    task_end(mine);
    begin(mine, "unfinished");
}

static void metadata(void) {
    ls_domain *mine = domain_create("mine");
    unsigned short shape[] = {3, 65535};
    double infinite = 1.0 / (double)numbers[3];
    float half = 0.5f;
    long long negative = -7;
    begin(mine, "told");
    metadata_add(mine, null_id, string_handle_create("shape"), ITT_U16, 2, shape);
    metadata_add(mine, null_id, string_handle_create("in\"side\n"), ITT_S64, 1, &negative);
    metadata_add(mine, null_id, string_handle_create("half"), ITT_FLOAT, 1, &half);
    metadata_add(mine, null_id, string_handle_create("infinite"), ITT_DOUBLE, 1, &infinite);
    begin(mine, "inner");
    formatted_metadata_add(mine, string_handle_create("i=%d of %s"), 5, "six");
    task_end(mine);
    metadata_str_add(mine, null_id, string_handle_create("text"), "back\\slash cut here", 10);
    task_end(mine);
    itt_id outer = {{77, 0, 0}};
    task_begin(mine, outer, null_id, string_handle_create("by id"));
    begin(mine, "has none");
    metadata_str_add(mine, outer, string_handle_create("whose"), "its", 0);
    task_end(mine);
    task_end(mine);
    char *long_text = malloc(1 << 20);
    memset(long_text, '"', 1 << 20);
    long_text[(1 << 20) - 1] = 0;
    begin(mine, "long");
    metadata_str_add(mine, null_id, string_handle_create("text"), long_text, 0);
    metadata_add(mine, null_id, string_handle_create("has no room"), ITT_S64, 1, &negative);
    task_end(mine);
    free(long_text);
}

static void *end_elsewhere(void *id) {
    ls_domain *mine = domain_create("mine");
    task_end_overlapped(mine, *(itt_id *)id);
    frame_end_v3(mine, id);
    return NULL;
}

static void carried(void) {
    ls_domain *mine = domain_create("mine");
    itt_id first = {{1, 2, 3}}, second = {{1, 2, 4}};
    task_begin_overlapped(mine, first, null_id, string_handle_create("first"));
    task_begin_overlapped(mine, second, null_id, string_handle_create("second"));
    task_end_overlapped(mine, first);
    task_end_overlapped(mine, first); /* is over */
    frame_begin_v3(mine, &second);
    pthread_t thread;
    pthread_create(&thread, NULL, end_elsewhere, &second);
    pthread_join(thread, NULL);
    frame_begin_v3(mine, NULL);
    frame_end_v3(mine, NULL);
    unsigned long long from = get_timestamp(), to = get_timestamp();
    frame_submit_v3(mine, NULL, from, to);
    int moment = event_create("moment", 6), span = event_create("span cut", 4);
    event_start(moment);
    event_start(moment);
    event_end(moment);
    event_start(span);
    event_end(span);
    event_end(span);
    event_end(12345);
}

/* More than are kept: what is beyond has one name. */
static void counters(void) {
    for (unsigned long long i = 0; i < numbers[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "counter %llu", i);
        void *counter = counter_create(name, "mine");
        if (counter != counter_create(name, "mine"))
            fprintf(stderr, "%s is made twice\n", name);
        if (i == 0 || i + 1 == numbers[0])
            counter_inc(counter);
    }
}

static void moments(void) {
    ls_domain *mine = domain_create("mine");
    void *counter = counter_create("counter", "mine"), *real = counter_create_typed("real", "mine", ITT_DOUBLE);
    unsigned long long value = 40;
    double number = -2.6;
    counter_set_value(counter, &value);
    counter_set_value(real, &number);
    void *level = counter_create("level", "");
    counter_inc(level);
    counter_inc(level);
    counter_dec_delta(level, 5);
    counter_inc_delta_v3(mine, string_handle_create("third"), 3);
    counter_inc_delta_v3(mine, string_handle_create("third"), 3);
    marker(mine, null_id, string_handle_create("here"), 4);
    pause_itt();
    resume_itt();
    thread_set_name("the one thread");
}

static void forks(void) {
    ls_domain *mine = domain_create("mine");
    itt_id id = {{9, 9, 9}};
    begin(mine, "of the parent");
    task_begin_overlapped(mine, id, null_id, string_handle_create("carried"));
    pid_t child = fork();
    if (!child) {
        task_end(mine);
        task_end_overlapped(mine, id);
        begin(mine, "of the child");
        task_end(mine);
        begin(domain_create("new in child"), "of the parent");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    task_end_overlapped(mine, id);
    task_end(mine);
    printf("%d\n", (int)child);
}

static void *die(void *domain) {
    begin(domain, "dies inside");
    begin(domain, "inner");
    return NULL;
}

static void deaths(void) {
    ls_domain *mine = domain_create("mine");
    for (unsigned long long i = 0; i < numbers[0]; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, die, mine);
        pthread_join(thread, NULL);
    }
}

static void names(void) {
    ls_domain *mine = domain_create("mine");
    char *megabytes = malloc(3 << 20);
    memset(megabytes, 'm', 3 << 20);
    megabytes[(3 << 20) - 1] = 0;
    begin(mine, megabytes);
    task_end(mine);
    begin(domain_create(megabytes), "in a long domain");
    task_end(domain_create(megabytes));
    free(megabytes);
    begin(mine, "\xff\xfe bytes");
    task_end(mine);
    for (unsigned long long i = 0; i < numbers[0]; i++) {
        char name[32];
        snprintf(name, sizeof name, "unique %llu", i);
        begin(mine, name);
        metadata_add(mine, null_id, string_handle_create("number"), ITT_U64, 1, &i);
        task_end(mine);
    }
    begin(mine, "the last one");
    task_end(mine);
}

/* Steps 0 to 4 by the tasks called "step": with a window, the tasks of others are not recorded. */
static void steps(void) {
    ls_domain *mine = domain_create("mine");
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "in step %d", i);
        begin(mine, "step");
        begin(mine, name);
        task_end(mine);
        task_end(mine);
    }
}

/* Primitives of a program that marks its steps by layerscope.h, as attached.c does it: i + 1 before the mark i. */
static void primitives_in_steps(void) {
    void (*mark)(const char *, uint32_t, int32_t) = NULL;
    const char *path = getenv("INTEL_LIBITTNOTIFY64");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (library)
        *(void **)&mark = dlsym(library, "ls_mark");
    ls_domain *execute = domain_create("dnnl::primitive::execute");
    for (int i = 0; mark && i < 5; i++) {
        for (int k = 0; k <= i; k++) {
            begin(execute, "convolution");
            task_end(execute);
        }
        mark("step", LF_MARK_STEP, 0);
    }
}

static void cost(void) {
    ls_domain *execute = domain_create("dnnl::primitive::execute"), *mine = domain_create("mine");
    ls_label *name = string_handle_create("convolution"), *format = string_handle_create("%s");
    static const char info[] __attribute__((aligned(8))) =
        "cpu,convolution,jit:avx512_core,forward_training,src:f32:a:blocked:abcd::f0 wei:f32:a:blocked:Acdb16a::f0 "
        "bia:f32:a:blocked:a::f0 dst:f32:a:blocked:aBcd16b::f0,attr-scratchpad:user,alg:convolution_direct,mb8_ic3oc32";
    for (int told = 0; told < 2; told++)
        for (int repeat = 0; repeat < 7; repeat++) {
            struct timespec a, b;
            usleep(200000); /* the ring is emptied meanwhile */
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
            for (unsigned long long i = 0; i < numbers[0]; i++) {
                task_begin(told ? execute : mine, null_id, null_id, name);
                if (told)
                    formatted_metadata_add(execute, format, info);
                task_end(told ? execute : mine);
            }
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
            double ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
            printf("%s %.1f\n", told ? "told" : "plain", ns / (double)numbers[0]);
        }
}

/* numbers: threads, rounds, seed. Prints how many spans were begun. */
static _Atomic unsigned long long begun;

static void *disorder(void *seed) {
    uint64_t state = (uintptr_t)seed * 2654435761u + 1;
    char text[32];
    ls_domain *domains[] = {domain_create("a"), domain_create("b"), domain_create("dnnl::primitive::execute")};
    for (unsigned long long i = 0; i < numbers[1]; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t dice = (uint32_t)(state >> 33);
        ls_domain *domain = domains[dice % 3];
        itt_id id = {{dice >> 8 & 63, 0, 0}};
        snprintf(text, sizeof text, "name %u", dice >> 4 & 255);
        unsigned long long starts = 1;
        switch (dice >> 16 & 7) {
        case 0:
        case 1:
            begin(domain, text);
            if (dice & 1024)
                formatted_metadata_add(domain, string_handle_create(dice & 2048 ? "%s" : "text %s"), text);
            break;
        case 2:
            task_begin_overlapped(domain, id, null_id, string_handle_create(text));
            break;
        case 3:
            task_end_overlapped(domain, id);
            starts = 0;
            break;
        case 4:
            marker(domain, null_id, string_handle_create(text), 1);
            starts = 0;
            break;
        default:
            task_end(domain);
            starts = 0;
        }
        atomic_fetch_add_explicit(&begun, starts, memory_order_relaxed);
    }
    for (int i = 0; i < 600; i++)
        for (int k = 0; k < 3; k++)
            task_end(domains[k]);
    return NULL;
}

static void chaos(void) {
    pthread_t threads[16];
    for (unsigned long long round = 0; round < 3; round++) {
        for (unsigned long long i = 0; i < numbers[0] && i < 16; i++)
            pthread_create(&threads[i], NULL, disorder, (void *)(uintptr_t)(numbers[2] + 100 * round + i));
        for (unsigned long long i = 0; i < numbers[0] && i < 16; i++)
            pthread_join(threads[i], NULL);
#ifndef __SANITIZE_THREAD__
        pid_t child = fork();
        if (!child) {
            disorder((void *)1);
            _exit(0);
        }
        waitpid(child, NULL, 0);
#endif
    }
    printf("%llu\n", (unsigned long long)begun);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"tasks", tasks}, {"metadata", metadata}, {"carried", carried}, {"moments", moments}, {"forks", forks},
    {"counters", counters},
    {"deaths", deaths}, {"names", names}, {"steps", steps}, {"primitives_in_steps", primitives_in_steps}, {"cost", cost}, {"chaos", chaos},
};

int main(int arguments, char **argument) {
    for (int i = 2; i < arguments && i < 6; i++)
        numbers[i - 2] = strtoull(argument[i], NULL, 10);
    setlocale(LC_ALL, "");
    if (!initialize()) {
        printf("nobody collects\n");
        return 0;
    }
    for (size_t i = 0; arguments > 1 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (!strcmp(argument[1], scenarios[i].name)) {
            scenarios[i].run();
            return 0;
        }
    return 2;
}
