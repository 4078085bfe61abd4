/* Code that a library makes while the program runs has its name said to whoever collects for VTune, the library that
 * INTEL_JIT_PROFILER64 names: oneDNN does so by itself, LLVM and others where they are asked to. The interface is that
 * of jitprofiling.h (https://github.com/intel/ittapi): Initialize says whether anybody listens, NotifyEvent brings
 * what happens. A name goes into the area of samples, in order with them. */
#define _GNU_SOURCE
#include "sampling.h"

#include <string.h>

enum { NOTHING_RUNNING = 0, SAMPLING_ON = 1 };                    /* iJIT_IsProfilingActiveFlags */
enum { LOADED = 13, LOADED_V2 = 21, LOADED_V3 = 22 };              /* iJIT_JVM_EVENT */

/* What iJIT_Method_Load and its later versions begin with. */
typedef struct {
    unsigned id;
    const char *name;
    void *address;
    unsigned bytes;
} method_load;

LS_EXPORT int ls_door_open(void);
LS_EXPORT int Initialize(void);
LS_EXPORT int NotifyEvent(int event, const void *about);

/* Somebody who makes code asks whether it is to say so: once in a process. */
int Initialize(void) {
    return !ls_door_open() && ls_sampling_area() ? SAMPLING_ON : NOTHING_RUNNING;
}

static void keep(const method_load *made) {
    lf_samples_header *area = ls_sampling_area();
    size_t length = strnlen(made->name, LS_TEXT_MOST), bytes = (sizeof(lf_sample_made) + length + 15) & ~(size_t)15;
    uint64_t position;
    lf_sample_made *record = area ? (lf_sample_made *)ls_samples_reserve(area, bytes, &position) : NULL;
    if (!record) /* no room: the code has no name */
        return;
    record->address = (uint64_t)(uintptr_t)made->address;
    record->code_bytes = made->bytes;
    record->name_bytes = (uint32_t)length;
    record->pad = 0;
    memcpy(record + 1, made->name, length);
    ls_samples_commit(&record->head, bytes, LF_SAMPLE_MADE, 0, position);
}

/* 1: it was understood. */
int NotifyEvent(int event, const void *about) {
    const method_load *made = about;
    if ((event != LOADED && event != LOADED_V2 && event != LOADED_V3) || !made || !made->name || !made->bytes)
        return 0;
    keep(made);
    return 1;
}
