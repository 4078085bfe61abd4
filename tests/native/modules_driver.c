/* Drives the calls of modules from C, with stand-ins for torch and for the little of Python that the agent looks up, so
 * that all of it can be built under a sanitizer. What happens is known: every operator is called by the name of the
 * innermost module that was told to the agent and is open, or "outside".
 *
 * usage: modules_driver SOCKET THREADS COUNT SEED     calls nested at random, modules that come and go, forks
 * Prints how many calls and how many operators began. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
typedef void *(*vectorcall)(void *callable, void *const *arguments, size_t count, void *keywords);
typedef struct record_function record_function;
record_function *fake_begin(const char *name, int scope, int64_t sequence, uint64_t forward_thread);
void fake_end(record_function *f);
int ls_prepare(const char *name, const char *library_path, int use_tsc);
int ls_torch_start(void);
int ls_modules_start(void *function, void *resolve);
void ls_modules_stop(void);
int ls_module_learn(const void *module, const char *text);
void ls_module_forget(const void *module, const void *reference);

typedef struct {
    intptr_t references;
    const void *type;
    void *unused[3];
    vectorcall call;
} object;

EXPORT intptr_t PyFunction_Type[64]; /* word 7: where its instances have their vectorcall field */
EXPORT void *PyExc_Exception, *PyExc_BaseException;
static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
    int living, silent; /* silent: nobody can tell what it is */
    char name[32];
} module;
enum { MODULES = 3000, DEEPEST = 700 };
static module modules[MODULES];
static object function, resolver;
static uint64_t count;
static _Atomic uint64_t calls, operators, names, errors;

typedef struct {
    uint64_t dice;
    int depth;
    const char *open; /* name of the innermost module that was told */
} driven;
static __thread driven *me;

static uint32_t dice(void) {
    me->dice = me->dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(me->dice >> 33);
}

static void operate(void) {
    atomic_fetch_add_explicit(&operators, 1, memory_order_relaxed);
    fake_end(fake_begin(me->open, 0, -1, 0));
}

/* As the slot of the type does it. */
static void call(module *m) {
    void *arguments[2] = {NULL, m};
    function.call(&function, arguments + 1, 1 | (size_t)1 << 63, NULL);
}

static module *any(void) {
    module *m = &modules[dice() % (dice() % 4 ? 50 : MODULES)];
    if (!m->living) { /* another one at an address that was used */
        m->living = 1;
        m->silent = dice() % 10 == 0;
        snprintf(m->name, sizeof m->name, "m%llu", (unsigned long long)atomic_fetch_add(&names, 1) % 5000);
    }
    return m;
}

static void release_gil(void) {
    pthread_mutex_unlock(&gil);
    if (dice() % 64 == 0)
        sched_yield();
    pthread_mutex_lock(&gil);
}

static void fork_here(void) {
#ifndef __SANITIZE_THREAD__
    pid_t child = fork();
    if (child == 0) {
        me->open = "outside"; /* what is open belongs to the parent */
        operate();
        return; /* and leaves every call that is open */
    }
    waitpid(child, NULL, 0);
#endif
}

/* The body of every module. */
EXPORT void *_PyFunction_Vectorcall(void *callable, void *const *arguments, size_t n, void *keywords) {
    (void)callable, (void)keywords;
    const module *m = arguments[0];
    const char *outer = me->open;
    pid_t process = getpid();
    if (!m->silent) {
        me->open = strdup(m->name); /* another thread may free the module's while it runs */
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    }
    me->depth++;
    if (n != (1 | (size_t)1 << 63))
        atomic_fetch_add(&errors, 1);
    for (uint32_t i = dice() % 4; i; i--) {
        operate();
        release_gil();
        if (dice() % 3 == 0 && me->depth < 6)
            call(any());
        if (dice() % 200000 == 0)
            fork_here();
    }
    if (dice() % 20000 == 0 || (me->depth > 6 && me->depth < DEEPEST)) /* deeper than what is kept */
        call(any());
    me->depth--;
    if (getpid() == process)
        me->open = outer;
    return NULL;
}

EXPORT void *PyObject_CallFunctionObjArgs(void *callable, ...) {
    __builtin_va_list rest;
    __builtin_va_start(rest, callable);
    module *m = __builtin_va_arg(rest, module *);
    __builtin_va_end(rest);
    if (callable != &resolver)
        atomic_fetch_add(&errors, 1);
    if (m->silent)
        return NULL; /* it has failed */
    char text[64];
    snprintf(text, sizeof text, "%s\nKind\nfile.py:1", m->name);
    ls_module_learn(m, text);
    resolver.references++;
    return &resolver;
}
EXPORT void Py_DecRef(object *o) { o->references--; }
EXPORT void Py_IncRef(object *o) { o->references++; }
EXPORT void PyErr_Clear(void) {}
EXPORT int PyObject_IsInstance(void *object, void *kind) { return object == kind; }
EXPORT void PyErr_SetObject(void *kind, void *value) { (void)kind, (void)value, atomic_fetch_add(&errors, 1); }
EXPORT void *PyMethod_Function(void *method) { return method; }
EXPORT void PyErr_Fetch(void **kind, void **value, void **traceback) { *kind = *value = *traceback = NULL; }
EXPORT void PyErr_Restore(void *kind, void *value, void *traceback) { (void)kind, (void)value, (void)traceback; }
EXPORT int PyErr_ExceptionMatches(void *kind) { return kind == PyExc_Exception; }

static void *work(void *seed) {
    driven state = {(uintptr_t)seed, 0, "outside"};
    me = &state;
    pthread_mutex_lock(&gil);
    pid_t process = getpid();
    for (uint64_t i = 0; i < count; i++) {
        call(any());
        if (getpid() != process) { /* a child of fork_here */
            operate();
            _exit(0);
        }
        operate();
        if (dice() % 3 == 0) { /* one is gone: nobody calls it any more, and its address is free */
            module *m = &modules[dice() % MODULES];
            if (m->living && m >= modules + 50) {
                ls_module_forget(m, NULL);
                m->living = 0;
            }
        }
        release_gil();
    }
    pthread_mutex_unlock(&gil);
    return NULL;
}

int main(int arguments, char **argument) {
    if (arguments < 5 || ls_prepare(argument[1], "", 0))
        return 2;
    int threads = atoi(argument[2]);
    count = strtoull(argument[3], NULL, 10);
    for (int i = 0; i < 1000 && ls_torch_start() == 1; i++)
        usleep(10000);
    PyExc_Exception = &PyExc_Exception;
    PyExc_BaseException = &PyExc_BaseException;
    PyFunction_Type[7] = offsetof(object, call);
    function = (object){.references = 1, .type = PyFunction_Type, .call = _PyFunction_Vectorcall};
    resolver = function; /* a function of ours, as it should be */
    object other = function;
    other.type = &other;
    if (ls_modules_start(&other, &resolver) != -1 || other.call != _PyFunction_Vectorcall)
        return 3;
    other.type = PyFunction_Type;
    other.call = (vectorcall)(void *)work;
    if (ls_modules_start(&other, &resolver) != -1)
        return 4;
    if (ls_modules_start(&function, &resolver) || ls_modules_start(&function, &resolver))
        return 5;
    if (function.call == _PyFunction_Vectorcall || function.references < 2 || resolver.references < 2)
        return 6;
    pthread_t all[64];
    uintptr_t seed = strtoull(argument[4], NULL, 10);
    for (int i = 0; i < threads; i++)
        pthread_create(&all[i], NULL, work, (void *)(seed + (uintptr_t)i));
    for (int i = 0; i < threads; i++)
        pthread_join(all[i], NULL);
    ls_modules_stop();
    if (function.call != _PyFunction_Vectorcall || errors)
        return 7;
    printf("%llu %llu\n", (unsigned long long)calls, (unsigned long long)operators);
    return 0;
}
