/* The door into a program in C or C++ that uses MXNet, and its calls of MXNet's profiler. */
#ifndef LAYERSCOPE_MXNET_PROGRAM_H
#define LAYERSCOPE_MXNET_PROGRAM_H

#include "../frameworks.h"

#include <stdint.h>

/* program.c */
void ls_mxnet_program_find(char *path);
void ls_mxnet_program_begins(const ls_framework_request *request);

/* profiler_calls.c */
void ls_mxnet_profiler_calls(void *library);

/* profiler_objects.c: what the program has made by MXNet's profiler. `what` is LF_TASK, LF_FRAME, LF_EVENT or one of
 * these. */
enum { LS_MXNET_DOMAIN = -1, LS_MXNET_COUNTER = -2 };
void ls_mxnet_object_made(const void *object, int what, const void *domain, const char *name);
void ls_mxnet_object_gone(const void *object);
void ls_mxnet_object_starts(const void *object);
void ls_mxnet_object_stops(const void *object);
void ls_mxnet_object_counts(const void *object, int is_change, int64_t value);
void ls_mxnet_object_marks(const void *domain, const char *name);

#endif
