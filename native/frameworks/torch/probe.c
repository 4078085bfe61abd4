/* For the throw-away Python of the probe: keeps the bytes of the last backward RecordFunctions, so that
 * the forward thread can be found by value. Never called in a program that is profiled. */
#define _GNU_SOURCE
#include "torch.h"

#include "record_function.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define KEPT 64u
#define BYTES 512u

static unsigned char kept[KEPT][BYTES];
static uint32_t count;

static void **on_start(void **result, const void *f) {
    (void)f;
    *result = NULL;
    return result;
}

static void on_end(const void *f, void *context) {
    (void)context;
    memcpy(kept[count++ % KEPT], f, BYTES);
}

/* Start keeping. 0: done. */
LS_EXPORT int ls_probe_keep(const char *library) {
    void *torch = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    uint64_t (*add)(callback) = NULL;
    if (torch)
        *(void **)&add = dlsym(torch, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    if (!add)
        return -1;
    callback c = {.start = on_start, .end = on_end, .sampling_probability = 1.0};
    c.scopes[1] = true;
    add(c);
    return 0;
}

/* Number of objects kept so far, and the bytes of the newest. */
LS_EXPORT uint32_t ls_probe_kept(unsigned char *into) {
    if (count)
        memcpy(into, kept[(count - 1) % KEPT], BYTES);
    return count;
}

/* The calling thread's number in torch, as a forward operator of it carries it. */
LS_EXPORT uint64_t ls_probe_thread(const char *library) {
    void *torch = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    uint64_t (*current)(void) = NULL;
    if (torch)
        *(void **)&current = dlsym(torch, "_ZN2at14RecordFunction15currentThreadIdEv");
    return current ? current() : 0;
}

/* Record operators as in a profiled program, but into a ring of our own that is emptied at each call. */
LS_EXPORT int ls_probe_record(const char *library, int sequence_offset, int use_tsc) {
    ls_keep_to_itself = 1;
    int failed = ls_prepare("", library, use_tsc);
    if (failed)
        return failed;
    ls.page->probe = LF_PROBE_GOOD;
    ls.page->sequence_offset = ls.sequence_offset = sequence_offset;
    if (ls_this_thread)
        ls_this_thread->ring->h.consumed = ls_this_thread->written;
    return ls_torch_start();
}

/* Spans in the ring since the last call of ls_probe_record: of kind backward, or of all the other kinds. */
LS_EXPORT uint32_t ls_probe_spans(int backward) {
    const ls_thread *t = ls_this_thread;
    uint32_t found = 0;
    for (uint64_t i = t ? t->ring->h.consumed : 0; t && i < t->written; i++) {
        uint8_t kind = t->ring->records[i % t->capacity].kind;
        found += kind < LF_THREAD_BEGIN && (kind == LF_BACKWARD) == (backward != 0);
    }
    return found;
}

/* Spans in the ring since the last call of ls_probe_record, in the order of their ends: the text of the arguments of
 * the one with this number; "" where it has none, NULL behind the last. */
LS_EXPORT const char *ls_probe_arguments(uint32_t number) {
    const ls_thread *t = ls_this_thread;
    int found = 0;
    for (uint64_t i = t ? t->ring->h.consumed : 0; t && i < t->written; i++) {
        const lf_record *r = &t->ring->records[i % t->capacity];
        if (r->kind < LF_FIRST_SPECIAL && (found || !number--))
            if (found++)
                break;
        if (found && r->kind == LF_EXTRA && r->name == LF_EXTRA_ARGS)
            return ls_name_text((uint32_t)r->start);
    }
    return found ? "" : NULL;
}
