/* What is mapped where in this process: each line that is printed is something that was found wrong. */
#define _GNU_SOURCE
#include "stacks/stacks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(condition) ((condition) ? (void)0 : (void)printf("line %d: %s\n", __LINE__, #condition))

int a_function_with_a_name(void) { return getpid(); }

static int is_at(const lu_space *space, const void *place, int kind, const char *ending) {
    lu_place found = lu_space_find(space, (uint64_t)place);
    if (found.kind != kind || kind != LU_PLACE_FILE)
        return found.kind == kind;
    const char *path = lu_object_of(found.object)->path;
    return strlen(path) >= strlen(ending) && !strcmp(path + strlen(path) - strlen(ending), ending);
}

/* A copy of a library in a file without a name. */
static void *of_memory(const char *path) {
    char bytes[1 << 16], name[64];
    int from = open(path, O_RDONLY), to = memfd_create("a library", 0);
    for (ssize_t got; (got = read(from, bytes, sizeof bytes)) > 0;)
        if (write(to, bytes, (size_t)got) != got)
            return NULL;
    snprintf(name, sizeof name, "/proc/self/fd/%d", to);
    void *library = dlopen(name, RTLD_NOW);
    close(from);
    close(to);
    return library ? dlsym(library, "plugged") : NULL;
}

static void files(lu_space *space, const char *plugin) {
    struct stat s;
    Dl_info info;
    void *here = (void *)a_function_with_a_name;
    CHECK(is_at(space, here, LU_PLACE_FILE, "spaces"));
    CHECK(is_at(space, (void *)(getauxval(AT_SYSINFO_EHDR) + 0x600), LU_PLACE_FILE, "[vdso]"));
    CHECK(dladdr(here, &info));
    lu_place place = lu_space_find(space, (uint64_t)here);
    const lu_object_facts *facts = lu_object_of(place.object);
    CHECK(place.address == (uint64_t)here - (uint64_t)info.dli_fbase);
    CHECK(!stat("/proc/self/exe", &s) && s.st_ino == facts->inode && s.st_dev == facts->device);
    CHECK(facts->mtime_ns == (uint64_t)s.st_mtim.tv_sec * 1000000000u + (uint64_t)s.st_mtim.tv_nsec);
    CHECK(facts->build_id_bytes == 20);
    CHECK(lu_space_in_function(space, (uint64_t)here + 1, "a_function_with_a_name"));
    CHECK(!lu_space_in_function(space, (uint64_t)here + 1, "main"));
    CHECK(!lu_space_in_function(space, (uint64_t)files, "a_function_with_a_name"));
    uint32_t before = lu_objects();
    void *library = dlopen(plugin, RTLD_NOW), *function = library ? dlsym(library, "plugged") : NULL;
    CHECK(function && is_at(space, function, LU_PLACE_NOWHERE, ""));
    CHECK(!lu_space_refresh(space) && is_at(space, function, LU_PLACE_FILE, "plugin.so"));
    CHECK(lu_objects() == before + 1 && lu_object_of(before) && !lu_object_of(before + 1));
    CHECK(!lu_space_refresh(space) && lu_objects() == before + 1);
    CHECK(!dlclose(library) && !lu_space_refresh(space) && is_at(space, function, LU_PLACE_NOWHERE, ""));
    function = of_memory(plugin);
    CHECK(function && !lu_space_refresh(space) && is_at(space, function, LU_PLACE_FILE, "a library (deleted)"));
    lu_space *other = lu_space_of(getpid());
    CHECK(other && lu_objects() == before + 2); /* known already */
    lu_space_free(other);
}

static void code_of_no_file(lu_space *space) {
    int everything = PROT_READ | PROT_WRITE | PROT_EXEC, file = memfd_create("code", 0);
    char *anonymous = mmap(NULL, 8192, everything, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(!ftruncate(file, 8192));
    char *shared = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
    CHECK(!lu_space_refresh(space));
    CHECK(is_at(space, anonymous, LU_PLACE_JIT, "") && is_at(space, shared + 8191, LU_PLACE_JIT, ""));
    CHECK(lu_space_find(space, (uint64_t)anonymous + 7).address == (uint64_t)anonymous + 7);
    CHECK(is_at(space, malloc(10), LU_PLACE_NOWHERE, "") && is_at(space, &file, LU_PLACE_NOWHERE, ""));
    CHECK(is_at(space, NULL, LU_PLACE_NOWHERE, "") && is_at(space, (void *)-1, LU_PLACE_NOWHERE, ""));
    munmap(anonymous, 8192);
    CHECK(!lu_space_refresh(space) && is_at(space, anonymous, LU_PLACE_NOWHERE, ""));
}

/* Thousands of mappings, each of which has another right than its neighbours. */
static void many(lu_space *space) {
    enum { PAGES = 6000 };
    char *pages = mmap(NULL, PAGES * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PAGES; i += 2)
        CHECK(!mprotect(pages + 4096 * i, 4096, PROT_READ | PROT_EXEC));
    CHECK(!lu_space_refresh(space));
    for (int i = 0; i < PAGES; i++)
        CHECK(is_at(space, pages + 4096 * i + i % 4096, i % 2 ? LU_PLACE_NOWHERE : LU_PLACE_JIT, ""));
}

int main(int argc, char **argv) {
    lu_space *space = lu_space_of(getpid());
    if (!space || argc < 2)
        return 2;
    files(space, argv[1]);
    code_of_no_file(space);
    many(space);
    lu_space_free(space);
    CHECK(!lu_space_of(0x7ffffff0));
    lu_space_free(NULL);
    puts("done");
    return 0;
}
