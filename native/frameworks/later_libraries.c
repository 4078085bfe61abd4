/* Libraries that a program loads while it runs, by dlopen. Nothing tells of that, and to call dlopen for the program would
 * change where it looks: its answer depends on who calls. But what was loaded is of no use before a function in it is
 * looked up. So the calls of dlsym by the program's own file lead here, and on to dlsym as if they came from there:
 * with the same return address, by which it knows the caller. */
#define _GNU_SOURCE
#include "../agent/sampling.h"
#include "frameworks.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/auxv.h>

/* Named by the code below. */
__attribute__((visibility("hidden"))) void *(*ls_later_own_dlsym)(void *, const char *);
__attribute__((visibility("hidden"))) void ls_later_look(void);
__attribute__((visibility("hidden"))) void *ls_later_dlsym(void *library, const char *name);

static int (*has_arrived)(void);
static _Atomic int is_looking;

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

/* Once it has arrived the program calls dlsym itself again. */
void ls_later_look(void) {
    int error = errno;
    if (!atomic_exchange(&is_looking, 1)) {
        if (has_arrived && has_arrived()) {
            has_arrived = NULL;
            ls_import_replace(in_program(), "dlsym", (void *)ls_later_dlsym, (void *)ls_later_own_dlsym);
        }
        atomic_store(&is_looking, 0);
    }
    errno = error;
}

void ls_later_libraries(int (*arrives)(void)) {
    *(void **)&ls_later_own_dlsym = dlsym(RTLD_DEFAULT, "dlsym");
    has_arrived = arrives;
    if (ls_later_own_dlsym)
        ls_import_replace(in_program(), "dlsym", (void *)ls_later_own_dlsym, (void *)ls_later_dlsym);
}
