/* Calls of a library's own functions, which reach them by words in its memory: imports, which the dynamic linker fills
 * in, and vtables. All words are found and looked at before the first is written, so it is done whole or not at all.
 *
 * The other words that hold the address of a function, which code compares with it, stay as they are: a compiler may
 * have put a copy of the function where they agree. */
#define _GNU_SOURCE
#include "redirection.h"

#include "loaded_file.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static int refuse(ls_redirections *r, const char *why, const char *which) {
    r->why_not = why;
    r->which = which;
    return -1;
}

static int find_originals(ls_redirections *r, void *library) {
    for (uint32_t i = 0; i < r->count; i++) {
        const ls_redirection *one = &r->wanted[i];
        *one->original = dlsym(library, one->name);
        if (!*one->original)
            return refuse(r, "it has no function", one->name);
        void *first = dlsym(RTLD_DEFAULT, one->name); /* NULL: the library is not seen from elsewhere */
        if (first && first != *one->original)
            return refuse(r, "another library has taken the place of", one->name);
    }
    return 0;
}

static void note_word(const ls_loaded_file *f, const Elf64_Rela *relocation, const Elf64_Sym *symbol, const char *name,
                      void *of) {
    ls_redirections *r = of;
    (void)name;
    uint64_t type = ELF64_R_TYPE(relocation->r_info);
    int is_import = type == R_X86_64_JUMP_SLOT, is_pointer = type == R_X86_64_64 && !relocation->r_addend;
    if (!symbol->st_shndx || !(is_import || is_pointer))
        return;
    void *function = (void *)(uintptr_t)(f->base + symbol->st_value);
    uint32_t i = 0;
    while (i < r->count && *r->wanted[i].original != function)
        i++;
    if (i == r->count)
        return;
    void **word = (void **)(uintptr_t)(f->base + relocation->r_offset);
    uint64_t now = (uint64_t)(uintptr_t)*word;
    /* An import that was not called yet leads back into the file, which then looks it up. */
    if (*word != function && !(is_import && now >= f->start && now < f->end))
        refuse(r, "somebody else listens to", r->wanted[i].name);
    else if (r->used == LS_MOST_REDIRECTED)
        refuse(r, "too many places call", r->wanted[i].name);
    else
        r->words[r->used++] = (ls_redirected){word, *word, r->wanted[i].ours};
}

static int is_called(const ls_redirections *r, const ls_redirection *one) {
    for (uint32_t i = 0; i < r->used; i++)
        if (r->words[i].ours == one->ours)
            return 1;
    return 0;
}

static void put_back(const ls_loaded_file *f, ls_redirections *r) {
    uint32_t left = 0;
    for (uint32_t i = 0; i < r->used; i++) {
        ls_redirected one = r->words[i];
        if (*one.word == one.ours)
            ls_file_write(f, one.word, one.before);
        else /* whoever came after us stays, and may call us */
            r->words[left++] = one;
    }
    r->used = left;
}

/* All words that were found, or none. */
static void write_all(const ls_loaded_file *f, ls_redirections *r) {
    for (uint32_t i = 0; i < r->count && !r->why_not; i++)
        if (!is_called(r, &r->wanted[i]))
            refuse(r, "nothing in it calls", r->wanted[i].name);
    uint32_t found = r->used;
    for (r->used = 0; r->used < found && !r->why_not; r->used++) {
        const ls_redirected *one = &r->words[r->used];
        if (ls_file_write(f, one->word, one->ours)) {
            refuse(r, "the system keeps its memory read-only, with the address of", "its functions");
            put_back(f, r);
            return;
        }
    }
}

static void redirect(const ls_loaded_file *f, void *of) {
    ls_redirections *r = of;
    r->inside = *r->wanted[0].original;
    ls_relocations(f, note_word, r);
    write_all(f, r);
}

/* Let the loaded `library` call ours where it calls the functions that are wanted, all of which it has itself. 0: done;
 * -1: nothing is changed, and it says why. */
int ls_redirect(ls_redirections *r, void *library) {
    r->used = 0;
    r->why_not = r->which = NULL;
    if (find_originals(r, library))
        return -1;
    if (!ls_file_around(*r->wanted[0].original, redirect, r))
        return refuse(r, "it is not loaded as a file with", r->wanted[0].name);
    return r->why_not ? -1 : 0;
}

/* The function of another library that the word leads to; one that was not called yet leads back into the file. */
static void *imported(const ls_loaded_file *f, void *now, const ls_redirections *r, uint32_t which) {
    uint64_t at = (uint64_t)(uintptr_t)now;
    return at >= f->start && at < f->end ? r->found[which] : now;
}

static void note_import(const ls_loaded_file *f, const Elf64_Rela *relocation, const Elf64_Sym *symbol,
                        const char *name, void *of) {
    ls_redirections *r = of;
    uint64_t type = ELF64_R_TYPE(relocation->r_info);
    if (symbol->st_shndx || (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT))
        return;
    uint32_t i = 0;
    while (i < r->count && strcmp(r->wanted[i].name, name))
        i++;
    if (i == r->count)
        return;
    void **word = (void **)(uintptr_t)(f->base + relocation->r_offset);
    void *before = *word, *original = imported(f, before, r, i);
    if (before == r->wanted[i].ours) /* of an earlier start: somebody who came after us put it back */
        original = *r->wanted[i].original;
    /* Threads may be in our function from before: what it calls stays what it was. */
    if (!original || (*r->wanted[i].original && *r->wanted[i].original != original))
        refuse(r, "two functions are called by the name", r->wanted[i].name);
    else if (r->used == LS_MOST_REDIRECTED)
        refuse(r, "too many places call", r->wanted[i].name);
    else
        r->words[r->used++] = (ls_redirected){word, original, r->wanted[i].ours};
    if (original && !*r->wanted[i].original)
        *r->wanted[i].original = original;
}

static void redirect_imports(const ls_loaded_file *f, void *of) {
    ls_redirections *r = of;
    r->inside = (const void *)(uintptr_t)f->start;
    ls_relocations(f, note_import, r);
    write_all(f, r);
}

int ls_redirect_imports(ls_redirections *r, const void *inside) {
    r->used = 0;
    r->why_not = r->which = NULL;
    /* Here: where the files are gone through, the linker's lock is held, and another thread that loads a library would
     * wait for us while we wait for it. */
    for (uint32_t i = 0; i < r->count && i < LS_MOST_IMPORTS; i++)
        r->found[i] = dlsym(RTLD_DEFAULT, r->wanted[i].name);
    if (!ls_file_around(inside, redirect_imports, r))
        return refuse(r, "it is not loaded as a file with", r->wanted[0].name);
    return r->why_not ? -1 : 0;
}

static void restore(const ls_loaded_file *f, void *of) { put_back(f, of); }

/* As it was before. */
void ls_redirect_back(ls_redirections *r) {
    if (r->used)
        ls_file_around(r->inside, restore, r);
}
