/* What a recording of the program's own takes on disk, and what is held back of that. */
#define _GNU_SOURCE
#include "interface.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESERVE_BYTES (256u << 10)


static void reserve_of(const li_file *file, char into[PATH_MAX + 16]) {
    snprintf(into, PATH_MAX + 16, "%.*sreserve", (int)(strrchr(file->path, '/') + 1 - file->path), file->path);
}

/* Hold back some space, so that a full disk still takes the account of what was lost. */
void li_file_reserve(const li_file *file) {
    char path[PATH_MAX + 16];
    reserve_of(file, path);
    int fd = li_file_allowed(RESERVE_BYTES) ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return;
    if (posix_fallocate(fd, 0, RESERVE_BYTES))
        unlink(path);
    close(fd);
}

void li_file_release(const li_file *file) {
    char path[PATH_MAX + 16];
    reserve_of(file, path);
    unlink(path);
}

static uint64_t folder_bytes(const char *path) {
    uint64_t bytes = 0;
    DIR *folder = opendir(path);
    for (const struct dirent *one = folder ? readdir(folder) : NULL; one; one = readdir(folder)) {
        struct stat found;
        if (!fstatat(dirfd(folder), one->d_name, &found, AT_SYMLINK_NOFOLLOW) && S_ISREG(found.st_mode))
            bytes += (uint64_t)found.st_size;
    }
    if (folder)
        closedir(folder);
    return bytes;
}

/* What the raw files of all processes of a recording take. */
uint64_t li_raw_bytes(const char *raw) {
    uint64_t bytes = 0;
    DIR *folder = opendir(raw);
    for (const struct dirent *one = folder ? readdir(folder) : NULL; one; one = readdir(folder)) {
        char path[PATH_MAX + NAME_MAX + 2];
        snprintf(path, sizeof path, "%s/%s", raw, one->d_name);
        if (one->d_name[0] != '.')
            bytes += folder_bytes(path);
    }
    if (folder)
        closedir(folder);
    return bytes;
}
