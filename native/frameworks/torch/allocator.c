/* The memory of tensors on the CPU. PyTorch has it from c10::alloc_cpu, which asks posix_memalign and gives it back by
 * free: these two imports of libc10.so lead to ours. Its own calls of free for other things come too; they are
 * releases of addresses that nobody allocated. */
#define _GNU_SOURCE
#include "torch.h"

#include "../../agent/allocations.h"
#include "../../agent/python_line.h"
#include "../../agent/redirection.h"

#include <dlfcn.h>

static int (*allocate)(void **address, size_t alignment, size_t bytes);
static void (*give_back)(void *address);

static int allocate_and_tell(void **address, size_t alignment, size_t bytes) {
    int refused = allocate(address, alignment, bytes);
    if (!refused)
        ls_allocation(*address, bytes, 0);
    return refused;
}

static void tell_and_give_back(void *address) {
    if (address)
        ls_release(address);
    give_back(address);
}

static const ls_redirection WANTED[] = {
    {"posix_memalign", (void *)allocate_and_tell, (void **)&allocate},
    {"free", (void *)tell_and_give_back, (void **)&give_back},
};
static ls_redirections redirections = {.wanted = WANTED, .count = sizeof WANTED / sizeof *WANTED};

/* Start recording the memory of tensors. `folder`: where torch's own Python files are, whose lines are not the
 * program's. 0: recording; else why not, and what that is about, are in `why`: two texts. */
LS_EXPORT int ls_torch_memory_start(const char *folder, const char *why[2]) {
    if (redirections.used)
        return 0;
    void *allocator = dlsym(RTLD_DEFAULT, "_ZN3c109alloc_cpuEm");
    void *torch = allocator ? NULL : dlopen(ls.page->library, RTLD_NOW | RTLD_NOLOAD);
    if (torch) {
        allocator = dlsym(torch, "_ZN3c109alloc_cpuEm");
        dlclose(torch);
    }
    why[0] = "it has no function";
    why[1] = "c10::alloc_cpu";
    if (!allocator)
        return -1;
    ls_python_line_begin(folder); /* without it lines are not known */
    if (!ls_redirect_imports(&redirections, allocator))
        return 0;
    why[0] = redirections.why_not;
    why[1] = redirections.which;
    return -1;
}

LS_EXPORT void ls_torch_memory_stop(void) {
    ls_redirect_back(&redirections);
    redirections.used = 0;
}
