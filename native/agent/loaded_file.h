/* A file of code that is loaded into this process, and the words in it by which it finds functions. */
#ifndef LAYERSCOPE_LOADED_FILE_H
#define LAYERSCOPE_LOADED_FILE_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t base, start, end;               /* where it is loaded */
    uint64_t protected_start, protected_end; /* read-only since it was loaded (RELRO) */
    const Elf64_Dyn *dynamic;
    const char *notes; /* and how many bytes */
    size_t notes_bytes;
} ls_loaded_file;

typedef void (*ls_look_at_file)(const ls_loaded_file *file, void *of);

/* Called with each relocation that has a symbol. */
typedef void (*ls_look_at_relocation)(const ls_loaded_file *file, const Elf64_Rela *relocation,
                                      const Elf64_Sym *symbol, const char *name, void *of);

/* Whether two functions are of one file, such as those of one allocator. */
int ls_is_one_file(const void *one, const void *other);
int ls_file_around(const void *inside, ls_look_at_file look, void *of);
void ls_each_file(ls_look_at_file look, void *of);
void ls_relocations(const ls_loaded_file *file, ls_look_at_relocation look, void *of);
int ls_file_write(const ls_loaded_file *file, void **word, void *value);

#define LS_BUILD_ID_BYTES 65u
void ls_build_id(const ls_loaded_file *file, char into[LS_BUILD_ID_BYTES]);

#endif
