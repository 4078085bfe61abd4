/* The Python lines that open ranges: the method that enters a range is hooked as that which calls a module is,
 * and the line of its caller goes to the range that it is about to open on this thread. GIL held. */
#define _GNU_SOURCE
#include "python.h"
#include "stack.h"

#include <stdlib.h>
#include <string.h>

/* A program has few lines that open ranges; those beyond this many stay unknown. */
#define MOST_LINES 1024u

typedef struct {
    const void *code;
    int line;
    uint64_t generation;
    uint32_t id;
    int is_step;
    char text[220];
} known_line;

static known_line *known; /* the first look allocates it */
static ls_function_hook hook;
static void *resolver;

/* The answer of `resolve`: what the line that this thread asks about is called. Called from Python, GIL held. */
LS_EXPORT void ls_line_learn(const char *text) {
    ls_thread *t = ls_this_thread;
    known_line *line = ls.wiped && ls_thread_is_current(t) ? t->learning : NULL;
    size_t length = strlen(text);
    if (line && length < sizeof line->text)
        memcpy(line->text, text, length + 1);
}

/* 0: an exception of the program's is set. */
static int find_line(ls_thread *t, const void *code, int line) {
    if (!known && !(known = calloc(MOST_LINES, sizeof *known)))
        return 1;
    uint32_t first = (uint32_t)((uintptr_t)code >> 4) * 31u + (uint32_t)line;
    for (uint32_t i = 0; i < MOST_LINES / 2; i++) {
        known_line *k = &known[(first + i) % MOST_LINES];
        if (!k->code) {
            k->code = code;
            k->line = line;
            ls_python_keep(code);
            t->learning = k; /* not in a variable of ours: other threads ask while Python code runs */
            int fine = ls_python_call(resolver, resolver, NULL);
            t->learning = NULL;
            if (!fine || !ls_thread_is_current(t)) /* it has forked */
                return fine;
        }
        if (k->code != code || k->line != line)
            continue;
        uint64_t generation = LS_LOAD(ls.wiped->generation);
        if (k->generation != generation && k->text[0]) {
            ls_cached_name name;
            ls_name_find(k->text, &name);
            k->id = name.id;
            k->generation = generation;
            k->is_step = LS_LOAD(ls.watching) && ls_window_is_line(k->text);
        }
        t->line = k->id;
        t->line_is_step = k->is_step;
        return 1;
    }
    return 1;
}

static void *call_enter(void *callable, void *const *arguments, size_t count, void *keywords) {
    ls_thread *t = ls.wiped ? ls_thread_here() : NULL;
    int line = 0;
    const void *code = t ? ls_calling_line(&line) : NULL;
    if (code && !find_line(t, code, line))
        return NULL;
    void *result = hook.original(callable, arguments, count, keywords);
    if (t && ls_thread_is_current(t))
        t->line = 0;
    return result;
}

/* Note the lines of ranges: `function` is record_function.__enter__, `resolve` calls ls_line_learn with file:line of
 * its caller. The caller keeps both alive. 0: done; -1: this Python is not understood. GIL held. */
LS_EXPORT int ls_lines_start(void *function, void *resolve) {
    if (!ls.wiped)
        return -1;
    if (!ls_function_is_hooked(&hook, call_enter) && ls_hook_function(&hook, function, resolve, call_enter))
        return -1;
    resolver = resolve;
    return 0;
}
