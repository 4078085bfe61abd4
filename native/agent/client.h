/* What ITT and NVTX have in common: a program makes domains and names of its own, and then says by them what begins
 * and ends. The structures are those of the ITT interface (ittnotify.h of https://github.com/intel/ittapi), which are
 * in part made by the program's own copy of it; NVTX takes any pointer. */
#ifndef LAYERSCOPE_CLIENT_H
#define LAYERSCOPE_CLIENT_H

#include "stack.h"

/* __itt_domain. Its two last members but one are for whoever collects. */
typedef struct ls_domain {
    volatile int flags; /* 0: switched off */
    const char *name;
    void *wide;
    int number; /* ours, of the process: 0: not given out yet */
    void *unused;
    struct ls_domain *next;
} ls_domain;

/* What a name is in one domain and one process: its number among the names of the recording. */
typedef struct ls_use {
    uint64_t generation;
    uint32_t domain, name, kind;
    const struct ls_use *next;
} ls_use;

/* __itt_string_handle. */
typedef struct ls_label {
    const char *text;
    void *wide;
    int unused;
    const ls_use *uses; /* newest first; never shortened: a forked child adds its own */
    struct ls_label *next;
} ls_label;

/* labels.c */
ls_domain *ls_domain_make(const char *name);
ls_label *ls_label_make(const char *text);
uint32_t ls_domain_count(ls_domain *domain);
uint32_t ls_kind_in(const ls_domain *domain);
const ls_use *ls_label_learn(ls_label *label, ls_domain *domain);
size_t ls_text_in_domain(char *into, const char *text, const ls_domain *domain);
void ls_text_of_wide(char *into, const void *wide);

/* The number of a domain; never 0. */
static inline uint32_t ls_domain_number(ls_domain *domain) {
    int number = LS_LOAD(domain->number);
    return LS_UNLIKELY(!number) ? ls_domain_count(domain) : (uint32_t)number;
}

/* What `label` is in `domain`, for a thread that has a state; its name is 0 where there is no room for it. */
static inline const ls_use *ls_label_use(ls_label *label, ls_domain *domain) {
    uint64_t generation = LS_LOAD(ls.wiped->generation);
    uint32_t number = ls_domain_number(domain);
    for (const ls_use *use = __atomic_load_n(&label->uses, __ATOMIC_ACQUIRE); use; use = use->next)
        if (use->domain == number && use->generation == generation)
            return use;
    return ls_label_learn(label, domain);
}

/* range_stack.c: spans that begin and end on one thread, the last one first */
void ls_nested_skip(uint32_t domain);
ls_context *ls_nested_find(ls_thread *t, uint32_t domain);
void ls_nested_end(uint32_t domain);
void ls_nested_abandon(ls_thread *t);

/* async_spans.c: spans that have an id of their own, by which any thread may end them */
typedef struct {
    uint64_t words[4];
} ls_id;
void ls_carry(const ls_id *id, const ls_context *c);
int ls_async_take(const ls_id *id, uint64_t handle[2]);

/* arguments.c: the JSON text of the arguments of a span */
#define LS_ARGUMENTS_LATER 0xffffffffu /* as number of the text: it is still being written */
void ls_arguments_text(char *json, const char *key, const char *text, size_t length);
void ls_arguments_number(char *json, const char *key, const char *number);
void ls_arguments_open(char *json, const char *key);
void ls_arguments_close(char *json);
uint32_t ls_arguments_id(char *json);
void ls_arguments_domain(char *json, const ls_domain *domain);
char *ls_arguments_of(ls_context *c, const ls_domain *domain);
uint32_t ls_arguments_end(const ls_context *c);

/* autostart.c */
LS_EXPORT int ls_door_open(void);

#endif
