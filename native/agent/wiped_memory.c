/* Memory that a forked child finds zeroed, whatever the threads of its parent were doing. */
#define _GNU_SOURCE
#include "agent.h"

#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* So many bytes of zeros, of which only what is used takes room; NULL: there is none, or the kernel is older than 4.14. */
void *ls_wiped_memory(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (madvise(memory, bytes, MADV_WIPEONFORK)) {
        munmap(memory, bytes);
        return NULL;
    }
    return memory;
}
