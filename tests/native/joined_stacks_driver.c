/* native/sampler/joined_stacks.c: stacks of native frames whose addresses say what they are, one an argument, the leaf
 * first: f a frame of the interpreter, p one of its pieces that it has called, n another. Then `python` and the numbers of
 * frames of Python, the innermost first, with `e` behind those that a C frame begins with. Prints the joined stack. */
#define _GNU_SOURCE
#include "sampler/joined_stacks.c"

#include <stdio.h>
#include <stdlib.h>

sm_recording sm;

int lu_space_in_function(const lu_space *space, uint64_t address, const char *name) {
    (void)space, (void)name;
    return address == 'f' ? LU_IN_FUNCTION : address == 'p' ? LU_JUMPED_TO : 0;
}

lu_space *lu_space_of(pid_t pid) { return pid ? NULL : NULL; }
int lu_space_refresh(lu_space *space) { return !space; }
void lu_space_free(lu_space *space) { (void)space; }
lu_place lu_space_find(const lu_space *space, uint64_t address) {
    (void)space, (void)address;
    return (lu_place){0};
}
uint32_t sm_made_at(sm_process *p, uint64_t address, uint64_t *offset) {
    (void)p, (void)address, (void)offset;
    return LT_NONE;
}
uint32_t sm_frame(uint32_t kind, uint32_t object, uint64_t address, uint32_t is_caller) {
    (void)kind, (void)object, (void)address, (void)is_caller;
    return LT_NONE;
}
uint32_t sm_stack(uint32_t parent, uint32_t frame) { return parent + frame; }
int sm_is_full(void) { return 0; }

static void native(void *of, uint64_t address, int is_caller) {
    (void)of, (void)is_caller;
    printf("%c ", (char)address);
}

static void python(void *of, uint32_t code, uint32_t place) {
    (void)of, (void)place;
    printf("%u ", code);
}

static void cut(void *of, uint32_t kind) {
    (void)of, (void)kind;
    printf("cut ");
}

int main(int argc, char **argv) {
    static sm_process p;
    lu_native_frame frames[64] = {{0}};
    sm_python_frame found[64];
    int natives = 0, pythons = 0, at = 1;
    for (; at < argc && strcmp(argv[at], "python"); at++)
        frames[natives++].address = (uint64_t)argv[at][0];
    for (at++; at < argc; at++) {
        char *end;
        uint32_t code = (uint32_t)strtoul(argv[at], &end, 10);
        found[pythons++] = (sm_python_frame){code, *end == 'e' ? LF_ENTRY : 0};
    }
    uint32_t flags = 0;
    const sm_taker to = {native, python, cut, NULL};
    sm_place(&p, frames, natives, LU_UNWOUND_ROOT, found, pythons, &flags, &to);
    puts(flags & LT_NO_SPLICE ? "not spliced" : "spliced");
    return 0;
}
