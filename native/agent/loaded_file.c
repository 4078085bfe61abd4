/* What the tables of a loaded file say of it: where it lies, its relocations, its build-id. */
#define _GNU_SOURCE
#include "loaded_file.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    uint64_t inside;
    ls_look_at_file look;
    void *of;
} question;

/* The C library has made addresses of these; others leave them relative to the file. */
static uint64_t address_of(const ls_loaded_file *f, uint64_t value) { return value < f->base ? value + f->base : value; }

static uint64_t dynamic_value(const ls_loaded_file *f, int64_t tag) {
    for (const Elf64_Dyn *d = f->dynamic; d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag)
            return d->d_un.d_val;
    return 0;
}

static void describe(const struct dl_phdr_info *info, ls_loaded_file *f) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *f = (ls_loaded_file){.base = info->dlpi_addr, .start = UINT64_MAX};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *p = &info->dlpi_phdr[i];
        uint64_t from = f->base + p->p_vaddr, to = from + p->p_memsz;
        if (p->p_type == PT_LOAD) {
            f->start = from < f->start ? from : f->start;
            f->end = to > f->end ? to : f->end;
        } else if (p->p_type == PT_GNU_RELRO) {
            f->protected_start = from & ~(page - 1);
            f->protected_end = to & ~(page - 1);
        } else if (p->p_type == PT_DYNAMIC) {
            f->dynamic = (const Elf64_Dyn *)(uintptr_t)from;
        } else if (p->p_type == PT_NOTE && !f->notes) {
            f->notes = (const char *)(uintptr_t)from;
            f->notes_bytes = p->p_memsz;
        }
    }
}

int ls_is_one_file(const void *one, const void *other) {
    Dl_info of_one, of_other;
    return one && other && dladdr(one, &of_one) && dladdr(other, &of_other) && of_one.dli_fbase == of_other.dli_fbase;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *of) {
    const question *q = of;
    ls_loaded_file f;
    (void)size;
    describe(info, &f);
    if (q->inside < f.start || q->inside >= f.end)
        return 0;
    q->look(&f, q->of);
    return 1;
}

/* Look at the file that has the address `inside`; nothing is unloaded meanwhile. 0: no file has it. */
int ls_file_around(const void *inside, ls_look_at_file look, void *of) {
    question q = {(uint64_t)(uintptr_t)inside, look, of};
    return dl_iterate_phdr(look_at, &q);
}

static int look_at_each(struct dl_phdr_info *info, size_t size, void *of) {
    const question *q = of;
    ls_loaded_file f;
    (void)size;
    describe(info, &f);
    q->look(&f, q->of);
    return 0;
}

/* Look at all files that are loaded; nothing is unloaded meanwhile. */
void ls_each_file(ls_look_at_file look, void *of) {
    question q = {0, look, of};
    dl_iterate_phdr(look_at_each, &q);
}

static void relocations_of(const ls_loaded_file *f, int64_t table, int64_t bytes, ls_look_at_relocation look,
                           void *of) {
    const Elf64_Sym *symbols = (const Elf64_Sym *)(uintptr_t)address_of(f, dynamic_value(f, DT_SYMTAB));
    const char *names = (const char *)(uintptr_t)address_of(f, dynamic_value(f, DT_STRTAB));
    const Elf64_Rela *first = (const Elf64_Rela *)(uintptr_t)address_of(f, dynamic_value(f, table));
    for (size_t i = 0; i < dynamic_value(f, bytes) / sizeof *first; i++) {
        const Elf64_Sym *symbol = &symbols[ELF64_R_SYM(first[i].r_info)];
        if (symbol != symbols)
            look(f, &first[i], symbol, names + symbol->st_name, of);
    }
}

/* Look at all relocations of a file that have a symbol. */
void ls_relocations(const ls_loaded_file *f, ls_look_at_relocation look, void *of) {
    if (!f->dynamic || !dynamic_value(f, DT_SYMTAB) || !dynamic_value(f, DT_STRTAB))
        return;
    relocations_of(f, DT_JMPREL, DT_PLTRELSZ, look, of);
    relocations_of(f, DT_RELA, DT_RELASZ, look, of);
}

/* Write a word of the file, read-only or not. -1: the system refuses it. */
int ls_file_write(const ls_loaded_file *f, void **word, void *value) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uint64_t)(uintptr_t)word & ~(page - 1);
    int is_protected = at >= f->protected_start && at < f->protected_end;
    if (is_protected && mprotect((void *)(uintptr_t)at, page, PROT_READ | PROT_WRITE))
        return -1;
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    if (is_protected)
        mprotect((void *)(uintptr_t)at, page, PROT_READ);
    return 0;
}

/* The build-id of the file in hexadecimal digits; empty: it has none. */
void ls_build_id(const ls_loaded_file *f, char into[LS_BUILD_ID_BYTES]) {
    into[0] = 0;
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= f->notes_bytes;) {
        const Elf64_Nhdr *note = (const Elf64_Nhdr *)(f->notes + at);
        const char *name = f->notes + at + sizeof *note;
        const unsigned char *text = (const unsigned char *)name + ((note->n_namesz + 3u) & ~3u);
        int is_id = note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4);
        for (uint32_t i = 0; is_id && i < note->n_descsz && 2 * i + 3 <= LS_BUILD_ID_BYTES; i++)
            snprintf(into + 2 * i, 3, "%02x", text[i]);
        if (is_id)
            return;
        at += sizeof *note + ((note->n_namesz + 3u) & ~3u) + ((note->n_descsz + 3u) & ~3u);
    }
}
