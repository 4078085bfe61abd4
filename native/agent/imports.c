/* The functions that a loaded file imports: addresses in memory of its own, by which it calls those of other files. */
#define _GNU_SOURCE
#include "sampling.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    uint64_t inside; /* an address of the file */
    const char *name;
    void *from, *to;
    int replaced;
} replacement;

typedef struct {
    uint64_t base, start, end;                  /* where it is loaded */
    uint64_t protected_start, protected_end;    /* read-only since it was loaded (RELRO) */
    const Elf64_Dyn *dynamic;
} loaded_file;

/* The C library has made addresses of these; others leave them relative to the file. */
static uint64_t address_of(const loaded_file *f, uint64_t value) { return value < f->base ? value + f->base : value; }

static uint64_t dynamic_value(const loaded_file *f, int64_t tag) {
    for (const Elf64_Dyn *d = f->dynamic; d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag)
            return d->d_un.d_val;
    return 0;
}

static int write_word(const loaded_file *f, void **slot, void *value) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uint64_t)(uintptr_t)slot & ~(page - 1);
    int is_protected = at >= f->protected_start && at < f->protected_end;
    if (is_protected && mprotect((void *)(uintptr_t)at, page, PROT_READ | PROT_WRITE))
        return -1;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    if (is_protected)
        mprotect((void *)(uintptr_t)at, page, PROT_READ);
    return 0;
}

/* One that was not called yet leads back into the file, which then looks it up. */
static int is_as_expected(const loaded_file *f, const replacement *r, const void *now) {
    uint64_t at = (uint64_t)(uintptr_t)now;
    return now == r->from || (at >= f->start && at < f->end);
}

static void replace_in(const loaded_file *f, replacement *r, uint64_t relocations, uint64_t bytes) {
    const Elf64_Sym *symbols = (const Elf64_Sym *)(uintptr_t)address_of(f, dynamic_value(f, DT_SYMTAB));
    const char *names = (const char *)(uintptr_t)address_of(f, dynamic_value(f, DT_STRTAB));
    const Elf64_Rela *first = (const Elf64_Rela *)(uintptr_t)address_of(f, relocations);
    for (size_t i = 0; i < bytes / sizeof *first; i++) {
        uint64_t type = ELF64_R_TYPE(first[i].r_info), symbol = ELF64_R_SYM(first[i].r_info);
        if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT)
            || strcmp(names + symbols[symbol].st_name, r->name))
            continue;
        void **slot = (void **)(uintptr_t)(f->base + first[i].r_offset);
        if (is_as_expected(f, r, *slot) && !write_word(f, slot, r->to))
            r->replaced++;
    }
}

static void describe(const struct dl_phdr_info *info, loaded_file *f) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *f = (loaded_file){.base = info->dlpi_addr, .start = UINT64_MAX};
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *p = &info->dlpi_phdr[i];
        uint64_t from = f->base + p->p_vaddr, to = from + p->p_memsz;
        if (p->p_type == PT_LOAD) {
            f->start = from < f->start ? from : f->start;
            f->end = to > f->end ? to : f->end;
        } else if (p->p_type == PT_GNU_RELRO) {
            f->protected_start = from & ~(page - 1);
            f->protected_end = to & ~(page - 1);
        } else if (p->p_type == PT_DYNAMIC)
            f->dynamic = (const Elf64_Dyn *)(uintptr_t)from;
    }
}

static int look(struct dl_phdr_info *info, size_t size, void *of) {
    replacement *r = of;
    loaded_file f;
    (void)size;
    describe(info, &f);
    if (r->inside < f.start || r->inside >= f.end)
        return 0;
    if (f.dynamic && dynamic_value(&f, DT_SYMTAB) && dynamic_value(&f, DT_STRTAB)) {
        replace_in(&f, r, dynamic_value(&f, DT_JMPREL), dynamic_value(&f, DT_PLTRELSZ));
        replace_in(&f, r, dynamic_value(&f, DT_RELA), dynamic_value(&f, DT_RELASZ));
    }
    return 1;
}

/* Let the file that has the address `inside` call `to` where it calls the function `name` of another file, if that is
 * `from` or not known yet. How many addresses were replaced. */
int ls_import_replace(const void *inside, const char *name, void *from, void *to) {
    replacement r = {(uint64_t)(uintptr_t)inside, name, from, to, 0};
    dl_iterate_phdr(look, &r);
    return r.replaced;
}
