/* The process page, the rings, the threads, and how their memory reaches our own processes: each is
 * a memfd that is sent over a socket and closed at once, so no descriptor stays open here. */
#define _GNU_SOURCE
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
/* After a failed hand-over a thread asks again this much later, not at its next operator. */
#define RETRY_NS 50000000u

ls_globals ls = {.said = &ls.heard};
int ls_keep_to_itself; /* nobody is listening: the probe measures what recording costs */
int (*ls_taker)(const lf_message *message, void *memory, size_t bytes);
__thread ls_thread *ls_this_thread __attribute__((tls_model("initial-exec")));
uint64_t (*ls_framework_thread_id)(void);

/* The Itanium vtable of a class with a virtual destructor: offset to top, type, two destructors. A context
 * belongs to its thread for good, so destroying one does nothing. */
static void destroy(void *context) { (void)context; }
static void *const context_vtable[4] = {NULL, NULL, (void *)destroy, (void *)destroy};

static const ls_occasions *occasions;

static struct sockaddr_un address;
static socklen_t address_length;
static char library[4096]; /* of the framework of this program */
static uint64_t process_start;
static uint64_t generations;
static uint32_t tracks, rings; /* tracks go on counting in a child: a context of the parent never matches */
static ls_thread *pool;
static _Atomic uint64_t retry_at;
static pthread_key_t key;
static int have_key;
static ls_thread ended; /* marks a thread that is past its end: its generation matches nobody's */

/* Who holds one is done within some hundred cycles, unless its CPU was taken away: a call of the kernel costs more. */
enum { TURNS_BEFORE_YIELDING = 64 };

void ls_lock(_Atomic uint32_t *lock) {
    for (int turns = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); turns++)
        if (turns < TURNS_BEFORE_YIELDING)
            __builtin_ia32_pause();
        else
            sched_yield();
}

void ls_unlock(_Atomic uint32_t *lock) { atomic_store_explicit(lock, 0, memory_order_release); }

/* One thread at a time begins or stops recording. Held by a process: what a parent held is free in its child. */
static _Atomic int32_t beginning;

int ls_try_to_lock_beginning(void) {
    int32_t me = getpid(), holder = 0;
    while (!atomic_compare_exchange_weak(&beginning, &holder, me))
        if (holder == me)
            return 0;
    return 1;
}

void ls_lock_beginning(void) {
    while (!ls_try_to_lock_beginning())
        sched_yield();
}

void ls_unlock_beginning(void) { atomic_store(&beginning, 0); }

/* The call that last kept memory from being made or handed over, and its errno: the door tells the session. */
static const char *refused_call = "";
static int refused_errno;

static int refused(const char *call) {
    refused_errno = errno;
    refused_call = call;
    return -1;
}

LS_EXPORT const char *ls_refusal(int *error) {
    *error = refused_errno;
    return refused_call;
}

/* Send `fd` in a connection of its own; the kernel keeps it until the other side looks. */
static int hand_over(int fd, const lf_message *message) {
    if (ls_keep_to_itself)
        return 0;
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0)
        return refused("socket");
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {(void *)message, sizeof *message};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    int failed = 0;
    if (connect(s, (struct sockaddr *)&address, address_length))
        failed = refused("connect");
    else if (sendmsg(s, &m, MSG_NOSIGNAL) < 0)
        failed = refused("sendmsg");
    else if (message->type == LF_SEND_SAMPLES)
        ls_yama_allow(s);
    close(s);
    return failed;
}

/* Fresh shared memory, filled in and then handed to our processes. NULL: none to be had; then nobody
 * asks again before RETRY_NS have passed. */
void *ls_new_shared(const char *name, size_t bytes, lf_message message, void (*fill)(void *, size_t)) {
    uint64_t now = ls_monotonic_ns();
    if (now < atomic_load_explicit(&retry_at, memory_order_relaxed))
        return NULL;
    void *memory = MAP_FAILED;
    /* A signal handler makes the area of samples in a forked child, and most of it is needed late. */
    int populate = message.type == LF_SEND_SAMPLES ? 0 : MAP_POPULATE;
    int fd = (int)syscall(SYS_memfd_create, name, 1u /* MFD_CLOEXEC */);
    /* A limit of file sizes holds for this memory too, and asking for more than that kills (SIGXFSZ). */
    struct rlimit limit;
    int allowed = !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur >= bytes;
    /* fallocate: a full memory is an error here, not a SIGBUS at some later write. */
    if (fd < 0)
        refused("memfd_create");
    else if (!allowed)
        refused("RLIMIT_FSIZE");
    else if (ftruncate(fd, (off_t)bytes) || fallocate(fd, 0, 0, (off_t)bytes))
        refused("fallocate");
    else if ((memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | populate, fd, 0)) == MAP_FAILED)
        refused("mmap");
    if (memory != MAP_FAILED) {
        fill(memory, bytes);
        message.pid = getpid();
        message.process_start = process_start;
        if (ls_taker ? ls_taker(&message, memory, bytes) : hand_over(fd, &message)) {
            munmap(memory, bytes);
            memory = MAP_FAILED;
        }
    }
    if (fd >= 0)
        close(fd);
    if (memory != MAP_FAILED)
        return memory;
    atomic_store_explicit(&retry_at, now + RETRY_NS, memory_order_relaxed);
    return NULL;
}

static void read_command_line(char *into, size_t bytes) {
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    size_t have = 0;
    while (have < bytes - 1) {
        ssize_t n = read(fd, into + have, bytes - 1 - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    close(fd);
}

static int32_t number_in(const char *variable) {
    const char *text = getenv(variable);
    char *end = NULL;
    long number = text && *text ? strtol(text, &end, 10) : -1;
    return end && !*end && number >= 0 && number <= INT32_MAX ? (int32_t)number : -1;
}

/* Which rank of how many a launcher has made this process: torchrun, Open MPI, PMIx, PMI (MPICH), Slurm. A rank counts
 * only together with the size of its world (docs/ranks.md); `capture/launchers.py` has the same list. */
int ls_rank(int32_t *rank, int32_t *world_size) {
    static const char *const pairs[][2] = {
        {"RANK", "WORLD_SIZE"},         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMIX_RANK", "PMIX_SIZE"},     {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
        {"PMI_RANK", "PMI_SIZE"},       {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        *rank = number_in(pairs[i][0]);
        *world_size = number_in(pairs[i][1]);
        if (*rank >= 0 && *world_size > *rank && *world_size > 1)
            return 1;
    }
    *rank = *world_size = -1;
    return 0;
}

static void fill_page(void *memory, size_t bytes) {
    const lf_page *parent = ls.page;
    lf_page *page = memory;
    (void)bytes;
    page->version = LF_LAYOUT_VERSION;
    page->pid = getpid();
    page->ppid = getppid();
    page->clock_is_tsc = (uint32_t)ls.use_tsc;
    page->process_start = process_start;
    page->sequence_offset = page->forward_thread_offset = -1;
    ls_rank(&page->rank, &page->world_size);
    if (parent) {
        page->probe = parent->probe;
        page->sequence_offset = parent->sequence_offset;
        page->forward_thread_offset = parent->forward_thread_offset;
        page->callbacks = parent->callbacks;
        if (page->rank < 0) {
            page->rank = parent->rank;
            page->world_size = parent->world_size;
        }
    }
    memcpy(page->library, library, sizeof page->library);
    read_command_line(page->command_line, sizeof page->command_line);
    page->magic = LF_PAGE_MAGIC;
}

/* When this process began, to those it hands memory to. Whoever is the first to ask decides: a thread that records, or
 * the signal handler that takes samples, which can wait for nobody. */
static uint64_t start_of(ls_wiped *wiped) {
    uint64_t start = 0, now = ls_monotonic_ns();
    return atomic_compare_exchange_strong(&wiped->start, &start, now) ? now : start;
}

uint64_t ls_process_start(void) { return process_start = start_of(ls.wiped); }

/* A page for this process. Called with the lock held, in a forked child too: there it takes over
 * what the parent knew and starts its own count of everything. */
static int process_begin(ls_wiped *wiped) {
    lf_page *parent = ls.page;
    process_start = start_of(wiped);
    lf_message message = {LF_MESSAGE_MAGIC, LF_SEND_PROCESS, 0, 0, 0};
    lf_page *page = ls_new_shared("layerscope-process", sizeof(lf_page), message, fill_page);
    if (!page)
        return -1;
    ls.page = page;
    ls.sequence_offset = page->sequence_offset;
    ls.forward_thread_offset = page->forward_thread_offset;
    if (parent && !LS_LOAD(ls.watching)) /* another thread may look at what is said there */
        munmap(parent, sizeof *parent);
    rings = 0;
    pool = NULL; /* a parent's pool holds rings that its child has no mapping of */
    occasions->process_begins(parent != NULL);
    LS_STORE(wiped->generation, ++generations);
    return 0;
}

static void fill_ring(void *memory, size_t bytes) {
    lf_ring_header *h = memory;
    (void)bytes;
    h->version = LF_LAYOUT_VERSION;
    h->capacity = (uint32_t)((bytes - LF_RING_HEADER) / sizeof(lf_record));
    h->index = rings;
    h->pid = getpid();
    h->process_start = process_start;
    h->magic = LF_RING_MAGIC;
}

static ls_thread *new_thread_state(void) {
    ls_thread *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t == MAP_FAILED)
        return NULL;
    lf_message message = {LF_MESSAGE_MAGIC, LF_SEND_RING, 0, rings, 0};
    size_t bytes = rings < LF_LARGE_RINGS ? LF_RING_BYTES : LF_SMALL_RING_BYTES;
    t->ring = ls_new_shared("layerscope-ring", bytes, message, fill_ring);
    if (!t->ring) {
        munmap(t, sizeof *t);
        return NULL;
    }
    madvise(t->ring, bytes, MADV_DONTFORK);
    t->capacity = t->ring->h.capacity;
    for (uint32_t depth = 0; depth < LF_OPEN_SLOTS; depth++) {
        t->contexts[depth].vtable = context_vtable + 2;
        t->contexts[depth].owner = t;
        t->contexts[depth].depth = (uint16_t)depth;
    }
    for (uint16_t what = 0; what < LS_ENDS; what++)
        t->silent[what] = (ls_context){.vtable = context_vtable + 2, .around = what};
    ls.page->rings = ++rings;
    return t;
}

uint32_t ls_new_track(void) { return __atomic_add_fetch(&tracks, 1, __ATOMIC_RELAXED); }

static void thread_begin(ls_thread *t) {
    LS_STORE(t->generation, ls.wiped->generation);
    t->track = ls_new_track();
    t->depth = t->module = t->modules = 0;
    t->out_of_order = 0;
    t->module_object = t->learning = NULL;
    t->calls = t->worked = t->raised = t->noted = t->steps_open = t->step_in = t->loaders_open = 0;
    t->optimizers_open = 0;
    t->line_is_step = 0;
    t->submitted = 0;
    t->custom = NULL;
    t->custom_self = NULL;
    t->submitted_line = t->submitted_track = t->submitted_in = t->api_depth = t->backward_depth = t->invoke_depth = 0;
    t->skips = 0;
    t->begun = ls_ticks();
    t->elsewhere = LS_LOAD(t->ring->h.elsewhere);
    t->ring->h.tid = (int32_t)syscall(SYS_gettid);
    __atomic_store_n(&t->ring->h.depth, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&t->ring->h.track, t->track, __ATOMIC_RELEASE);
    occasions->thread_begins();
}

static void count_without_ring(void) {
    if (!ls.page || ls.page->pid != getpid())
        return;
    uint64_t now = ls_ticks();
    if (!__atomic_fetch_add(&ls.page->lost_without_ring, 1, __ATOMIC_RELAXED))
        LS_STORE(ls.page->lost_without_ring_first, now);
    LS_STORE(ls.page->lost_without_ring_last, now);
}

/* The state of this thread, made at its first span in this process. */
ls_thread *ls_thread_enter(void) {
    if (!ls.wiped)
        return NULL;
    if (ls_this_thread == &ended) {
        count_without_ring();
        return NULL;
    }
    uint64_t now = ls_monotonic_ns();
    if (now < atomic_load_explicit(&retry_at, memory_order_relaxed)) {
        count_without_ring();
        return NULL;
    }
    ls_thread *t = NULL;
    ls_lock(&ls.wiped->lock);
    if (ls.wiped->generation || !process_begin(ls.wiped)) {
        t = pool;
        if (t)
            pool = t->next;
        else
            t = new_thread_state();
    }
    if (t)
        thread_begin(t);
    ls_unlock(&ls.wiped->lock);
    ls_this_thread = t;
    if (!t)
        count_without_ring();
    else if (have_key)
        pthread_setspecific(key, t);
    return t;
}

/* Ring and state of a thread that has ended wait for the next thread. With a span still open they do not: another
 * thread may end it yet, and its slot goes on saying that it is open. Whoever ends the last one asks again. */
void ls_thread_recycle(ls_thread *t) {
    ls_lock(&ls.wiped->lock);
    while (t->over && t->depth && __atomic_load_n(&t->ring->h.open[t->depth - 1].state, __ATOMIC_SEQ_CST) & 1)
        t->depth--;
    if (t->over && !t->depth) {
        LS_STORE(t->over, 0);
        __atomic_store_n(&t->ring->h.track, 0, __ATOMIC_RELEASE);
        t->next = pool;
        pool = t;
    }
    ls_unlock(&ls.wiped->lock);
}

static void thread_end(void *state) {
    ls_thread *t = state;
    ls_this_thread = &ended;
    if (!ls_thread_is_current(t))
        return;
    occasions->thread_ends(t);
    if (ls_ring_has_room(t, 1)) {
        *ls_ring_next(t) = (lf_record){.start = ls_ticks(), .kind = LF_THREAD_END, .module = t->track};
        ls_ring_publish(t);
    }
    __atomic_store_n(&t->over, 1, __ATOMIC_SEQ_CST);
    ls_thread_recycle(t);
}

void ls_ring_lose(ls_thread *t, int too_deep) {
    lf_ring_header *h = &t->ring->h;
    if (h->closed)
        return; /* the recording is over: this is no loss */
    uint64_t now = ls_ticks();
    if (!(h->lost_full + h->lost_deep))
        h->lost_first = now;
    h->lost_last = now;
    uint64_t *counter = too_deep ? &h->lost_deep : &h->lost_full;
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELEASE);
}

static void write_lost(ls_thread *t, lf_ring_header *h) {
    *ls_ring_advance(t) = (lf_record){.start = h->lost_first, .end = h->lost_last, .name = (uint32_t)h->lost_full,
                                      .module = (uint32_t)h->lost_deep, .kind = LF_LOST};
    /* Published before the counters are cleared: a kill in between counts a loss twice rather than never. */
    ls_ring_publish(t);
    __atomic_store_n(&h->lost_full, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&h->lost_deep, 0, __ATOMIC_RELEASE);
}

/* Write down what was lost, and whose thread's records follow. */
void ls_ring_account(ls_thread *t) {
    lf_ring_header *h = &t->ring->h;
    int lost = (h->lost_full | h->lost_deep) != 0;
    if (lost && h->lost_first < t->begun) { /* what the thread before this one lost */
        write_lost(t, h);
        lost = 0;
    }
    if (t->announced != t->track) {
        int32_t framework_id = ls_framework_thread_id ? (int32_t)ls_framework_thread_id() : -1;
        *ls_ring_advance(t) = (lf_record){.start = t->begun, .end = (uint64_t)(uint32_t)h->tid, .seq = framework_id,
                                          .module = t->track, .kind = LF_THREAD_BEGIN};
        t->announced = t->track;
    }
    if (lost)
        write_lost(t, h);
}

/* The first byte last: whoever sees it sees the rest. */
static void note_library(const char *path) {
    strncpy(library, path, sizeof library - 1);
    memcpy(ls.page->library + 1, library + 1, sizeof library - 1);
    __atomic_store_n(ls.page->library, library[0], __ATOMIC_RELEASE);
}

static int prepare(const char *name, const char *library_path, int use_tsc) {
    if (ls.wiped) {
        ls_lock(&ls.wiped->lock);
        int failed = !ls.wiped->generation && process_begin(ls.wiped); /* a forked child has its parent's page */
        ls_unlock(&ls.wiped->lock);
        if (failed)
            return -EAGAIN;
        if (ls.page && !library[0])
            note_library(library_path);
        return ls.page ? 0 : -EAGAIN;
    }
    size_t length = strlen(name);
    if (length + 2 > sizeof address.sun_path)
        return -ENAMETOOLONG;
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path + 1, name, length); /* a leading NUL: the abstract namespace */
    address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    ls.use_tsc = use_tsc;
    strncpy(library, library_path, sizeof library - 1);
    ls_wiped *wiped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wiped == MAP_FAILED)
        return -ENOMEM;
    if (madvise(wiped, 4096, MADV_WIPEONFORK)) {
        munmap(wiped, 4096);
        return -ENOSYS;
    }
    ended.generation = ~(uint64_t)0;
    have_key = !pthread_key_create(&key, thread_end);
    if (process_begin(wiped)) {
        munmap(wiped, 4096);
        if (have_key)
            pthread_key_delete(key);
        return -ECONNREFUSED;
    }
    __atomic_store_n(&ls.wiped, wiped, __ATOMIC_RELEASE); /* from here on other threads may record */
    return 0;
}

/* What ls_prepare does; from now on `told` hears of processes and threads. */
int ls_rings_prepare(const char *name, const char *library_path, int use_tsc, const ls_occasions *told) {
    ls_lock_beginning();
    occasions = told;
    int failed = prepare(name, library_path, use_tsc);
    ls_unlock_beginning();
    return failed;
}

/* The rank that the program gave itself, later than its start. */
LS_EXPORT void ls_note_rank(int32_t rank, int32_t world_size) {
    if (ls.page) {
        LS_STORE(ls.page->rank, rank);
        LS_STORE(ls.page->world_size, world_size);
    }
}

/* What a process that is no rank does in a distributed job. */
void ls_note_role(const char *role) {
    if (ls.page)
        snprintf(ls.page->role, sizeof ls.page->role, "%s", role);
}

/* What our own Python code inside the program has cost so far. */
LS_EXPORT void ls_note_cost(uint64_t cpu_ns) {
    if (ls.page)
        __atomic_add_fetch(&ls.page->agent_cpu_ns, cpu_ns, __ATOMIC_RELAXED);
}

LS_EXPORT uint32_t ls_layout_version(void) { return LF_LAYOUT_VERSION; }
