/* What is read of the running process at each knot, beside its records: the spans that are open, the names of its
 * threads, what the kernel counts. */
#define _GNU_SOURCE
#include "interface.h"

#include <string.h>
#include <unistd.h>

#define LOOKS_AT_A_NAME 3u
#define UNSYNCHRONISED __attribute__((no_sanitize("thread")))
/* Names of counters: their place in capture/counters.py. */
enum { CPU_NS, USER_NS, SYSTEM_NS, FAULTS_MINOR, FAULTS_MAJOR, RSS_BYTES, THREADS, COUNTERS };

/* --- Open spans --- */

UNSYNCHRONISED static uint32_t copy_open(const lf_ring_header *h, lf_open *into) {
    uint32_t depth = __atomic_load_n(&h->depth, __ATOMIC_ACQUIRE);
    if (!__atomic_load_n(&h->track, __ATOMIC_ACQUIRE))
        return 0;
    depth = depth < LF_OPEN_SLOTS ? depth : LF_OPEN_SLOTS;
    for (uint32_t i = 0; i < depth; i++)
        into[i] = h->open[i];
    return depth;
}

UNSYNCHRONISED static void head_of(const lf_ring_header *h, uint64_t head[2]) {
    head[0] = h->track;
    head[1] = (uint64_t)(uint32_t)h->tid;
}

/* Say which spans are open on a thread, if it has changed: a later chunk replaces an earlier one, so whoever kills the
 * program finds what ran. The thread may be opening and ending spans meanwhile: one counts as open when it looked the
 * same at the poll before, unless this is the last one. */
int li_write_open(li_process *p, li_piece *ring, int is_last) {
    lf_open now[LF_OPEN_SLOTS];
    const lf_ring_header *h = &((const lf_ring *)ring->memory)->h;
    uint32_t depth = copy_open(h, now), stays = 0;
    while (stays < depth && (is_last || (stays < ring->depth && !memcmp(&now[stays], &ring->open[stays], sizeof *now))))
        stays++;
    ring->depth = depth;
    memcpy(ring->open, now, depth * sizeof *now);
    if (stays == ring->told_depth && !memcmp(now, ring->told, stays * sizeof *now))
        return 1;
    uint64_t head[2];
    head_of(h, head);
    li_chunk chunk = {.kind = LI_OPEN, .key = ring->index, .count = stays,
                      .parts = {{head, sizeof head}, {now, stays * sizeof *now}}};
    if (!li_write(p, chunk))
        return 0;
    ring->told_depth = stays;
    memcpy(ring->told, now, stays * sizeof *now);
    return 1;
}

/* --- Names of threads --- */

UNSYNCHRONISED static uint32_t thread_of(const lf_ring_header *h) { return h->track ? (uint32_t)h->tid : 0; }

/* As the operating system has them, if they are new or others than before. */
int li_write_threads(li_process *p) {
    li_text names = {0};
    for (li_piece *one = __atomic_load_n(&p->pieces, __ATOMIC_ACQUIRE); one; one = one->next) {
        uint32_t tid = one->kind == LF_SEND_RING ? thread_of(&((const lf_ring *)one->memory)->h) : 0;
        char path[64], name[64] = "";
        if (tid != one->tid)
            one->named = 0;
        one->tid = tid;
        if (!tid || one->named >= LOOKS_AT_A_NAME)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%u/comm", tid);
        if (li_read_file(path, name, sizeof name) < 1)
            continue;
        name[strcspn(name, "\n")] = 0;
        if (one->named++ && !strncmp(name, one->name, sizeof one->name))
            continue;
        memcpy(one->name, name, sizeof one->name - 1);
        li_add(&names, "%s\"%u\": ", names.used ? ", " : "{", tid);
        li_add_json(&names, name, strlen(name));
    }
    if (names.used)
        li_add(&names, "}");
    return !names.used || li_write_text(p, LI_THREADS, &names);
}

/* --- What the kernel counts --- */

typedef struct {
    int64_t at_ns;
    int32_t counter, pad;
    int64_t value;
} sample;
_Static_assert(sizeof(sample) == 24, "sample");

/* Whether the thread of ours is the only one left: the first one of a process stays as a zombie until all end. */
int li_is_alone(void) {
    char text[1024], state;
    unsigned threads;
    const char *fields = li_read_file("/proc/self/stat", text, sizeof text) < 1 ? NULL : strrchr(text, ')');
    return fields && sscanf(fields + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %u",
                            &state, &threads) == 2 && state == 'Z' && threads == 2;
}

int li_write_counters(li_process *p) {
    char text[1024];
    unsigned long long minor, major, user, system, threads, pages;
    if (li_read_file("/proc/self/stat", text, sizeof text) < 1)
        return 1;
    const char *fields = strrchr(text, ')'); /* the name before it may hold anything */
    /* proc(5), from the third field on: 10 minflt, 12 majflt, 14 utime, 15 stime, 20 num_threads, 24 rss. */
    if (!fields || sscanf(fields + 1, " %*c %*d %*d %*d %*d %*d %*u %llu %*u %llu %*u %llu %llu %*d %*d %*d %*d %llu "
                          "%*d %*u %*u %llu", &minor, &major, &user, &system, &threads, &pages) != 6)
        return 1;
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    int64_t now = (int64_t)ls_monotonic_ns(), tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    int64_t values[COUNTERS] = {
        [CPU_NS] = cpu.tv_sec * 1000000000 + cpu.tv_nsec, [USER_NS] = (int64_t)user * tick_ns,
        [SYSTEM_NS] = (int64_t)system * tick_ns, [FAULTS_MINOR] = (int64_t)minor, [FAULTS_MAJOR] = (int64_t)major,
        [RSS_BYTES] = (int64_t)pages * sysconf(_SC_PAGESIZE), [THREADS] = (int64_t)threads,
    };
    sample samples[COUNTERS];
    for (int i = 0; i < COUNTERS; i++)
        samples[i] = (sample){now, i, 0, values[i]};
    return li_write(p, (li_chunk){.kind = LI_COUNTERS, .parts = {{samples, sizeof samples}}});
}
