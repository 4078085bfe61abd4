/* The memory of tensors on the CPU. PyTorch has it from c10::alloc_cpu, which asks posix_memalign and gives it back by
 * free: these two imports of libc10.so lead to ours. Its own calls of free for other things come too; they are
 * releases of addresses that nobody allocated. */
#define _GNU_SOURCE
#include "torch.h"

#include "../../agent/allocations.h"

#include <dlfcn.h>

static ls_redirections imports;
static int (*allocate)(void **address, size_t alignment, size_t bytes);
static void (*give_back)(void *address);

static int allocate_and_tell(void **address, size_t alignment, size_t bytes) {
    int refused = allocate(address, alignment, bytes);
    if (!refused && LS_LOAD(imports.is_on))
        ls_allocation(*address, bytes, 0);
    return refused;
}

static void tell_and_give_back(void *address) {
    if (address && LS_LOAD(imports.is_on))
        ls_release(address);
    give_back(address);
}

static const ls_redirection WANTED[] = {
    {"posix_memalign", (void *)allocate_and_tell, (void **)&allocate},
    {"free", (void *)tell_and_give_back, (void **)&give_back},
};
static ls_redirections imports = {.wanted = WANTED, .count = sizeof WANTED / sizeof *WANTED};

static void *allocator_of_torch(void) {
    void *found = dlsym(RTLD_DEFAULT, "_ZN3c109alloc_cpuEm");
    void *torch = found ? NULL : dlopen(ls.page->library, RTLD_NOW | RTLD_NOLOAD);
    if (torch) {
        found = dlsym(torch, "_ZN3c109alloc_cpuEm");
        dlclose(torch);
    }
    return found;
}

/* Start recording the memory of tensors. `folder`: where torch's own Python files are, whose lines are not the
 * program's. 0: recording; else why not, and what that is about, are in `why`: two texts. */
LS_EXPORT int ls_torch_memory_start(const char *folder, const char *why[2]) {
    void *allocator = allocator_of_torch();
    why[0] = "it has no function";
    why[1] = "c10::alloc_cpu";
    return allocator ? ls_allocator_start(&imports, allocator, folder, why) : -1;
}

LS_EXPORT void ls_torch_memory_stop(void) { ls_allocator_stop(&imports); }
