/* What is executable in a process, by /proc/PID/maps. */
#define _GNU_SOURCE
#include "space.h"
#include "functions.h"
#include "objects.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define CALLS 16384u
#define TEXT_MOST (64u << 20)
#define ROOTS 1024u
#define CALLERS 512u
#define CALL_BYTES 7u /* of the longest CALL */

struct lu_space {
    pid_t pid;
    lu_mapping *mappings; /* sorted */
    uint32_t count, room, last; /* last: the one found last */
    uint64_t hash; /* of the text that they were made of */
    uint64_t roots[ROOTS];
    lu_caller callers[CALLERS];
};

/* The whole text, in memory that is used again; NULL: the process is gone. */
static char *read_maps(pid_t pid, size_t *length) {
    static char *text;
    static size_t room;
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return NULL;
    ssize_t got = 1;
    for (*length = 0; got > 0; *length += got > 0 ? (size_t)got : 0) {
        if (*length + 8192 > room) {
            size_t more = room ? 2 * room : 1u << 18;
            char *grown = more > TEXT_MOST ? NULL : realloc(text, more);
            if (!grown)
                break;
            text = grown;
            room = more;
        }
        got = read(file, text + *length, room - *length - 8);
    }
    close(file);
    if (!*length || got < 0)
        return NULL;
    memset(text + *length, 0, 8);
    return text;
}

static uint64_t hash_of(const char *text, size_t length) {
    uint64_t hash = length, word;
    for (size_t at = 0; at < length; at += 8) { /* zeroes follow */
        memcpy(&word, text + at, 8);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

static uint64_t hexadecimal(const char **at) {
    uint64_t value = 0;
    for (;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* A line break in a path is written as \012. */
static void unescape(char *path) {
    char *to = path;
    for (char *from = path; *from; to++) {
        bool escaped = !strncmp(from, "\\012", 4);
        *to = escaped ? '\n' : *from;
        from += escaped ? 4 : 1;
    }
    *to = 0;
}

/* Takes "start-end perms offset major:minor inode   path", and ends the path with a NUL. */
static char *parse_line(char *at, lu_maps_line *line) {
    const char *c = at;
    line->start = hexadecimal(&c);
    c += *c == '-';
    line->end = hexadecimal(&c);
    bool whole = strnlen(c, 7) == 7; /* never to the end of all the text */
    line->executable = whole && c[3] == 'x';
    c += whole ? 6 : 0;
    line->offset = hexadecimal(&c);
    c += *c == ' ';
    unsigned major = (unsigned)hexadecimal(&c);
    c += *c == ':';
    line->device = makedev(major, (unsigned)hexadecimal(&c));
    char *rest;
    line->inode = strtoull(c, &rest, 10);
    rest += strspn(rest, " ");
    char *end = strchrnul(rest, '\n');
    char *next = *end ? end + 1 : end;
    *end = 0;
    line->path = rest;
    if (line->executable && strchr(rest, '\\'))
        unescape(rest);
    return next;
}

static bool same(const lu_mapping *m, const lu_maps_line *line) {
    return m->start == line->start && m->end == line->end && m->offset == line->offset &&
           m->device == line->device && m->inode == line->inode;
}

static void keep(lu_space *space, const lu_maps_line *line, const lu_mapping *old, uint32_t olds) {
    if (space->count == space->room) {
        uint32_t room = space->room ? 2 * space->room : 64;
        lu_mapping *grown = realloc(space->mappings, room * sizeof *grown);
        if (!grown)
            return;
        space->mappings = grown;
        space->room = room;
    }
    lu_mapping *m = &space->mappings[space->count++];
    for (uint32_t i = 0; i < olds && old[i].start <= line->start; i++)
        if (line->path[0] && same(&old[i], line)) {
            *m = old[i];
            return;
        }
    *m = (lu_mapping){line->start, line->end, line->offset, line->device, line->inode, NULL, 0};
    m->object = lu_object_mapped(space->pid, line);
    uint64_t address = line->offset;
    if (m->object)
        lu_object_address(m->object, line->offset, &address);
    m->bias = line->start - address;
}

/* The mappings of the text, which it changes. What is mapped as before stays known. */
static void take_lines(lu_space *space, char *text) {
    lu_mapping *old = space->mappings;
    uint32_t olds = space->count, seen = 0;
    lu_maps_line line = {0}, first = {0};
    space->mappings = NULL;
    space->count = space->room = space->last = 0;
    while (*text) {
        text = parse_line(text, &line);
        if (!line.offset)
            first = line;
        line.base = first.inode == line.inode && first.device == line.device ? first.start : 0;
        if (!line.executable || line.end <= line.start)
            continue;
        while (seen < olds && old[seen].end <= line.start)
            seen++;
        keep(space, &line, old ? old + seen : NULL, olds - seen);
    }
    free(old);
}

int lu_space_refresh(lu_space *space) {
    size_t length;
    char *text = read_maps(space->pid, &length);
    if (!text)
        return -1;
    uint64_t hash = hash_of(text, length);
    if (hash != space->hash)
        take_lines(space, text);
    space->hash = hash;
    return 0;
}

lu_space *lu_space_told(const char *maps) {
    lu_space *space = calloc(1, sizeof *space);
    char *text = strdup(maps);
    if (space && text) {
        space->pid = -1; /* its memory cannot be read */
        take_lines(space, text);
    }
    free(text);
    return space;
}

lu_space *lu_space_of(pid_t pid) {
    lu_space *space = calloc(1, sizeof *space);
    if (!space)
        return NULL;
    space->pid = pid;
    if (!lu_space_refresh(space))
        return space;
    lu_space_free(space);
    return NULL;
}

void lu_space_free(lu_space *space) {
    if (space)
        free(space->mappings);
    free(space);
}

const lu_mapping *lu_space_mapping(const lu_space *space, uint64_t address) {
    if (space->last < space->count) {
        const lu_mapping *m = &space->mappings[space->last];
        if (address >= m->start && address < m->end)
            return m;
    }
    uint32_t low = 0, high = space->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (space->mappings[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low || address >= space->mappings[low - 1].end)
        return NULL;
    ((lu_space *)space)->last = low - 1;
    return &space->mappings[low - 1];
}

static uint64_t root_slot(uint64_t cfa) { return (cfa * 0x9e3779b97f4a7c15u) >> 32 & (ROOTS - 1); }

void lu_space_learn_root(lu_space *space, uint64_t cfa) { space->roots[root_slot(cfa)] = cfa; }

bool lu_space_is_root(const lu_space *space, uint64_t cfa) { return space->roots[root_slot(cfa)] == cfa; }

static uint32_t caller_slot(uint64_t address) {
    return (uint32_t)(address * 0x9e3779b97f4a7c15u >> 32) & (CALLERS - 1);
}

void lu_space_learn_caller(lu_space *space, lu_caller caller) { space->callers[caller_slot(caller.address)] = caller; }

const lu_caller *lu_space_known_caller(const lu_space *space, uint64_t address) {
    const lu_caller *known = &space->callers[caller_slot(address)];
    return known->address == address ? known : NULL;
}

lu_range lu_space_code(const lu_space *space) {
    if (!space->count)
        return (lu_range){0, 0};
    return (lu_range){space->mappings[0].start, space->mappings[space->count - 1].end};
}

lu_place lu_space_find(const lu_space *space, uint64_t address) {
    const lu_mapping *m = lu_space_mapping(space, address);
    if (!m)
        return (lu_place){LU_PLACE_NOWHERE, 0, address};
    if (!m->object)
        return (lu_place){LU_PLACE_JIT, 0, address};
    return (lu_place){LU_PLACE_FILE, m->object->facts.number, address - m->bias};
}

int lu_space_in_function(const lu_space *space, uint64_t address, const char *name) {
    const lu_mapping *m = lu_space_mapping(space, address);
    return m && m->object ? lu_object_in_function(m->object, address - m->bias, name) : 0;
}

uint64_t lu_space_symbol(const lu_space *space, const char *name) {
    for (uint32_t i = 0; i < space->count; i++) {
        const lu_mapping *m = &space->mappings[i];
        uint64_t found = m->object && (!i || m->object != m[-1].object) ? lu_object_symbol(m->object, name) : 0;
        if (found)
            return found + m->bias;
    }
    return 0;
}

/* What lies just before: opcode e8 with 4 bytes, or ff /2 with a register, or with memory in all its forms. */
static int call_in(const uint8_t *end, int32_t *by) {
    static const uint8_t lengths[] = {2, 3, 4, 6, 7};
    if (end[-5] == 0xe8) {
        memcpy(by, end - 4, 4);
        return LU_CALL_DIRECT;
    }
    for (unsigned i = 0; i < sizeof lengths; i++) {
        const uint8_t *code = end - lengths[i];
        if (code[0] != 0xff || (code[1] >> 3 & 7) != 2)
            continue;
        unsigned mode = code[1] >> 6, base = code[1] & 7, length = 2;
        if (mode != 3 && base == 4)
            length += 1 + (mode == 0 && (code[2] & 7) == 5 ? 4 : 0);
        if (mode == 1)
            length += 1;
        if (mode == 2 || (mode == 0 && base == 5))
            length += 4;
        if (length == lengths[i])
            return LU_CALL_INDIRECT;
    }
    return LU_NO_CALL;
}

bool lu_space_read_code(const lu_space *space, uint64_t address, uint8_t *into, size_t bytes) {
    const lu_mapping *m = lu_space_mapping(space, address);
    if (!m || m->end - address < bytes)
        return false;
    return (m->object && m->object->file >= 0 &&
            !lu_read_file(m->object->file, address - m->start + m->offset, into, bytes)) ||
           !lu_read_process(space->pid, address, into, bytes);
}

static int read_call(const lu_space *space, const lu_mapping *m, uint64_t address, int32_t *by) {
    uint8_t code[CALL_BYTES];
    if (address - m->start < CALL_BYTES || !lu_space_read_code(space, address - CALL_BYTES, code, CALL_BYTES))
        return LU_NO_CALL;
    return call_in(code + CALL_BYTES, by);
}

int lu_space_call_before(const lu_space *space, uint64_t address, uint64_t *target) {
    static struct {
        uint64_t address;
        uint32_t object; /* its number and one; 0: free */
        int32_t by;
        int kind;
    } calls[CALLS];
    int32_t by = 0;
    int kind;
    const lu_mapping *m = lu_space_mapping(space, address - 1);
    if (!m)
        return LU_NO_CALL;
    if (!m->object) {
        kind = read_call(space, m, address, &by); /* code that is made may be made anew */
    } else {
        uint64_t place = address - m->bias;
        uint64_t hash = (place ^ (uint64_t)m->object->facts.number << 40) * 0x9e3779b97f4a7c15u;
        uint32_t slot = (uint32_t)(hash >> 50) & (CALLS - 1);
        if (calls[slot].address != place || calls[slot].object != m->object->facts.number + 1) {
            calls[slot].kind = read_call(space, m, address, &calls[slot].by);
            calls[slot].address = place;
            calls[slot].object = m->object->facts.number + 1;
        }
        kind = calls[slot].kind;
        by = calls[slot].by;
    }
    *target = address + (uint64_t)(int64_t)by;
    return kind;
}
