/* ELF files: program headers, where their unwind information lies, build id. An object that is no good ELF file, or
 * cannot be read, has no unwind information and is known by its path alone. */
#define _GNU_SOURCE
#include "elf.h"
#include "expression.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define BLOCK 16384u
#define SECTION_MOST (1ull << 30)
#define MEMORY_MOST (64ull << 20) /* of a section that is copied out of a process */
#define HEADERS_MOST 512u
#define NOTES_MOST 65536u

int lu_read_process(pid_t pid, uint64_t address, void *into, size_t bytes) {
    struct iovec here = {into, bytes}, there = {(void *)(uintptr_t)address, bytes};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)bytes ? 0 : -1;
}

int lu_read_file(int file, uint64_t offset, void *into, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file, (char *)into + done, bytes - done, (off_t)((offset + done) & INT64_MAX));
        if (got <= 0)
            return -1;
        done += (size_t)got;
    }
    return 0;
}

/* Bytes of the object; `address` counts for a process, `offset` for a file. Memory begins with the first segment. */
static int read_source(const lu_object *object, lu_source source, uint64_t offset, uint64_t address, void *into,
                       size_t bytes) {
    if (source.file >= 0)
        return lu_read_file(source.file, offset, into, bytes);
    uint64_t first = object->load_count ? object->loads[0].address - object->loads[0].offset : 0;
    return lu_read_process(source.pid, source.base + address - first, into, bytes);
}

const uint8_t *lu_section_at(lu_section *section, size_t at, size_t bytes) {
    if (at > section->size || bytes > section->size - at)
        return NULL;
    if (!section->loaded || !bytes)
        return section->bytes + at;
    for (size_t block = at / BLOCK; block <= (at + bytes - 1) / BLOCK; block++) {
        if (section->loaded[block / 64] >> (block % 64) & 1)
            continue;
        section->loaded[block / 64] |= 1ull << (block % 64);
        size_t from = block * BLOCK, length = section->size - from < BLOCK ? section->size - from : BLOCK;
        if (lu_read_file(section->file, section->offset + from, section->bytes + from, length))
            memset(section->bytes + from, 0, length);
    }
    return section->bytes + at;
}

static void drop_section(lu_section *section) {
    if (section->bytes)
        munmap(section->bytes, section->size);
    free(section->loaded);
    memset(section, 0, sizeof *section);
}

/* The bytes from `address` on, of a process at once, of a file when they are asked for. */
static void open_section(lu_object *object, lu_source source, lu_section *section, uint64_t address, uint64_t size) {
    uint64_t offset;
    uint64_t most = source.file >= 0 ? SECTION_MOST : MEMORY_MOST;
    if (!size || !lu_object_offset(object, address, &offset))
        return;
    size = size < most ? size : most;
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED)
        return;
    *section = (lu_section){.address = address, .offset = offset, .bytes = bytes, .size = size, .file = source.file};
    if (source.file < 0 || source.leaves) {
        if (read_source(object, source, offset, address, bytes, size))
            drop_section(section);
        return;
    }
    section->loaded = calloc(size / BLOCK / 64 + 1, 8);
    if (!section->loaded)
        drop_section(section);
}

bool lu_object_address(const lu_object *object, uint64_t offset, uint64_t *address) {
    for (uint32_t i = 0; i < object->load_count; i++) {
        const lu_load *load = &object->loads[i];
        uint64_t page = load->offset & ~4095ull; /* a mapping begins at the page */
        if (!load->executable || offset < page || offset - page >= load->bytes + (load->offset - page))
            continue;
        *address = offset - load->offset + load->address;
        return true;
    }
    return false;
}

bool lu_object_offset(const lu_object *object, uint64_t address, uint64_t *offset) {
    for (uint32_t i = 0; i < object->load_count; i++) {
        const lu_load *load = &object->loads[i];
        if (address < load->address || address - load->address >= load->bytes)
            continue;
        *offset = address - load->address + load->offset;
        return true;
    }
    return false;
}

/* How many bytes of the segment lie from `address` on. */
static uint64_t rest_of_segment(const lu_object *object, uint64_t address) {
    for (uint32_t i = 0; i < object->load_count; i++) {
        const lu_load *load = &object->loads[i];
        if (address >= load->address && address - load->address < load->bytes)
            return load->bytes - (address - load->address);
    }
    return 0;
}

static void read_notes(lu_object *object, lu_source source, const Elf64_Phdr *header) {
    uint8_t notes[4096];
    uint64_t bytes = header->p_filesz < sizeof notes ? header->p_filesz : sizeof notes;
    if (!bytes || read_source(object, source, header->p_offset, header->p_vaddr, notes, bytes))
        return;
    for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes;) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof note);
        at += sizeof note;
        uint64_t name = (note.n_namesz + 3ull) & ~3ull, text = (note.n_descsz + 3ull) & ~3ull;
        if (name > bytes - at || text > bytes - at - name)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(notes + at, "GNU", 4) && note.n_descsz) {
            uint32_t most = sizeof object->facts.build_id;
            object->facts.build_id_bytes = note.n_descsz < most ? note.n_descsz : most;
            memcpy(object->facts.build_id, notes + at + name, object->facts.build_id_bytes);
            return;
        }
        at += name + text;
    }
}

/* A table that can be searched has pairs of 4 bytes, relative to itself and sorted; others are made anew. */
static void read_table(lu_object *object, lu_source source, const Elf64_Phdr *header) {
    enum { OMITTED = 0xff, PAIRS = 0x3b };
    uint64_t size = rest_of_segment(object, header->p_vaddr);
    open_section(object, source, &object->table, header->p_vaddr, header->p_filesz < size ? header->p_filesz : size);
    size_t first = object->table.size < 24 ? object->table.size : 24;
    const uint8_t *start = lu_section_at(&object->table, 0, first);
    if (!start || first < 8 || start[0] != 1)
        return;
    uint64_t here = header->p_vaddr + 4;
    lu_cursor cursor = {start + 4, start + first, false};
    uint64_t frames = lu_take_pointer(&cursor, start[1], here, header->p_vaddr);
    if (cursor.bad || start[1] == OMITTED)
        return;
    open_section(object, source, &object->frames, frames, rest_of_segment(object, frames));
    uint64_t count = start[2] == OMITTED ? 0 : lu_take_pointer(&cursor, start[2], 0, header->p_vaddr);
    uint64_t at = (uint64_t)(cursor.at - start);
    if (cursor.bad || start[3] != PAIRS || count > (object->table.size - at) / 8)
        return;
    object->table_at = (uint32_t)at;
    object->table_count = (uint32_t)count;
}

/* Where there is no table, .eh_frame is found by its name. */
static void find_frames(lu_object *object, lu_source source, const Elf64_Ehdr *elf) {
    Elf64_Shdr names, section;
    if (source.file < 0 || elf->e_shentsize != sizeof section || elf->e_shstrndx >= elf->e_shnum ||
        elf->e_shoff > SECTION_MOST * 1024 ||
        lu_read_file(source.file, elf->e_shoff + elf->e_shstrndx * sizeof section, &names, sizeof names))
        return;
    for (unsigned i = 0; i < elf->e_shnum; i++) {
        char name[10] = {0};
        if (lu_read_file(source.file, elf->e_shoff + i * sizeof section, &section, sizeof section) ||
            lu_read_file(source.file, names.sh_offset + section.sh_name, name, sizeof name) ||
            memcmp(name, ".eh_frame", sizeof name))
            continue;
        uint64_t most = rest_of_segment(object, section.sh_addr);
        open_section(object, source, &object->frames, section.sh_addr, section.sh_size < most ? section.sh_size : most);
        return;
    }
}

static bool good_header(const Elf64_Ehdr *elf) {
    return !memcmp(elf->e_ident, ELFMAG, SELFMAG) && elf->e_ident[EI_CLASS] == ELFCLASS64 &&
           elf->e_ident[EI_DATA] == ELFDATA2LSB && elf->e_machine == EM_X86_64 &&
           elf->e_phentsize == sizeof(Elf64_Phdr) && elf->e_phnum <= HEADERS_MOST;
}

static void keep_loads(lu_object *object, const Elf64_Phdr *headers, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *h = &headers[i];
        if (h->p_type != PT_LOAD || h->p_filesz > 1ull << 40 || h->p_offset > 1ull << 46 || h->p_vaddr > 1ull << 47)
            continue;
        object->loads[object->load_count++] = (lu_load){h->p_offset, h->p_vaddr, h->p_filesz, h->p_flags & PF_X};
    }
}

void lu_object_read(lu_object *object, lu_source source) {
    Elf64_Ehdr elf;
    if (read_source(object, source, 0, 0, &elf, sizeof elf) || !good_header(&elf))
        return;
    Elf64_Phdr *headers = calloc(elf.e_phnum + 1u, sizeof *headers);
    object->loads = calloc(elf.e_phnum + 1u, sizeof *object->loads);
    if (headers && object->loads &&
        !read_source(object, source, elf.e_phoff, elf.e_phoff, headers, elf.e_phnum * sizeof *headers)) {
        keep_loads(object, headers, elf.e_phnum);
        object->entry = elf.e_entry;
        for (unsigned i = 0; i < elf.e_phnum; i++) {
            if (headers[i].p_type == PT_NOTE && !object->facts.build_id_bytes && headers[i].p_filesz <= NOTES_MOST)
                read_notes(object, source, &headers[i]);
            if (headers[i].p_type == PT_GNU_EH_FRAME && !object->table.size)
                read_table(object, source, &headers[i]);
        }
        if (!object->frames.size)
            find_frames(object, source, &elf);
    }
    free(headers);
}
