/* fuzz FILE FOLDER ROUNDS SEED: an ELF file with mutations, and stacks of nonsense: nothing may crash. */
#define _GNU_SOURCE
#include "stacks/cfi.h"
#include "stacks/expression.h"
#include "stacks/functions.h"
#include "stacks/space.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STACK_BASE 0x7ffd00000000u
#define STACK_WORDS 24576u

static uint64_t state;

static uint64_t any(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

/* Where mutations do most: headers, the table of unwind information, and that information behind it. */
static size_t place(const uint8_t *bytes, size_t size) {
    const Elf64_Ehdr *elf = (const void *)bytes;
    const Elf64_Phdr *headers = (const void *)(bytes + elf->e_phoff);
    if (any(3) == 0)
        return any(1024 < size ? 1024 : size);
    for (unsigned i = 0; i < elf->e_phnum; i++)
        if (headers[i].p_type == PT_GNU_EH_FRAME && headers[i].p_offset < size)
            return headers[i].p_offset + any(3 * headers[i].p_filesz + 64) % (size - headers[i].p_offset);
    return any(size);
}

static void mutate(uint8_t *copy, size_t size, const uint8_t *original) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, 0x0f, 0x10, 0x16, 0x3b, 0x1b};
    uint64_t count = 1 + any(12);
    for (uint64_t i = 0; i < count; i++) {
        size_t at = place(original, size);
        for (uint64_t length = any(3) ? 1 : 1 + any(9); length && at < size; length--, at++)
            copy[at] = any(2) ? (uint8_t)any(256) : edges[any(sizeof edges)];
    }
}

static void ask(lu_object *object, uint64_t most) {
    uint64_t found;
    for (unsigned i = 0; i < 64; i++) {
        uint64_t address = any(8) ? any(most) : any(0);
        const lu_row *row = lu_row_at(object, address);
        if (row && (row->count > LF_REGISTERS || row->cfa.of >= LF_REGISTERS))
            abort();
        lu_object_offset(object, address, &found);
        lu_object_address(object, address, &found);
    }
    lu_object_in_function(object, any(most), any(2) ? "plugged" : "_PyEval_EvalFrameDefault");
}

static void one_file(const char *path, const uint8_t *original, size_t size, uint8_t *copy, uint32_t number) {
    size_t length = any(16) ? size : any(size);
    memcpy(copy, original, size);
    mutate(copy, size, original);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, copy, length) != (ssize_t)length)
        abort();
    lu_object object = {.facts = {.number = number}, .file = file};
    lu_object_read(&object, (lu_source){file, 0, 0, any(4) == 0});
    if (any(8) == 0 && ftruncate(file, (off_t)any(size)))
        abort();
    ask(&object, size);
    lu_section *sections[] = {&object.table, &object.frames};
    for (int i = 0; i < 2; i++) {
        if (sections[i]->bytes)
            munmap(sections[i]->bytes, sections[i]->size);
        free(sections[i]->loaded);
    }
    free(object.loads);
    free(object.index);
    free(object.function);
    free(object.ranges);
    close(file);
}

static bool read_word(void *of, uint64_t address, uint64_t *word) {
    (void)of;
    *word = address * 3;
    return address & 1;
}

static void one_expression(void) {
    uint8_t code[64];
    uint64_t registers[LF_REGISTERS], value = any(0);
    size_t bytes = any(sizeof code);
    uint8_t *exact = malloc(bytes + 1); /* what is read behind it is found by the checker */
    for (size_t i = 0; i < bytes; i++)
        exact[i] = (uint8_t)(any(4) ? 0x06 + any(0x2a) : any(256));
    for (int i = 0; i < LF_REGISTERS; i++)
        registers[i] = any(0);
    lu_machine machine = {registers, (uint32_t)any(1u << LF_REGISTERS), read_word, NULL};
    exact = realloc(exact, bytes ? bytes : 1);
    lu_expression(&machine, exact, bytes, any(2), &value);
    free(exact);
}

/* Words that look like the stack: addresses of code and of itself, small numbers, noise. */
static void one_stack(lu_space *space) {
    static uint64_t words[2048];
    static lu_native_frame frames[64];
    uint64_t registers[LF_REGISTERS], base = 0x7ffd00000000u + any(1u << 20) * 8;
    lu_range code = lu_space_code(space);
    for (unsigned i = 0; i < 2048 + LF_REGISTERS; i++) {
        uint64_t way = any(6), word = way < 2   ? (uint64_t)(uintptr_t)one_stack + any(40000)
                                      : way < 3 ? code.start + any(code.end - code.start)
                                      : way < 4 ? base + 8 * any(2048)
                                      : way < 5 ? any(100)
                                                : any(0) * any(3);
        if (i < 2048)
            words[i] = word;
        else
            registers[i - 2048] = word;
    }
    registers[LF_RSP] = base + any(20) * 8;
    lu_stack_copy stack = {base, (const uint8_t *)words, any(sizeof words), NULL, NULL, NULL};
    uint32_t how, known = (uint32_t)any(1u << LF_REGISTERS) | 1u << LF_RSP | 1u << LF_RIP;
    int count = lu_unwind(space, registers, known, &stack, frames, (int)any(65), &how);
    if (count < 0 || count > 64)
        abort();
}

static uint64_t reads;

static int read_counted(void *of, uint64_t address, void *into, size_t bytes) {
    const uint64_t *words = of;
    size_t at = (address - STACK_BASE) / 8;
    reads++;
    if (address < STACK_BASE || address % 8 || bytes != 8 || at >= STACK_WORDS)
        return -1;
    memcpy(into, &words[at], 8);
    return 0;
}

/* A stack full of addresses in code that is made while it runs, some of them behind a CALL: each may be the caller of
 * each. What is looked at has an end all the same. */
static void costly_stack(void) {
    enum { CODE = 1 << 20, READS_MOST = 1 << 17 };
    static uint64_t words[STACK_WORDS];
    static lu_native_frame frames[1024];
    uint8_t *code = mmap(NULL, CODE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t registers[LF_REGISTERS], calls = 1 + any(5);
    if (code == MAP_FAILED)
        abort();
    memset(code, 0x90, CODE);
    for (size_t i = 0; i < CODE; i += 2)
        if (any(100) < calls)
            memcpy(code + i, "\xff\xd0", 2);
    for (size_t i = 0; i < STACK_WORDS; i++) {
        uint64_t inside = (uint64_t)(uintptr_t)code + 16 + 2 * any(CODE / 2 - 16);
        words[i] = any(20) ? inside : STACK_BASE + 8 * any(STACK_WORDS);
    }
    for (int i = 0; i < LF_REGISTERS; i++)
        registers[i] = STACK_BASE + 8 * any(2000);
    registers[LF_RSP] = STACK_BASE;
    registers[LF_RIP] = (uint64_t)(uintptr_t)code + 64;
    lu_space *space = lu_space_of(getpid());
    lu_stack_copy stack = {STACK_BASE, NULL, 0, read_counted, words, NULL};
    uint32_t how;
    reads = 0;
    lu_unwind(space, registers, (1u << LF_REGISTERS) - 1, &stack, frames, 1024, &how);
    if (reads > READS_MOST) {
        fprintf(stderr, "%llu words read\n", (unsigned long long)reads);
        abort();
    }
    lu_space_free(space);
    munmap(code, CODE);
}

int main(int argc, char **argv) {
    char path[4096];
    if (argc < 5)
        return 2;
    FILE *file = fopen(argv[1], "rb");
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    uint8_t *original = malloc(size), *copy = malloc(size);
    rewind(file);
    if (fread(original, 1, size, file) != size)
        return 2;
    fclose(file);
    state = strtoull(argv[4], NULL, 10) * 2654435761u + 88172645463325252u;
    lu_space *space = lu_space_of(getpid());
    snprintf(path, sizeof path, "%s/mutated", argv[2]);
    for (uint32_t i = 0; i < (uint32_t)atoi(argv[3]); i++) {
        one_file(path, original, size, copy, 1000 + i);
        one_expression();
        if (i % 4 == 0)
            one_stack(space);
        if (i % 256 == 0)
            costly_stack();
    }
    free(original);
    free(copy);
    lu_space_free(space);
    puts("done");
    return 0;
}
