/* Holds up the main thread of Python between two of its instructions, while another thread does something. */
#define _GNU_SOURCE
#include "agent.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

/* So long it is held up at most, whatever becomes of the other thread. */
#define MOST_HELD_NS 5000000000ll

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { NOBODY, ASKED, HELD } state;
    pid_t asked_in;
    int (*add_pending)(int (*)(void *), void *);
    void *(*save)(void);
    void (*restore)(void *);
} holding = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NOBODY, 0, NULL, NULL, NULL};

static struct timespec in(int64_t ns) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    ns += at.tv_nsec;
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    return at;
}

/* Wait until the state is no longer this one; the lock is held. */
static void wait_while(int state, int64_t most_ns) {
    struct timespec until = in(most_ns);
    while ((int)holding.state == state && !pthread_cond_timedwait(&holding.changed, &holding.lock, &until))
        ;
}

/* Python calls it in the main thread. A child that was forked meanwhile calls it too, and has nobody who lets it go. */
static int held_up(void *nothing) {
    (void)nothing;
    if (getpid() != holding.asked_in)
        return 0;
    void *thread = holding.save();
    pthread_mutex_lock(&holding.lock);
    if (holding.state == ASKED) {
        holding.state = HELD;
        pthread_cond_broadcast(&holding.changed);
        wait_while(HELD, MOST_HELD_NS);
        holding.state = NOBODY;
    }
    pthread_mutex_unlock(&holding.lock);
    holding.restore(thread);
    return 0;
}

static int is_found(void) {
    *(void **)&holding.add_pending = dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
    *(void **)&holding.save = dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
    *(void **)&holding.restore = dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
    return holding.add_pending && holding.save && holding.restore;
}

/* Hold the main thread up where it comes between two instructions within this time; another thread calls it, without
 * the GIL. 0: it did not come there, and is not held up. */
LS_EXPORT int ls_python_hold(int64_t most_ns) {
    if (!is_found())
        return 0;
    pthread_mutex_lock(&holding.lock);
    int is_held = 0;
    if (holding.state == NOBODY) {
        holding.state = ASKED;
        holding.asked_in = getpid();
        if (!holding.add_pending(held_up, NULL))
            wait_while(ASKED, most_ns);
        is_held = holding.state == HELD;
        if (!is_held)
            holding.state = NOBODY;
    }
    pthread_mutex_unlock(&holding.lock);
    return is_held;
}

/* It goes on. */
LS_EXPORT void ls_python_let_go(void) {
    pthread_mutex_lock(&holding.lock);
    holding.state = NOBODY;
    pthread_cond_broadcast(&holding.changed);
    pthread_mutex_unlock(&holding.lock);
}
