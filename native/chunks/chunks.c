/* Raw files: chunks that are written by append, each by one call. The format is that of layerscope/rawfile/raw_file.py,
 * without compression. The file is opened for each writing: in the program no descriptor is kept, which it might close,
 * or take for one of its own. */
#define _GNU_SOURCE
#include "chunks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAGIC 0x4b43534cu /* "LSCK" */

typedef struct __attribute__((packed)) {
    uint32_t magic;
    uint16_t kind, flags;
    uint32_t key, count;
    uint64_t first;
    uint32_t length, checksum, own_checksum;
} chunk_header;
_Static_assert(sizeof(chunk_header) == 36, "chunk header");

/* --- CRC-32 as zlib has it, eight bytes at a time --- */

static uint32_t table[8][256];

static void fill_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
        table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 0xff];
}

static uint32_t crc(uint32_t c, const void *data, size_t bytes) {
    const unsigned char *at = data;
    c = ~c;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= c;
        c = table[7][word & 0xff] ^ table[6][word >> 8 & 0xff] ^ table[5][word >> 16 & 0xff]
          ^ table[4][word >> 24 & 0xff] ^ table[3][word >> 32 & 0xff] ^ table[2][word >> 40 & 0xff]
          ^ table[1][word >> 48 & 0xff] ^ table[0][word >> 56];
    }
    for (; bytes; bytes--, at++)
        c = c >> 8 ^ table[0][(c ^ *at) & 0xff];
    return ~c;
}

/* --- Writing --- */

/* More than a limit of file sizes allows would end the program (SIGXFSZ). */
int li_file_allowed(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur;
}

/* Go on in a new segment. */
void li_file_rotate(li_file *file) {
    file->segment++;
    file->size_bytes = 0;
}

static int append(li_file *file, struct iovec *parts, int count, size_t bytes) {
    char path[PATH_MAX + 16];
    if (file->segment)
        snprintf(path, sizeof path, "%s-%05u", file->path, file->segment);
    else
        snprintf(path, sizeof path, "%s", file->path);
    if (!li_file_allowed(file->size_bytes + bytes))
        return -EFBIG;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    ssize_t written = writev(fd, parts, count);
    int error = written < 0 ? errno : (size_t)written < bytes ? ENOSPC : 0;
    if (error && ftruncate(fd, (off_t)file->size_bytes))
        li_file_rotate(file); /* a torn chunk stays: go on behind it, in another segment */
    close(fd);
    return -error;
}

/* Append a chunk. 0, or minus an errno; then the file is what it was. */
int li_file_write(li_file *file, const li_chunk *chunk) {
    if (!table[0][1])
        fill_table();
    chunk_header h = {MAGIC, chunk->kind, 0, chunk->key, chunk->count, chunk->first, 0, 0, 0};
    struct iovec parts[1 + LI_PARTS] = {{&h, sizeof h}};
    int count = 1;
    for (int i = 0; i < LI_PARTS && chunk->parts[i].iov_len; i++) {
        parts[count++] = chunk->parts[i];
        h.length += (uint32_t)chunk->parts[i].iov_len;
        h.checksum = crc(h.checksum, chunk->parts[i].iov_base, chunk->parts[i].iov_len);
    }
    h.own_checksum = crc(0, &h, sizeof h - sizeof h.own_checksum);
    int failed = append(file, parts, count, sizeof h + h.length);
    if (failed == -EFBIG && file->size_bytes) { /* as large as a file may be here: another one */
        li_file_rotate(file);
        failed = append(file, parts, count, sizeof h + h.length);
    }
    if (failed)
        return failed;
    file->size_bytes += sizeof h + h.length;
    file->written_bytes += sizeof h + h.length;
    return 0;
}
