/* A stand-in for libmxnet.so with the functions whose calls the agent redirects, so that it can be driven without
 * MXNet. Its build-id is given to the linker: that of a known build, or another one. */
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default"), noipa))
#define EXECUTE                                                                                                     \
    "_ZN5mxnet6engine14ThreadedEngine15ExecuteOprBlockENS_10RunContextEPNS0_8OprBlockENS0_15CallbackOnStartENS0_"     \
    "18CallbackOnCompleteE"
#define NAIVE "_ZN5mxnet6engine11NaiveEngine"
#define PUSH_NAIVE                                                                                                  \
    NAIVE "9PushAsyncESt8functionIFvNS_10RunContextENS0_15CallbackOnStartENS0_18CallbackOnCompleteEEENS_7Context"     \
          "ERKSt6vectorIPNS0_3VarESaISB_EESF_NS_10FnPropertyEiPKcb"
#define PUSH_CACHED_NAIVE NAIVE "4PushEPNS0_3OprENS_7ContextEib"
#ifndef DELETE_NAIVE
#define DELETE_NAIVE NAIVE "14DeleteVariableESt8functionIFvNS_10RunContextEEENS_7ContextEPNS0_3VarE"
#endif

#define PUSH "_ZN5mxnet6engine14ThreadedEngine4PushEPNS0_3OprENS_7ContextEib"

typedef struct {
    uint64_t words[4];
} run_context;
typedef struct {
    uint64_t words[3];
} callback;
/* A std::vector of the addresses of variables. */
typedef struct {
    void **first, **last, **room;
} list;
typedef struct {
    char before[32];
    list read, written;
    uint64_t property;
    const char *name;
} operator;
_Static_assert(sizeof(operator) == 96, "operator");
typedef struct {
    uint64_t wait;
    operator *it;
} block;

/* What arrived with the last call: a change of any argument changes it. */
EXPORT uint64_t fake_arrived;

/* What an operator does when it is executed; NULL: nothing. */
EXPORT void (*fake_work)(void);

EXPORT void execute(void *engine, run_context run, block *b, callback start, callback complete) __asm__(EXECUTE);
void execute(void *engine, run_context run, block *b, callback start, callback complete) {
    fake_arrived = (uint64_t)(uintptr_t)engine + run.words[0] + 2 * run.words[3] + 3 * start.words[2]
                   + 5 * complete.words[2] + (uint64_t)(uintptr_t)b;
    if (fake_work)
        fake_work();
}

EXPORT void push_naive(void *engine, void *f, uint64_t device, void *reads, void *writes, int property, int priority,
                       const char *name, _Bool wait) __asm__(PUSH_NAIVE);
void push_naive(void *engine, void *f, uint64_t device, void *reads, void *writes, int property, int priority,
                const char *name, _Bool wait) {
    fake_arrived = (uint64_t)(uintptr_t)engine + (uint64_t)(uintptr_t)f + device + (uint64_t)(uintptr_t)reads
                   + (uint64_t)(uintptr_t)writes + (uint64_t)(property + priority) + wait + (name ? name[0] : 0);
}

EXPORT void push_cached(void *engine, operator *it, uint64_t device, int priority,
                        _Bool profiling) __asm__(PUSH_CACHED_NAIVE);
void push_cached(void *engine, operator *it, uint64_t device, int priority, _Bool profiling) {
    fake_arrived = (uint64_t)(uintptr_t)engine + (uint64_t)(uintptr_t)it + device + (uint64_t)priority + profiling;
}

EXPORT void delete_variable(void *engine, void *f, uint64_t device, void *variable) __asm__(DELETE_NAIVE);
void delete_variable(void *engine, void *f, uint64_t device, void *variable) {
    fake_arrived = (uint64_t)(uintptr_t)engine + (uint64_t)(uintptr_t)f + device + (uint64_t)(uintptr_t)variable;
}

EXPORT void push(void *engine, operator *it, uint64_t device, int priority, _Bool profiling) __asm__(PUSH);
void push(void *engine, operator *it, uint64_t device, int priority, _Bool profiling) {
    fake_arrived = (uint64_t)(uintptr_t)engine + (uint64_t)(uintptr_t)it + device + (uint64_t)priority + profiling;
}

EXPORT void wait_for(void *engine, void *variable) __asm__("_ZN5mxnet6engine14ThreadedEngine10WaitForVarEPNS0_3VarE");
void wait_for(void *engine, void *variable) { fake_arrived = (uint64_t)(uintptr_t)engine + (uint64_t)(uintptr_t)variable; }

EXPORT void on_enter_api(const char *name) __asm__("_ZN5mxnet12on_enter_apiEPKc");
void on_enter_api(const char *name) { fake_arrived = (uint64_t)(uintptr_t)name; }
EXPORT void on_exit_api(void) __asm__("_ZN5mxnet11on_exit_apiEv");
void on_exit_api(void) { fake_arrived = 77; }

typedef struct {
    void *memory;
    uint64_t bytes;
    int32_t device_type, device_number;
} storage_handle;
#define STORAGE "_ZN5mxnet8profiler21DeviceStorageProfiler"
EXPORT void allocated(void *profiler, const storage_handle *h) __asm__(STORAGE "7OnAllocERKNS_7Storage6HandleE");
void allocated(void *profiler, const storage_handle *h) { fake_arrived = (uint64_t)(uintptr_t)profiler + h->bytes; }
EXPORT void freed(void *profiler, const storage_handle *h) __asm__(STORAGE "6OnFreeERKNS_7Storage6HandleE");
void freed(void *profiler, const storage_handle *h) { fake_arrived = (uint64_t)(uintptr_t)profiler + h->bytes; }

EXPORT int MXGetVersion(int *version) {
    *version = 20000;
    return 0;
}

EXPORT int bulk_size(const void *engine) __asm__("_ZNK5mxnet6engine14ThreadedEngine9bulk_sizeEv");
int bulk_size(const void *engine) { return engine ? 15 : 0; }

/* The vtables of the engines, as far as they matter. */
EXPORT void *fake_vtable[6] = {(void *)push_naive, (void *)push_cached, (void *)delete_variable, (void *)push,
                               (void *)wait_for, (void *)bulk_size};

/* How many operators are executed as one. */
EXPORT int fake_bulk_size(void) {
    int (*size)(const void *);
    *(void **)&size = fake_vtable[5];
    return size((void *)1);
}

/* Execute an operator called `name` as a worker of the engine does; what has to arrive. */
EXPORT uint64_t fake_execute(const char *name) {
    operator it = {.name = name};
    block b = {.it = &it};
    run_context run = {{10, 11, 12, 13}};
    callback start = {{20, 21, 22}}, complete = {{30, 31, 32}};
    execute((void *)1000, run, &b, start, complete);
    return 1000 + 10 + 2 * 13 + 3 * 22 + 5 * 32 + (uint64_t)(uintptr_t)&b;
}

/* The same by NaiveEngine: at once, of an operator made before, of the end of a variable. */
EXPORT uint64_t fake_push(const char *name) {
    void (*push)(void *, void *, uint64_t, void *, void *, int, int, const char *, _Bool);
    list reads = {0}, writes = {0};
    *(void **)&push = fake_vtable[0];
    push((void *)1, (void *)2, 3, &reads, &writes, 6, 7, name, 1);
    return 1 + 2 + 3 + (uint64_t)(uintptr_t)&reads + (uint64_t)(uintptr_t)&writes + 6 + 7 + 1
           + (uint64_t)(name ? name[0] : 0);
}

EXPORT uint64_t fake_push_cached(const char *name) {
    operator it = {.name = name};
    void (*push)(void *, void *, uint64_t, int, _Bool);
    *(void **)&push = fake_vtable[1];
    push((void *)1, &it, 3, 4, 1);
    return 1 + (uint64_t)(uintptr_t)&it + 3 + 4 + 1;
}

EXPORT uint64_t fake_delete(void) {
    void (*delete)(void *, void *, uint64_t, void *);
    *(void **)&delete = fake_vtable[2];
    delete ((void *)1, (void *)2, 3, (void *)4);
    return 1 + 2 + 3 + 4;
}

/* Calls of the C interface, and in them operators that are made once, submitted, and executed by whoever calls. */
EXPORT void fake_enter(const char *name) { on_enter_api(name); }
EXPORT void fake_exit(void) { on_exit_api(); }
EXPORT operator *fake_operator(const char *name) {
    static operator operators[64];
    static int used;
    operators[used % 64].name = name;
    return &operators[used++ % 64];
}
/* It reads the first variables, up to a zero, and writes the others; each is a number. */
EXPORT void fake_uses(operator *it, const uint8_t *variables) {
    static void *room[64][16];
    static int used;
    void **at = room[used++ % 64];
    it->read.first = at;
    for (; *variables; variables++)
        *at++ = (void *)(uintptr_t)(*variables * 64ul);
    it->read.last = it->written.first = at;
    for (variables++; *variables; variables++)
        *at++ = (void *)(uintptr_t)(*variables * 64ul);
    it->written.last = at;
}
EXPORT uint64_t fake_wait(uint8_t variable) {
    void (*wait)(void *, void *);
    *(void **)&wait = fake_vtable[4];
    wait((void *)1, (void *)(uintptr_t)(variable * 64ul));
    return 1 + variable * 64ul;
}
EXPORT uint64_t fake_submit(operator *it) {
    void (*submit)(void *, void *, uint64_t, int, _Bool);
    *(void **)&submit = fake_vtable[3];
    submit((void *)1, it, 3, 4, 1);
    return 1 + (uint64_t)(uintptr_t)it + 3 + 4 + 1;
}
EXPORT void fake_run_operator(operator *it) {
    block b = {.it = it};
    execute((void *)1000, (run_context){{0}}, &b, (callback){{0}}, (callback){{0}});
}

/* Memory of a device is given out, or given back where `bytes` is below zero. */
EXPORT void fake_memory(int64_t bytes, int type, int number) {
    storage_handle h = {NULL, (uint64_t)(bytes < 0 ? -bytes : bytes), type, number};
    if (bytes < 0)
        freed((void *)5, &h);
    else
        allocated((void *)5, &h);
}
