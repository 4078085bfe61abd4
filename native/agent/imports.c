/* The functions that a loaded file imports: addresses in memory of its own, by which it calls those of other files. */
#define _GNU_SOURCE
#include "loaded_file.h"
#include "sampling.h"

#include <string.h>

typedef struct {
    const char *name;
    void *from, *to;
    int replaced;
} replacement;

/* One that was not called yet leads back into the file, which then looks it up. */
static int is_as_expected(const ls_loaded_file *f, const replacement *r, const void *now) {
    uint64_t at = (uint64_t)(uintptr_t)now;
    return now == r->from || (at >= f->start && at < f->end);
}

static void replace(const ls_loaded_file *f, const Elf64_Rela *relocation, const Elf64_Sym *symbol, const char *name,
                    void *of) {
    replacement *r = of;
    (void)symbol;
    uint64_t type = ELF64_R_TYPE(relocation->r_info);
    if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) || strcmp(name, r->name))
        return;
    void **word = (void **)(uintptr_t)(f->base + relocation->r_offset);
    if (is_as_expected(f, r, *word) && !ls_file_write(f, word, r->to))
        r->replaced++;
}

static void look(const ls_loaded_file *f, void *of) { ls_relocations(f, replace, of); }

/* Let the file that has the address `inside` call `to` where it calls the function `name` of another file, if that is
 * `from` or not known yet. How many addresses were replaced. */
int ls_import_replace(const void *inside, const char *name, void *from, void *to) {
    replacement r = {name, from, to, 0};
    ls_file_around(inside, look, &r);
    return r.replaced;
}
