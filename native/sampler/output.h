/* The raw file. */
#ifndef LAYERSCOPE_SAMPLER_OUTPUT_H
#define LAYERSCOPE_SAMPLER_OUTPUT_H

#include "format.h"

#include <stddef.h>

int sm_output_open(const char *folder, uint64_t most_bytes);
void *sm_row(uint16_t kind, size_t bytes);                         /* NULL: no room now */
void *sm_text_row(uint16_t kind, size_t bytes, size_t rest_bytes); /* a row and what follows it */
void sm_problem(const char *code, int32_t pid, const char *lost, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void sm_settings(void);
void sm_tell_poll(uint64_t until_ns);
void sm_tell_quality(const lt_quality *quality);
/* `define` is called before, for rows that the others name. */
void sm_output_write(void (*define)(void));
void sm_output_close(void (*define)(void));
int sm_is_writing_due(void);
int sm_is_full(void);    /* too much waits for the disk: no more rows of definitions are taken */
int sm_may_define(void); /* the file may have more definitions */
/* Bytes of rows that are no definitions: written so far, those of samplers before us too, and how many it may be, 0: as
 * much as there is. */
uint64_t sm_rows_written(void);
uint64_t sm_rows_most(void);
uint64_t sm_rows_dropped(void); /* how many did not fit on the disk */

#endif
