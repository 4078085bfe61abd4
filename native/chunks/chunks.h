/* Writes raw files in the format of layerscope/rawfile/raw_file.py. Compiled into the library for programs in C and into
 * the sampler. */
#ifndef LAYERSCOPE_CHUNKS_H
#define LAYERSCOPE_CHUNKS_H

#include <limits.h>
#include <stdint.h>
#include <sys/uio.h>

#define LI_PARTS 2
typedef struct {
    uint16_t kind;
    uint32_t key, count;
    uint64_t first;
    struct iovec parts[LI_PARTS];
} li_chunk;

typedef struct {
    char path[PATH_MAX];
    uint32_t segment;
    uint64_t size_bytes, written_bytes; /* of this segment, of all */
} li_file;

int li_file_write(li_file *file, const li_chunk *chunk);
void li_file_rotate(li_file *file);
int li_file_allowed(uint64_t bytes);

#endif
