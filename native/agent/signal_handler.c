/* What happens at SIGURG, by which samples come: our handler, and behind it whatever the program has set.
 *
 * A program that sets a handler of its own through Python never sees our signals: Python's way to sigaction(2), one
 * address in its table of imported functions (imports.c), leads here as long as we take samples. What it sets is kept
 * and called for the signals of others, and ours end: of two that wait for the same thread the kernel keeps one, so one
 * of the program's could be lost. Whoever calls sigaction in another way takes the signal away from us: we do not take
 * it back. */
#define _GNU_SOURCE
#include "sampling.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define KERNEL_SIGNALS 8 /* bytes of a set of signals */
#define KEPT 8u

/* What the program has set: handlers of other threads read it meanwhile, and wait for nobody. */
static struct sigaction kept[KEPT];
static _Atomic uint32_t newest;
static ls_handler *our_handler;
static void (*program_handles)(void);

static struct sigaction theirs(void) {
    struct sigaction found;
    uint32_t at;
    do {
        at = atomic_load(&newest);
        found = kept[at % KEPT];
    } while (atomic_load(&newest) - at >= KEPT - 1);
    return found;
}

static void keep(const struct sigaction *action) {
    uint32_t next = atomic_load(&newest) + 1;
    kept[next % KEPT] = *action;
    atomic_store(&newest, next);
}

static int is_handler(const struct sigaction *action) {
    return action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN;
}

/* Deliver a signal as it would have been without us. What is blocked meanwhile is put back when our handler returns. */
void ls_disposition_pass_on(int number, siginfo_t *info, void *context) {
    struct sigaction to = theirs();
    if (!is_handler(&to))
        return;
    void (*simple)(int) = to.sa_handler;
    void (*informed)(int, siginfo_t *, void *) = to.sa_sigaction;
    uint64_t blocked, added, own = (uint64_t)1 << (number - 1);
    memcpy(&blocked, &((ucontext_t *)context)->uc_sigmask, sizeof blocked);
    memcpy(&added, &to.sa_mask, sizeof added);
    blocked |= added | (to.sa_flags & SA_NODEFER ? 0 : own);
    if (to.sa_flags & SA_RESETHAND) {
        struct sigaction once = to;
        once.sa_handler = SIG_DFL;
        keep(&once);
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked, NULL, KERNEL_SIGNALS);
    if (to.sa_flags & SA_SIGINFO)
        informed(number, info, context);
    else
        simple(number);
}

static int is_handled_by_us(void) {
    struct sigaction now;
    return our_handler && !sigaction(SIGURG, NULL, &now) && now.sa_flags & SA_SIGINFO
        && now.sa_sigaction == our_handler;
}

/* Whether the program handles it. */
int ls_disposition_has_handler(void) {
    struct sigaction now;
    if (is_handled_by_us() || sigaction(SIGURG, NULL, &now))
        now = theirs();
    return is_handler(&now);
}

/* Events come while the thread runs its own code and interrupt no call; what else comes is the program's. */
static int set_ours(void) {
    struct sigaction before = theirs(), ours = {.sa_flags = SA_SIGINFO};
    ours.sa_flags |= is_handler(&before) ? before.sa_flags & (SA_RESTART | SA_ONSTACK) : SA_RESTART | SA_ONSTACK;
    ours.sa_sigaction = our_handler;
    sigfillset(&ours.sa_mask);
    return sigaction(SIGURG, &ours, NULL);
}

/* In the place of sigaction(2), for Python alone. */
static int sigaction_of_python(int number, const struct sigaction *action, struct sigaction *old) {
    if (number != SIGURG || !is_handled_by_us())
        return sigaction(number, action, old);
    struct sigaction before = theirs(), copied;
    if (action) {
        copied = *action; /* may be the same memory as `old` */
        if (!is_handler(&copied) && sigaction(SIGURG, &copied, NULL)) /* what is pending is dropped */
            return -1;
        keep(&copied);
        if (set_ours())
            return -1;
        if (is_handler(&copied))
            program_handles();
    }
    if (old)
        *old = before;
    return 0;
}

static void lead_python(void *from, void *to) {
    void *python = dlsym(RTLD_DEFAULT, "PyOS_setsig");
    if (python)
        ls_import_replace(python, "sigaction", from, to);
}

static void *real(void) { return dlsym(RTLD_DEFAULT, "sigaction"); }
static void *replaced(void) { return (void *)(uintptr_t)sigaction_of_python; }

/* Have `handler` called for each SIGURG, and `taken` when the program sets a handler of its own. 0 or -1. */
int ls_disposition_take(ls_handler *handler, void (*taken)(void)) {
    our_handler = handler;
    program_handles = taken;
    if (is_handled_by_us())
        return 0;
    struct sigaction before;
    if (sigaction(SIGURG, NULL, &before))
        return -1;
    keep(&before);
    if (set_ours())
        return -1;
    lead_python(real(), replaced());
    return 0;
}

/* All is as the program has set it, unless somebody else has taken the signal since. */
void ls_disposition_give_back(void) {
    struct sigaction before = theirs();
    lead_python(replaced(), real());
    if (is_handled_by_us())
        sigaction(SIGURG, &before, NULL);
}
