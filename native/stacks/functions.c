/* Where a function of an ELF file lies, its cold and split pieces too. */
#define _GNU_SOURCE
#include "functions.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MOST (256ull << 20)
#define PIECES_MOST 4096u
/* CPython 3.14 can be built so that the interpreter jumps from one such function to the next. */
#define TAIL_CALLED "_TAIL_CALL_"
#define TAIL_CALLER "_PyEval_EvalFrameDefault"

static void *read_part(int file, uint64_t offset, uint64_t bytes) {
    if (!bytes || bytes > TABLE_MOST)
        return NULL;
    char *part = malloc(bytes + 1);
    if (part && lu_read_file(file, offset, part, bytes)) {
        free(part);
        return NULL;
    }
    if (part)
        part[bytes] = 0;
    return part;
}

static uint32_t gnu_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 + (uint8_t)*name;
    return hash;
}

static bool is_named(int file, const Elf64_Shdr *symbols, const Elf64_Shdr *strings, uint32_t index, const char *name) {
    Elf64_Sym symbol;
    char text[128];
    size_t bytes = strlen(name) + 1;
    return bytes <= sizeof text &&
           !lu_read_file(file, symbols->sh_offset + index * sizeof symbol, &symbol, sizeof symbol) &&
           !lu_read_file(file, strings->sh_offset + symbol.st_name, text, bytes) && !memcmp(text, name, bytes);
}

/* Whether the file exports the function, by its table of hashes: four reads instead of a table of many megabytes. */
static bool exports(int file, const Elf64_Shdr *hashes, const Elf64_Shdr *symbols, const Elf64_Shdr *strings,
                    const char *name) {
    struct {
        uint32_t buckets, first, words, shift;
    } head;
    uint32_t hash = gnu_hash(name), index, link;
    if (lu_read_file(file, hashes->sh_offset, &head, sizeof head) || !head.buckets)
        return false;
    uint64_t buckets = hashes->sh_offset + sizeof head + 8ull * head.words, chains = buckets + 4ull * head.buckets;
    if (lu_read_file(file, buckets + 4ull * (hash % head.buckets), &index, 4) || index < head.first)
        return false;
    for (int steps = 0; steps < 1 << 16; steps++, index++) {
        if (lu_read_file(file, chains + 4ull * (index - head.first), &link, 4))
            return false;
        if ((link | 1) == (hash | 1) && is_named(file, symbols, strings, index, name))
            return true;
        if (link & 1)
            return false;
    }
    return false;
}

static bool is_piece(const char *symbol, const char *name) {
    if (!strncmp(symbol, name, strlen(name)))
        return true;
    return !strcmp(name, TAIL_CALLER) && !strncmp(symbol, TAIL_CALLED, strlen(TAIL_CALLED));
}

static void keep_piece(lu_object *object, const Elf64_Sym *symbol) {
    if (object->range_count == PIECES_MOST)
        return;
    lu_range *grown = realloc(object->ranges, (object->range_count + 1) * sizeof *grown);
    if (!grown)
        return;
    object->ranges = grown;
    object->ranges[object->range_count++] = (lu_range){symbol->st_value, symbol->st_value + symbol->st_size};
}

static void collect(lu_object *object, const Elf64_Shdr *table, const Elf64_Shdr *strings, const char *name) {
    Elf64_Sym *symbols = read_part(object->file, table->sh_offset, table->sh_size);
    char *texts = read_part(object->file, strings->sh_offset, strings->sh_size);
    for (uint64_t i = 0; symbols && texts && i < table->sh_size / sizeof *symbols; i++)
        if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_name < strings->sh_size &&
            symbols[i].st_shndx != SHN_UNDEF && is_piece(texts + symbols[i].st_name, name))
            keep_piece(object, &symbols[i]);
    free(symbols);
    free(texts);
}

static void find_pieces(lu_object *object, const char *name) {
    Elf64_Ehdr elf;
    if (object->file < 0 || lu_read_file(object->file, 0, &elf, sizeof elf) || elf.e_shentsize != sizeof(Elf64_Shdr))
        return;
    Elf64_Shdr *sections = read_part(object->file, elf.e_shoff, elf.e_shnum * sizeof *sections);
    const Elf64_Shdr *all = NULL, *exported = NULL, *hashes = NULL;
    for (unsigned i = 0; sections && i < elf.e_shnum; i++) {
        if (sections[i].sh_link >= elf.e_shnum)
            continue;
        if (sections[i].sh_type == SHT_SYMTAB)
            all = &sections[i];
        if (sections[i].sh_type == SHT_DYNSYM)
            exported = &sections[i];
        if (sections[i].sh_type == SHT_GNU_HASH)
            hashes = &sections[i];
    }
    const Elf64_Shdr *from = all ? all : exported;
    if (from && (!hashes || !exported ||
                 exports(object->file, hashes, exported, &sections[exported->sh_link], name)))
        collect(object, from, &sections[from->sh_link], name);
    free(sections);
}

bool lu_object_in_function(lu_object *object, uint64_t address, const char *name) {
    if (!object->function || strcmp(object->function, name)) {
        free(object->function);
        free(object->ranges);
        object->ranges = NULL;
        object->range_count = 0;
        object->function = strdup(name);
        if (object->function)
            find_pieces(object, name);
    }
    for (uint32_t i = 0; i < object->range_count; i++)
        if (address >= object->ranges[i].start && address < object->ranges[i].end)
            return true;
    return false;
}
