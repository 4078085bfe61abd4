/* All objects that any process has mapped, each known once. */
#define _GNU_SOURCE
#include "objects.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u
#define OBJECTS_MOST (1u << 20)
#define FILES_LEFT 64 /* descriptors for whoever else is in this process */

static lu_object **objects;
static uint32_t object_count, object_room;

uint32_t lu_objects(void) { return object_count; }

lu_object *lu_object_numbered(uint32_t number) { return number < object_count ? objects[number] : NULL; }

const lu_object_facts *lu_object_of(uint32_t number) {
    return number < object_count ? &objects[number]->facts : NULL;
}

static uint64_t mtime_ns(const struct stat *s) {
    return (uint64_t)s->st_mtim.tv_sec * 1000000000u + (uint64_t)s->st_mtim.tv_nsec;
}

/* A known object; `first` is 0 for a file, whose path may differ. */
static lu_object *known(uint64_t device, uint64_t inode, uint64_t mtime, uint64_t first, const char *path) {
    for (uint32_t i = object_count; i-- > 0;) {
        lu_object *o = objects[i];
        if (o->facts.device == device && o->facts.inode == inode && o->facts.mtime_ns == mtime && o->first == first &&
            (mtime || !strcmp(o->facts.path, path)))
            return o;
    }
    return NULL;
}

static lu_object *add(uint64_t device, uint64_t inode, uint64_t mtime, uint64_t first, const char *path) {
    if (object_count == object_room) {
        uint32_t room = object_room ? 2 * object_room : 256;
        lu_object **grown = room > OBJECTS_MOST ? NULL : realloc(objects, room * sizeof *grown);
        if (!grown)
            return NULL;
        objects = grown;
        object_room = room;
    }
    lu_object *o = calloc(1, sizeof *o);
    char *copy = strdup(path);
    if (!o || !copy) {
        free(o);
        free(copy);
        return NULL;
    }
    o->facts = (lu_object_facts){.number = object_count, .path = copy, .device = device, .inode = inode,
                                 .mtime_ns = mtime};
    o->first = first;
    o->file = -1;
    objects[object_count++] = o;
    return o;
}

static bool too_many(int file) {
    struct rlimit limit;
    return !getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
           (rlim_t)file + FILES_LEFT >= limit.rlim_cur;
}

/* The file may have been replaced since it was mapped. Numbers of devices and files may differ although it was not
 * (overlay file systems), so then its first page, with headers and build id, is compared. */
static bool is_mapped_file(pid_t pid, const lu_maps_line *line, int file, const struct stat *s) {
    uint8_t ours[PAGE], theirs[PAGE];
    if (s->st_ino == line->inode && s->st_dev == line->device)
        return true;
    return line->base && !lu_read_file(file, 0, ours, PAGE) && !lu_read_process(pid, line->base, theirs, PAGE) &&
           !memcmp(ours, theirs, PAGE);
}

static bool may_open(const char *path) {
    return path[0] == '/' && (strncmp(path, "/dev/", 5) || !strncmp(path, "/dev/shm/", 9));
}

/* Opens the mapped file as the process sees it, which may have file systems of its own; -1: it is not there. */
static int open_mapped(pid_t pid, const lu_maps_line *line, struct stat *s) {
    char path[4352];
    int length = snprintf(path, sizeof path, "/proc/%d/root%s", pid, line->path);
    if (!may_open(line->path) || length >= (int)sizeof path)
        return -1;
    const char *ways[] = {path, line->path};
    for (int i = 0; i < 2; i++) {
        /* A device or a pipe is not even opened. */
        if (stat(ways[i], s) || !S_ISREG(s->st_mode))
            continue;
        int file = open(ways[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (file < 0)
            continue;
        if (!fstat(file, s) && S_ISREG(s->st_mode) && is_mapped_file(pid, line, file, s))
            return file;
        close(file);
    }
    return -1;
}

static lu_object *of_file(pid_t pid, int file, const struct stat *s, const char *path) {
    lu_object *o = known(s->st_dev, s->st_ino, mtime_ns(s), 0, path);
    if (o || !(o = add(s->st_dev, s->st_ino, mtime_ns(s), 0, path))) {
        close(file);
        return o;
    }
    bool leaves = too_many(file);
    lu_object_read(o, (lu_source){file, pid, 0, leaves});
    if (leaves || !o->load_count)
        close(file);
    else
        o->file = file;
    return o;
}

/* Of a file that is gone, that may not be read, or that never was one (vdso), the process has all that is needed. */
static lu_object *of_memory(pid_t pid, const lu_maps_line *line) {
    uint64_t page[PAGE / 8], hash = 1;
    if (!line->base || lu_read_process(pid, line->base, page, PAGE) || memcmp(page, ELFMAG, SELFMAG))
        return NULL;
    for (unsigned i = 0; i < PAGE / 8; i++)
        hash = (hash ^ page[i]) * 0x9e3779b97f4a7c15u | 1;
    lu_object *o = known(line->device, line->inode, 0, hash, line->path);
    if (!o && (o = add(line->device, line->inode, 0, hash, line->path)))
        lu_object_read(o, (lu_source){-1, pid, line->base, false});
    return o;
}

static bool is_gone(const char *path) {
    static const char mark[] = " (deleted)";
    size_t length = strlen(path), tail = sizeof mark - 1;
    return length > tail && !strcmp(path + length - tail, mark);
}

lu_object *lu_object_mapped(pid_t pid, const lu_maps_line *line) {
    struct stat s;
    if (line->path[0] != '/' && strcmp(line->path, "[vdso]"))
        return NULL;
    int file = open_mapped(pid, line, &s);
    if (file >= 0)
        return of_file(pid, file, &s, line->path);
    lu_object *o = of_memory(pid, line);
    if (o || !may_open(line->path) || is_gone(line->path))
        return o;
    /* It cannot be read: its path is all that is known. */
    o = known(line->device, line->inode, 0, 0, line->path);
    return o ? o : add(line->device, line->inode, 0, 0, line->path);
}
