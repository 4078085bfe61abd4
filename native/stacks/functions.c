/* Where a function of an ELF file lies, its cold and split pieces too. */
#define _GNU_SOURCE
#include "functions.h"
#include "cfi.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MOST (256ull << 20)
#define PIECES_MOST 4096u
/* CPython 3.14 can be built so that the interpreter calls the first of such functions, and each jumps to the next. */
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

static bool is_named(int file, const Elf64_Shdr *symbols, const Elf64_Shdr *strings, uint32_t index, const char *name,
                     Elf64_Sym *symbol) {
    char text[128];
    size_t bytes = strlen(name) + 1;
    return bytes <= sizeof text &&
           !lu_read_file(file, symbols->sh_offset + index * sizeof *symbol, symbol, sizeof *symbol) &&
           !lu_read_file(file, strings->sh_offset + symbol->st_name, text, bytes) && !memcmp(text, name, bytes);
}

/* Whether the file exports the symbol, by its table of hashes: four reads instead of a table of many megabytes. */
static bool exports(int file, const Elf64_Shdr *hashes, const Elf64_Shdr *symbols, const Elf64_Shdr *strings,
                    const char *name, Elf64_Sym *symbol) {
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
        if ((link | 1) == (hash | 1) && is_named(file, symbols, strings, index, name, symbol))
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

static void keep_piece(lu_object *object, lu_piece piece) {
    if (object->range_count == PIECES_MOST)
        return;
    lu_piece *grown = realloc(object->ranges, (object->range_count + 1) * sizeof *grown);
    if (!grown)
        return;
    object->ranges = grown;
    object->ranges[object->range_count++] = piece;
}

static void collect(lu_object *object, const Elf64_Shdr *table, const Elf64_Shdr *strings, const char *name) {
    Elf64_Sym *symbols = read_part(object->file, table->sh_offset, table->sh_size);
    char *texts = read_part(object->file, strings->sh_offset, strings->sh_size);
    for (uint64_t i = 0; symbols && texts && i < table->sh_size / sizeof *symbols; i++)
        if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_name < strings->sh_size &&
            symbols[i].st_shndx != SHN_UNDEF && is_piece(texts + symbols[i].st_name, name))
            keep_piece(object, (lu_piece){symbols[i].st_value, symbols[i].st_value + symbols[i].st_size,
                                          !strncmp(texts + symbols[i].st_name, TAIL_CALLED, strlen(TAIL_CALLED))});
    free(symbols);
    free(texts);
}

/* --- Pieces without a name --- */

static const lu_piece *kept(const lu_object *object, uint64_t address) {
    for (uint32_t i = 0; i < object->range_count; i++)
        if (address >= object->ranges[i].start && address < object->ranges[i].end)
            return &object->ranges[i];
    return NULL;
}

/* Where the jump at `code` leads, with 4 bytes: opcode e9, or 0f 8x with a condition; 0: it is none. */
static uint64_t jump_to(const uint8_t *code, size_t left, uint64_t address) {
    size_t opcode = left && code[0] == 0xe9 ? 1 : left > 1 && code[0] == 0x0f && code[1] >> 4 == 8 ? 2 : 0;
    int32_t by;
    if (!opcode || left < opcode + sizeof by)
        return 0;
    memcpy(&by, code + opcode, sizeof by);
    return address + opcode + sizeof by + (uint64_t)(int64_t)by;
}

/* Where a function begins, its frame has nothing but the address to return to. What begins otherwise is a piece. */
static void keep_if_piece(lu_object *object, uint64_t address) {
    const lu_row *row = kept(object, address) ? NULL : lu_row_at(object, address);
    lu_piece piece = row ? (lu_piece){row->start, row->end, false} : (lu_piece){0};
    row = row ? lu_row_at(object, piece.start) : NULL;
    if (row && (row->cfa.kind != LU_REGISTER || row->cfa.of != LF_RSP || row->cfa.value != 8))
        keep_piece(object, piece);
}

/* Compilers put what they take to be seldom used elsewhere. In a file without a table of all symbols that has no name:
 * it is where the function jumps to. */
static void collect_unnamed(lu_object *object) {
    for (uint32_t i = 0, named = object->range_count; i < named; i++) {
        uint64_t offset, start = object->ranges[i].start, bytes = object->ranges[i].end - start;
        uint8_t *code = lu_object_offset(object, start, &offset) ? read_part(object->file, offset, bytes) : NULL;
        for (uint64_t at = 0; code && at < bytes; at++) {
            uint64_t to = jump_to(code + at, bytes - at, start + at);
            if (to)
                keep_if_piece(object, to);
        }
        free(code);
    }
}

/* --- Tables of symbols --- */

/* The tables of symbols of a file; NULL: it has none. */
typedef struct {
    Elf64_Shdr *sections;
    const Elf64_Shdr *all, *exported, *hashes;
} tables;

static tables tables_of(const lu_object *object) {
    Elf64_Ehdr elf;
    tables found = {0};
    if (object->file < 0 || lu_read_file(object->file, 0, &elf, sizeof elf) || elf.e_shentsize != sizeof(Elf64_Shdr))
        return found;
    found.sections = read_part(object->file, elf.e_shoff, elf.e_shnum * sizeof *found.sections);
    for (unsigned i = 0; found.sections && i < elf.e_shnum; i++) {
        const Elf64_Shdr *section = &found.sections[i];
        if (section->sh_link >= elf.e_shnum)
            continue;
        if (section->sh_type == SHT_SYMTAB)
            found.all = section;
        if (section->sh_type == SHT_DYNSYM)
            found.exported = section;
        if (section->sh_type == SHT_GNU_HASH)
            found.hashes = section;
    }
    return found;
}

static void find_pieces(lu_object *object, const char *name) {
    Elf64_Sym symbol;
    tables of = tables_of(object);
    const Elf64_Shdr *from = of.all ? of.all : of.exported;
    if (from && (!of.hashes || !of.exported ||
                 exports(object->file, of.hashes, of.exported, &of.sections[of.exported->sh_link], name, &symbol)))
        collect(object, from, &of.sections[from->sh_link], name);
    if (!of.all)
        collect_unnamed(object);
    free(of.sections);
}

uint64_t lu_object_symbol(const lu_object *object, const char *name) {
    Elf64_Sym symbol = {0};
    tables of = tables_of(object);
    int is_there = of.hashes && of.exported && exports(object->file, of.hashes, of.exported,
                                                       &of.sections[of.exported->sh_link], name, &symbol);
    free(of.sections);
    return is_there && symbol.st_shndx != SHN_UNDEF ? symbol.st_value : 0;
}

int lu_object_in_function(lu_object *object, uint64_t address, const char *name) {
    if (!object->function || strcmp(object->function, name)) {
        free(object->function);
        free(object->ranges);
        object->ranges = NULL;
        object->range_count = 0;
        object->function = strdup(name);
        if (object->function)
            find_pieces(object, name);
    }
    const lu_piece *piece = kept(object, address);
    return !piece ? 0 : piece->is_jumped_to ? LU_JUMPED_TO : LU_IN_FUNCTION;
}
