/* Calls of MXNet's profiler by a program in C: its files' own imports of these functions lead here, and each calls the
 * one of MXNet first, which does what it did. What the program names becomes ranges, counters and marks; where it
 * switches MXNet's profiler on and off the recording goes on, and says so by marks. */
#define _GNU_SOURCE
#include "program.h"

#include "../../agent/loaded_file.h"
#include "mxnet.h"

#include <dlfcn.h>
#include <string.h>

#define OWN "MXNet profiler" /* as a mark is called */

static struct {
    int (*set_state)(int state);
    int (*set_process_state)(int state, int process, void *store);
    int (*pause)(int is_paused);
    int (*pause_process)(int is_paused, int process, void *store);
    int (*dump)(int is_finished);
    int (*dump_process)(int is_finished, int process, void *store);
    int (*create_domain)(const char *name, void **out);
    int (*create_task)(void *domain, const char *name, void **out);
    int (*create_frame)(void *domain, const char *name, void **out);
    int (*create_event)(const char *name, void **out);
    int (*create_counter)(void *domain, const char *name, void **out);
    int (*destroy)(void *object);
    int (*start)(void *object);
    int (*stop)(void *object);
    int (*set_counter)(void *counter, uint64_t value);
    int (*adjust_counter)(void *counter, int64_t delta);
    int (*set_marker)(void *domain, const char *name, const char *scope);
} own;

/* --- State ------------------------------------------------------------------------------------------------------- */

/* `process`: 0 is this one, others are servers of a store. */
static int state_is(int failed, int runs, int process) {
    if (!failed && !process)
        ls_mark(OWN, runs ? LF_MARK_RESUMED : LF_MARK_PAUSED, 0);
    return failed;
}

static int set_state(int state) { return state_is(own.set_state(state), state, 0); }
static int set_process_state(int state, int process, void *store) {
    return state_is(own.set_process_state(state, process, store), state, process);
}
static int pause(int is_paused) { return state_is(own.pause(is_paused), !is_paused, 0); }
static int pause_process(int is_paused, int process, void *store) {
    return state_is(own.pause_process(is_paused, process, store), !is_paused, process);
}

static int dumped(int failed, int process) {
    if (!failed && !process)
        ls_mark(OWN ": dump", LF_MARK_MARKER, 0);
    return failed;
}

static int dump(int is_finished) { return dumped(own.dump(is_finished), 0); }
static int dump_process(int is_finished, int process, void *store) {
    return dumped(own.dump_process(is_finished, process, store), process);
}

/* --- Objects ----------------------------------------------------------------------------------------------------- */

static int made(int failed, void *const *out, int what, const void *domain, const char *name) {
    if (!failed)
        ls_mxnet_object_made(*out, what, domain, name);
    return failed;
}

static int create_domain(const char *name, void **out) {
    return made(own.create_domain(name, out), out, LS_MXNET_DOMAIN, NULL, name);
}
static int create_task(void *domain, const char *name, void **out) {
    return made(own.create_task(domain, name, out), out, LF_TASK, domain, name);
}
static int create_frame(void *domain, const char *name, void **out) {
    return made(own.create_frame(domain, name, out), out, LF_FRAME, domain, name);
}
static int create_event(const char *name, void **out) {
    return made(own.create_event(name, out), out, LF_EVENT, NULL, name);
}
static int create_counter(void *domain, const char *name, void **out) {
    return made(own.create_counter(domain, name, out), out, LS_MXNET_COUNTER, domain, name);
}

static int destroy(void *object) {
    ls_mxnet_object_gone(object); /* before somebody else is given its address */
    return own.destroy(object);
}

static int start(void *object) {
    int failed = own.start(object);
    if (!failed)
        ls_mxnet_object_starts(object);
    return failed;
}

static int stop(void *object) {
    ls_mxnet_object_stops(object);
    return own.stop(object);
}

static int set_counter(void *counter, uint64_t value) {
    int failed = own.set_counter(counter, value);
    if (!failed)
        ls_mxnet_object_counts(counter, 0, (int64_t)value);
    return failed;
}

static int adjust_counter(void *counter, int64_t delta) {
    int failed = own.adjust_counter(counter, delta);
    if (!failed)
        ls_mxnet_object_counts(counter, 1, delta);
    return failed;
}

static int set_marker(void *domain, const char *name, const char *scope) {
    int failed = own.set_marker(domain, name, scope);
    if (!failed)
        ls_mxnet_object_marks(domain, name);
    return failed;
}

/* --- Imports ----------------------------------------------------------------------------------------------------- */

static const ls_redirection calls[] = {
    {"MXSetProfilerState", (void *)set_state, (void **)&own.set_state},
    {"MXSetProcessProfilerState", (void *)set_process_state, (void **)&own.set_process_state},
    {"MXProfilePause", (void *)pause, (void **)&own.pause},
    {"MXProcessProfilePause", (void *)pause_process, (void **)&own.pause_process},
    {"MXDumpProfile", (void *)dump, (void **)&own.dump},
    {"MXDumpProcessProfile", (void *)dump_process, (void **)&own.dump_process},
    {"MXProfileCreateDomain", (void *)create_domain, (void **)&own.create_domain},
    {"MXProfileCreateTask", (void *)create_task, (void **)&own.create_task},
    {"MXProfileCreateFrame", (void *)create_frame, (void **)&own.create_frame},
    {"MXProfileCreateEvent", (void *)create_event, (void **)&own.create_event},
    {"MXProfileCreateCounter", (void *)create_counter, (void **)&own.create_counter},
    {"MXProfileDestroyHandle", (void *)destroy, (void **)&own.destroy},
    {"MXProfileDurationStart", (void *)start, (void **)&own.start},
    {"MXProfileDurationStop", (void *)stop, (void **)&own.stop},
    {"MXProfileSetCounter", (void *)set_counter, (void **)&own.set_counter},
    {"MXProfileAdjustCounter", (void *)adjust_counter, (void **)&own.adjust_counter},
    {"MXProfileSetMarker", (void *)set_marker, (void **)&own.set_marker},
};
#define CALLS (sizeof calls / sizeof *calls)

/* What is put into the files: ours, or again MXNet's own. */
enum { OURS, THEIRS };
typedef struct {
    int which;
    uint64_t mxnet; /* an address in MXNet's own file, whose calls of itself stay */
} placement;

static void place(const ls_loaded_file *f, const Elf64_Rela *relocation, const Elf64_Sym *symbol, const char *name,
                  void *of) {
    const placement *p = of;
    uint64_t type = ELF64_R_TYPE(relocation->r_info);
    (void)symbol;
    if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) || strncmp(name, "MX", 2))
        return;
    size_t i = 0;
    while (i < CALLS && strcmp(name, calls[i].name))
        i++;
    if (i == CALLS || !*calls[i].original)
        return;
    void **word = (void **)(uintptr_t)(f->base + relocation->r_offset);
    void *from = p->which == OURS ? *calls[i].original : calls[i].ours;
    void *to = p->which == OURS ? calls[i].ours : *calls[i].original;
    uint64_t now = (uint64_t)(uintptr_t)*word;
    /* An import that was not called yet leads back into the file, which then looks it up. */
    if (*word == from || (p->which == OURS && now >= f->start && now < f->end))
        ls_file_write(f, word, to);
}

static void look(const ls_loaded_file *f, void *of) {
    const placement *p = of;
    if (p->mxnet < f->start || p->mxnet >= f->end)
        ls_relocations(f, place, of);
}

static void place_all(int which) {
    placement p = {which, (uint64_t)(uintptr_t)own.start};
    ls_each_file(look, &p);
}

static void attend(int which) { (void)which; }
static void leave(void) { place_all(THEIRS); }
static const ls_announcer announcer = {attend, leave};

/* Listen to what the files that are loaded now call in this `library`. */
void ls_mxnet_profiler_calls(void *library) {
    for (size_t i = 0; i < CALLS; i++)
        *calls[i].original = dlsym(library, calls[i].name);
    if (!own.start)
        return;
    ls_lock_beginning();
    place_all(OURS);
    ls_operators_announce(&announcer);
    ls_unlock_beginning();
}
