/* What operators share: the variables of MXNet's engine, which each operator reads or writes. They tell what the engine
 * does not: in which module the forward operator of a backward operator was, and which operator somebody waits for.
 *
 * `_backward_X` reads variables that X of the same module has read or written, as its weight. Where several modules did
 * so it is the innermost that holds them all, and where nothing is known, none. The table has a fixed size: what is known
 * of some variables is forgotten, the oldest first. */
#define _GNU_SOURCE
#include "mxnet.h"

#include <string.h>

#define BUCKETS 8192u
#define USES 12u
#define MOST_MODULES 10u   /* one in the other; of deeper ones the outermost count */
#define MOST_VARIABLES 256 /* of an operator that are looked at */
#define BACKWARD "_backward_"
#define DELETES "DeleteVariable" /* the last operator of a variable */

enum { ANY_OPERATOR = 0, WRITER = 0xffffffff }; /* as names */

/* The modules that were open, the outermost first, 0 behind the last. */
typedef struct {
    uint32_t names[MOST_MODULES];
} modules;

typedef struct {
    const char *writer; /* of WRITER: the name of the operator that was the last to write it */
    uint32_t is_in;     /* `in` is known */
    modules in;
} use;

/* What is looked for comes first, in few cache lines. */
typedef struct {
    _Alignas(64) _Atomic uint32_t lock;
    uint32_t next;
    uint32_t names[USES]; /* of the operators */
    const void *variables[USES];
    use uses[USES];
} bucket;

/* BUCKETS of them; a forked child finds them zeroed. */
static bucket *all;
/* Something in a module has been submitted. Before that no variable is of one. */
static _Atomic int has_modules;

int ls_mxnet_variables_begin(void) {
    if (!all)
        all = ls_wiped_memory(BUCKETS * sizeof(bucket));
    return all ? 0 : -1;
}

static bucket *bucket_of(const void *variable) {
    uint64_t hash = ((uint64_t)(uintptr_t)variable >> 4) * 0x9e3779b97f4a7c15u;
    return &all[hash >> 51];
}
_Static_assert(BUCKETS == 1u << (64 - 51), "buckets");

static use *find(bucket *b, const void *variable, uint32_t name) {
    for (uint32_t i = 0; i < USES; i++)
        if (b->variables[i] == variable && b->names[i] == name)
            return &b->uses[i];
    return NULL;
}

static use *find_or_make(bucket *b, const void *variable, uint32_t name) {
    use *u = find(b, variable, name);
    if (!u) {
        uint32_t i = b->next++ % USES;
        b->variables[i] = variable;
        b->names[i] = name;
        u = &b->uses[i];
        *u = (use){0};
    }
    return u;
}

/* Those that both have. */
static modules common(const modules *a, const modules *b) {
    modules both = {{0}};
    for (uint32_t i = 0; i < MOST_MODULES && a->names[i] == b->names[i]; i++)
        both.names[i] = a->names[i];
    return both;
}

static int is_within(const modules *inner, const modules *outer) {
    for (uint32_t i = 0; i < MOST_MODULES && outer->names[i]; i++)
        if (inner->names[i] != outer->names[i])
            return 0;
    return 1;
}

static modules open_modules(const ls_thread *t) {
    modules found = {{0}};
    const lf_open *open = t->ring->h.open;
    for (uint32_t depth = 0, i = 0; t->modules && depth < t->depth && i < MOST_MODULES; depth++)
        if (open[depth].kind == LF_MODULE && !(LS_LOAD(open[depth].state) & 1))
            found.names[i++] = open[depth].name;
    return found;
}

/* --- What operators say of their variables --- */

static void note_use(bucket *b, const void *variable, uint32_t name, const modules *in) {
    use *u = find_or_make(b, variable, name);
    u->in = u->is_in ? common(&u->in, in) : *in;
    u->is_in = 1;
}

/* Whether anything in a module has used it. */
static int is_of_modules(const bucket *b, const void *variable) {
    for (uint32_t i = 0; i < USES; i++)
        if (b->variables[i] == variable && b->uses[i].is_in)
            return 1;
    return 0;
}

static void note_uses(ls_mxnet_list those, uint32_t name, const modules *in) {
    for (uint32_t i = 0; i < those.count && i < MOST_VARIABLES; i++) {
        bucket *b = bucket_of(those.all[i]);
        ls_lock(&b->lock);
        if (in->names[0] || is_of_modules(b, those.all[i])) {
            note_use(b, those.all[i], name, in);
            note_use(b, those.all[i], ANY_OPERATOR, in);
        }
        ls_unlock(&b->lock);
    }
}

static void note_writer(ls_mxnet_list written, const char *text) {
    for (uint32_t i = 0; i < written.count && i < MOST_VARIABLES; i++) {
        bucket *b = bucket_of(written.all[i]);
        ls_lock(&b->lock);
        find_or_make(b, written.all[i], WRITER)->writer = text;
        ls_unlock(&b->lock);
    }
}

/* Another variable may get the address. */
static void forget(ls_mxnet_list deleted) {
    for (uint32_t i = 0; i < deleted.count; i++) {
        bucket *b = bucket_of(deleted.all[i]);
        ls_lock(&b->lock);
        for (uint32_t k = 0; k < USES; k++)
            if (b->variables[k] == deleted.all[i])
                b->variables[k] = NULL;
        ls_unlock(&b->lock);
    }
}

/* --- The module of a backward operator --- */

/* The modules of the operators with this name that have these variables. */
static modules modules_of(ls_mxnet_list those, uint32_t name) {
    modules found = {{0}};
    int is_found = 0;
    for (uint32_t i = 0; i < those.count && i < MOST_VARIABLES; i++) {
        bucket *b = bucket_of(those.all[i]);
        ls_lock(&b->lock);
        const use *u = find(b, those.all[i], name);
        const modules in = u ? u->in : (modules){{0}};
        ls_unlock(&b->lock);
        if (!u)
            continue;
        int is_finer = name != ANY_OPERATOR && is_within(&in, &found);
        if (!is_found || is_finer)
            found = in;
        else if (name == ANY_OPERATOR || !is_within(&found, &in))
            found = common(&found, &in);
        is_found = 1;
    }
    return found;
}

static uint32_t innermost(const modules *of) {
    uint32_t i = 0;
    while (i < MOST_MODULES && of->names[i])
        i++;
    return i ? of->names[i - 1] : 0;
}

static uint32_t module_of_backward(ls_thread *t, const char *text, const ls_mxnet_uses *uses) {
    int is_one = !strncmp(text, BACKWARD, strlen(BACKWARD)) && !strchr(text, ',');
    uint32_t name = is_one ? ls_cached_text(t, text + strlen(BACKWARD))->id : ANY_OPERATOR;
    const modules found = modules_of(uses->read, name); /* what it writes may be room that many use in turns */
    return innermost(&found);
}

static void note_forward(const ls_thread *t, uint32_t name, const ls_mxnet_uses *uses) {
    const modules in = open_modules(t);
    if (in.names[0])
        atomic_store_explicit(&has_modules, 1, memory_order_relaxed);
    else if (!atomic_load_explicit(&has_modules, memory_order_relaxed))
        return;
    note_uses(uses->read, name, &in);
    note_uses(uses->written, name, &in);
}

static int is_anything_known(void) {
    return ls_mxnet_records_calls || atomic_load_explicit(&has_modules, memory_order_relaxed);
}

/* The thread submits an operator with this name: the module that it belongs to. */
uint32_t ls_mxnet_note_uses(ls_thread *t, const char *text, const ls_mxnet_uses *uses) {
    if (!all || !text || !*text || !(t->modules || is_anything_known()))
        return t->module;
    if (!strcmp(text, DELETES)) {
        forget(uses->written);
        return t->module;
    }
    const ls_cached_name *name = ls_cached_text(t, text);
    if (ls_mxnet_records_calls) /* which wait for them */
        note_writer(uses->written, name->copy);
    if (t->backward_depth && !t->module)
        return module_of_backward(t, text, uses);
    if (!t->submitted && !t->custom)
        note_forward(t, name->id, uses);
    return t->module;
}

/* The name of the operator that was the last to write this variable; NULL: not known. */
const char *ls_mxnet_writer_of(const void *variable) {
    if (!all)
        return NULL;
    bucket *b = bucket_of(variable);
    ls_lock(&b->lock);
    const use *u = find(b, variable, WRITER);
    const char *text = u ? u->writer : NULL;
    ls_unlock(&b->lock);
    return text;
}
