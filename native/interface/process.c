/* One recorded process, and the thread of ours that writes down what it records. A forked child has its own: the
 * first thing that it records makes it. */
#define _GNU_SOURCE
#include "interface.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As the drainer beside a program does it (capture/drainer.py). */
#define POLL_NS 10000000u
#define KNOT_NS 200000000u
#define STACK_BYTES (512u << 10)

static li_process *newest; /* of this process, or of the one that forked it */

/* The one of this process; NULL: it has recorded nothing. */
li_process *li_process_here(void) {
    li_process *p = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    return p && p->pid == getpid() ? p : NULL;
}

/* --- The thread --- */

static uint64_t thread_cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wait_until(li_process *p, uint64_t ns) {
    struct timespec until = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    pthread_cond_timedwait(&p->wake, &p->lock, &until);
}

/* All threads of the program are over, the first one by pthread_exit. What happens then without us happens now: the C
 * library ends the process, by the last thread. Called with the lock held. */
static void *leave(li_process *p) {
    p->is_over = 1;
    pthread_mutex_unlock(&p->lock);
    pthread_sigmask(SIG_SETMASK, &p->signals, NULL);
    return NULL;
}

static void *write_down(void *process) {
    li_process *p = process;
    uint64_t next_knot = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        uint64_t asked = p->asked, now = ls_monotonic_ns();
        int ends = p->wants_end, is_asked = asked != p->answered, at_knot = is_asked || now >= next_knot;
        pthread_mutex_unlock(&p->lock);
        int fits = li_drain(p, at_knot, is_asked);
        if (is_asked && ends)
            fits &= li_last_word(p);
        if (at_knot)
            next_knot = now + KNOT_NS;
        __atomic_store_n(&p->cpu_ns, thread_cpu_ns(), __ATOMIC_RELAXED);
        pthread_mutex_lock(&p->lock);
        if (is_asked) {
            p->answered = asked;
            p->fits = fits;
            pthread_cond_broadcast(&p->done);
        }
        if (p->asked != asked)
            continue;
        if (at_knot && li_is_alone())
            return leave(p);
        if (is_asked && ends) { /* the recording is complete: until somebody goes on */
            while (p->asked == asked && p->wants_end && !li_is_alone())
                wait_until(p, ls_monotonic_ns() + KNOT_NS);
        } else {
            int is_quiet = __atomic_load_n(&li.state, __ATOMIC_RELAXED) != LI_RUNNING;
            wait_until(p, is_quiet ? next_knot : ls_monotonic_ns() + POLL_NS);
        }
    }
}

/* Start it, deaf to every signal: they are for the program's own threads. */
static int start_thread(li_process *p) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigfillset(&all);
    if (pthread_attr_init(&attributes))
        return -ENOMEM;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &p->signals);
    int failed = pthread_create(&thread, &attributes, write_down, p);
    pthread_sigmask(SIG_SETMASK, &p->signals, NULL);
    pthread_attr_destroy(&attributes);
    if (!failed)
        pthread_setname_np(thread, "layerscope");
    return -failed;
}

/* --- What the agent hands over --- */

static li_process *begin(const lf_message *message) {
    li_process *p = calloc(1, sizeof *p);
    pthread_condattr_t monotonic;
    if (!p)
        return NULL;
    char host[HOST_NAME_MAX + 1] = "";
    gethostname(host, sizeof host - 1);
    p->pid = getpid();
    p->start_ns = message->process_start;
    p->max_size_bytes = li_asked.max_size_bytes;
    snprintf(p->raw, sizeof p->raw, "%s/raw", li_recording_path());
    int length = snprintf(p->file.path, sizeof p->file.path, "%s/%s-%d-%llu", p->raw, host, p->pid,
                          (unsigned long long)p->start_ns);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &monotonic);
    pthread_cond_init(&p->done, &monotonic);
    if (length + 6u >= sizeof p->file.path || (mkdir(p->file.path, 0755) && errno != EEXIST)) {
        free(p);
        return NULL;
    }
    strcpy(p->file.path + length, "/spool");
    li_file_reserve(&p->file);
    return p;
}

static int keep(li_process *p, const lf_message *message, void *memory) {
    li_piece *piece = calloc(1, sizeof *piece);
    int is_ring = message->type == LF_SEND_RING;
    if (piece && is_ring) {
        piece->open = calloc(2 * LF_OPEN_SLOTS, sizeof(lf_open));
        piece->told = piece->open + LF_OPEN_SLOTS;
    }
    if (!piece || (is_ring && !piece->open)) {
        free(piece);
        return -1;
    }
    piece->kind = message->type;
    piece->index = message->index;
    piece->memory = memory;
    piece->next = __atomic_load_n(&p->pieces, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&p->pieces, &piece->next, piece, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
    return 0;
}

/* Take memory that the agent has made in this process (`ls_taker`). -1: it cannot be recorded. */
int li_take(const lf_message *message, void *memory, size_t bytes) {
    (void)bytes;
    if (message->type != LF_SEND_PROCESS) {
        li_process *p = li_process_here();
        return p ? keep(p, message, memory) : -1;
    }
    li_process *p = begin(message);
    if (!p)
        return -1;
    p->page = memory;
    int failed = start_thread(p);
    if (failed) {
        free(p);
        errno = -failed;
        return -1;
    }
    __atomic_store_n(&newest, p, __ATOMIC_RELEASE);
    return 0;
}

/* --- What is asked of the thread --- */

/* Have everything written that is recorded by now; `ends`: and the last word on the process, after which the thread
 * waits to be woken. -1: not all of it fits on the disk. */
int li_process_flush(li_process *p, int ends) {
    if (p->is_over) {
        int fits = li_drain(p, 1, 1);
        return fits && (!ends || li_last_word(p)) ? 0 : -1;
    }
    pthread_mutex_lock(&p->lock);
    uint64_t mine = ++p->asked;
    p->wants_end = ends;
    pthread_cond_signal(&p->wake);
    while (p->answered < mine)
        pthread_cond_wait(&p->done, &p->lock);
    int fits = p->fits;
    pthread_mutex_unlock(&p->lock);
    return fits ? 0 : -1;
}

/* Recording goes on. */
void li_process_wake(li_process *p) {
    pthread_mutex_lock(&p->lock);
    p->wants_end = 0;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}
