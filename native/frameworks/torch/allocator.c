/* The memory of tensors on the CPU. PyTorch has it from c10::alloc_cpu, which asks posix_memalign and gives it back by
 * free: these two imports of libc10.so lead to ours. Its own calls of free for other things come too; they are
 * releases of addresses that nobody allocated. */
#define _GNU_SOURCE
#include "torch.h"

#include "../../agent/allocations.h"
#include "../../agent/python_line.h"
#include "../../agent/redirection.h"

#include <dlfcn.h>

/* Somebody who has redirected the same imports after us goes on calling us when we have stopped. */
static _Atomic int is_recorded;
static int (*allocate)(void **address, size_t alignment, size_t bytes);
static void (*give_back)(void *address);

static int allocate_and_tell(void **address, size_t alignment, size_t bytes) {
    int refused = allocate(address, alignment, bytes);
    if (!refused && atomic_load_explicit(&is_recorded, memory_order_relaxed))
        ls_allocation(*address, bytes, 0);
    return refused;
}

static void tell_and_give_back(void *address) {
    if (address && atomic_load_explicit(&is_recorded, memory_order_relaxed))
        ls_release(address);
    give_back(address);
}

static const ls_redirection WANTED[] = {
    {"posix_memalign", (void *)allocate_and_tell, (void **)&allocate},
    {"free", (void *)tell_and_give_back, (void **)&give_back},
};
static ls_redirections redirections = {.wanted = WANTED, .count = sizeof WANTED / sizeof *WANTED};

static void *allocator_of_torch(void) {
    void *found = dlsym(RTLD_DEFAULT, "_ZN3c109alloc_cpuEm");
    void *torch = found ? NULL : dlopen(ls.page->library, RTLD_NOW | RTLD_NOLOAD);
    if (torch) {
        found = dlsym(torch, "_ZN3c109alloc_cpuEm");
        dlclose(torch);
    }
    return found;
}

static int start(const char *folder, const char *why[2]) {
    if (ls_python_line_begin(folder))
        ls_mark("memory_lines\nthis Python does not say which line allocates", LF_MARK_PROBLEM, 0);
    if (redirections.used)
        return 0;
    void *allocator = allocator_of_torch();
    why[0] = "it has no function";
    why[1] = "c10::alloc_cpu";
    if (!allocator)
        return -1;
    if (!ls_redirect_imports(&redirections, allocator))
        return 0;
    why[0] = redirections.why_not;
    why[1] = redirections.which;
    return -1;
}

/* Start recording the memory of tensors. `folder`: where torch's own Python files are, whose lines are not the
 * program's. 0: recording; else why not, and what that is about, are in `why`: two texts. */
LS_EXPORT int ls_torch_memory_start(const char *folder, const char *why[2]) {
    ls_lock_beginning(); /* two threads that import */
    int code = start(folder, why);
    if (!code)
        atomic_store(&is_recorded, 1);
    ls_unlock_beginning();
    return code;
}

LS_EXPORT void ls_torch_memory_stop(void) {
    ls_lock_beginning();
    atomic_store(&is_recorded, 0);
    ls_redirect_back(&redirections);
    ls_unlock_beginning();
}
