/* A stand-in for libtorch_cpu.so with the few functions the agent looks up, so that the agent can be
 * driven from C: under sanitizers, at full speed, with ends out of order and on other threads. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct {
    void **(*start)(void **result, const void *record_function);
    void (*end)(const void *record_function, void *context);
    double sampling_probability;
    bool scopes[10];
    bool needs_inputs, needs_outputs, needs_ids;
} callback;

/* What the agent reads by offset; the offsets are what a test tells it in the process page. */
typedef struct {
    const char *name;
    int64_t sequence;        /* offset 8 */
    uint64_t forward_thread; /* offset 16 */
    bool async;
    void *contexts[16];
    uint64_t used;
    callback callbacks[16]; /* as they were when it began */
    uint8_t scope;
} record_function;

static callback callbacks[16];
static uint64_t used;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

EXPORT const char *_ZNK2at14RecordFunction4nameEv(const record_function *f) { return f->name; }
EXPORT bool _ZNK2at14RecordFunction7isAsyncEv(const record_function *f) { return f->async; }
EXPORT uint64_t _ZN2at14RecordFunction15currentThreadIdEv(void) {
    static _Atomic uint64_t threads;
    static __thread uint64_t mine;
    return mine ? mine : (mine = ++threads);
}
/* torch's switch of oneDNN. */
EXPORT bool fake_onednn = true;
EXPORT void *_ZN2at13globalContextEv(void) { return &fake_onednn; }
EXPORT bool _ZNK2at7Context17userEnabledMkldnnEv(const bool *context) { return *context; }
EXPORT uint64_t _ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE(callback c) {
    uint64_t free = 0;
    pthread_mutex_lock(&changing);
    while (free < used && callbacks[free].end)
        free++;
    callbacks[free] = c;
    used += free == used;
    pthread_mutex_unlock(&changing);
    return free + 1;
}
EXPORT void _ZN2at14removeCallbackEm(uint64_t handle) {
    pthread_mutex_lock(&changing);
    memset(&callbacks[handle - 1], 0, sizeof(callback));
    pthread_mutex_unlock(&changing);
}

/* How many are called for each operator of this scope. */
EXPORT int fake_always_called(int scope) {
    int count = 0;
    for (uint64_t i = 0; i < used; i++)
        count += callbacks[i].start && callbacks[i].scopes[scope] && callbacks[i].sampling_probability == 1.0;
    return count;
}

EXPORT record_function *fake_begin(const char *name, int scope, int64_t sequence, uint64_t forward_thread) {
    record_function *f = calloc(1, sizeof *f);
    f->name = name;
    f->sequence = sequence;
    f->forward_thread = forward_thread;
    f->scope = (uint8_t)scope;
    pthread_mutex_lock(&changing);
    f->used = used;
    memcpy(f->callbacks, callbacks, used * sizeof(callback));
    pthread_mutex_unlock(&changing);
    for (uint64_t i = 0; i < f->used; i++)
        if (f->callbacks[i].start && f->callbacks[i].scopes[scope])
            f->callbacks[i].start(&f->contexts[i], f);
    return f;
}

EXPORT void fake_end(record_function *f) {
    for (uint64_t i = 0; i < f->used; i++) {
        if (f->callbacks[i].end && f->callbacks[i].scopes[f->scope])
            f->callbacks[i].end(f, f->contexts[i]);
        if (f->contexts[i]) { /* ~unique_ptr: the deleting destructor, second of the two */
            void (**vtable)(void *) = *(void (***)(void *))f->contexts[i];
            vtable[1](f->contexts[i]);
        }
    }
    free(f);
}

/* `count` operators of the same few names, one inside another, as fast as they go. */
EXPORT void fake_run(const char *const *names, int kinds, uint64_t count) {
    record_function f;
    memset(&f, 0, sizeof f);
    for (uint64_t i = 0; i < count; i++) {
        f.name = names[i % (uint64_t)kinds];
        f.sequence = -1;
        f.contexts[0] = NULL;
        if (callbacks[0].start)
            callbacks[0].start(&f.contexts[0], &f);
        if (callbacks[0].end)
            callbacks[0].end(&f, f.contexts[0]);
        if (f.contexts[0]) {
            void (**vtable)(void *) = *(void (***)(void *))f.contexts[0];
            vtable[1](f.contexts[0]);
        }
    }
}

/* A thread that runs an operator, and once more when its thread-local objects are destroyed: after the agent's
 * own destructor, whose key is older. */
static void in_destructor(void *name) { fake_end(fake_begin(name, 0, -1, 0)); }

static void *late_thread(void *name) {
    pthread_key_t key;
    fake_end(fake_begin(name, 0, -1, 0)); /* the agent sets its key first */
    pthread_key_create(&key, in_destructor);
    pthread_setspecific(key, name);
    return NULL;
}

EXPORT void fake_late_thread(void *name) {
    pthread_t thread;
    pthread_create(&thread, NULL, late_thread, name);
    pthread_join(thread, NULL);
}
