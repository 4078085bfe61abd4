/* Libraries that a program loads while it runs, by dlopen. Nothing tells of that, and to call dlopen for the program would
 * change where it looks: its answer depends on who calls. But what was loaded is of no use before a function in it is
 * looked up. So the calls of dlsym by the program's own file lead here, and on to dlsym as if they came from there:
 * with the same return address, by which it knows the caller. */
#define _GNU_SOURCE
#include "../agent/sampling.h"
#include "frameworks.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <sys/auxv.h>

/* Named by the code below. */
__attribute__((visibility("hidden"))) void *(*ls_later_own_dlsym)(void *, const char *);
__attribute__((visibility("hidden"))) void ls_later_look(void);
__attribute__((visibility("hidden"))) void *ls_later_dlsym(void *library, const char *name);

#define PATIENCE_NS 1000000000u

static int (*has_arrived)(void);

__asm__(".text\n"
        ".p2align 4\n"
        ".hidden ls_later_dlsym\n"
        ".globl ls_later_dlsym\n"
        ".type ls_later_dlsym, @function\n"
        "ls_later_dlsym:\n"
        "    .cfi_startproc\n"
        "    push %rdi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    push %rsi\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    sub $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call ls_later_look\n"
        "    add $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    pop %rdi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    jmp *ls_later_own_dlsym(%rip)\n"
        "    .cfi_endproc\n"
        "    .size ls_later_dlsym, . - ls_later_dlsym\n");

/* An address in the file of the program itself. */
static const void *in_program(void) { return (const void *)(uintptr_t)getauxval(AT_PHDR); }

/* Whether this thread is the one that looks. Another one that does may have begun too early, so it is waited for; not
 * for ever: it may need a lock of the dynamic linker that this thread has. */
static int may_look(void) {
    uint64_t since = ls_monotonic_ns();
    while (atomic_exchange(&ls.wiped->libraries_lock, 1)) {
        if (ls_monotonic_ns() - since > PATIENCE_NS)
            return 0;
        sched_yield();
    }
    return 1;
}

/* Once it has arrived the program calls dlsym itself again. */
void ls_later_look(void) {
    int error = errno;
    if (may_look()) {
        if (has_arrived && has_arrived()) {
            has_arrived = NULL;
            ls_import_replace(in_program(), "dlsym", (void *)ls_later_dlsym, (void *)ls_later_own_dlsym);
        }
        ls_unlock(&ls.wiped->libraries_lock);
    }
    errno = error;
}

void ls_later_libraries(int (*arrives)(void)) {
    *(void **)&ls_later_own_dlsym = dlsym(RTLD_DEFAULT, "dlsym");
    has_arrived = arrives;
    if (ls_later_own_dlsym)
        ls_import_replace(in_program(), "dlsym", (void *)ls_later_own_dlsym, (void *)ls_later_dlsym);
}
