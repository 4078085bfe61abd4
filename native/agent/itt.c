/* The ITT collector: tasks, frames, events, counters and markers of programs that are instrumented for Intel's VTune:
 * oneDNN's primitives, TBB, ranges that a framework emits. No header of Intel's: itt.h. */
#define _GNU_SOURCE
#include "itt.h"

#include "announcers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { BY_OVERLAPPED = 1, BY_FRAME = 2, BY_EVENT = 3 }; /* what an id is of (async_spans.c) */
#define GROUP_OF_ALL (-1)

/* --- Tasks ------------------------------------------------------------------------------------------------------- */

/* Open a span for `name` in `domain`, of kind 0 if it is a task that only its own thread ends. NULL: it is not
 * recorded. */
static inline ls_context *open_span(const ls_domain *domain, ls_label *name, uint32_t kind) {
    ls_thread *t;
    ls_context *c = ls_range_slot(name->text ? name->text : "", &t);
    if (!c)
        return NULL;
    const ls_use *use = ls_label_use(name, (ls_domain *)domain);
    if (!kind) {
        ls_open_slot(t, c, use->name, use->kind);
        return c;
    }
    c = ls_crossing_slot(t, c);
    ls_open_crossing(t, c, use->name, kind);
    return c;
}

static inline void begin_task(const ls_domain *domain, const itt_id *id, ls_label *name) {
    if (!domain || !domain->flags || !name)
        return;
    uint32_t number = ls_domain_number((ls_domain *)domain);
    if (LS_UNLIKELY(LS_LOAD(ls_primitives_stopped)) && ls_kind_in(domain) != LF_TASK) {
        ls_nested_skip(number);
        return;
    }
    ls_context *c = open_span(domain, name, 0);
    if (LS_UNLIKELY(!c)) {
        if (ls_kind_in(domain) == LF_TASK)
            ls_range_missed();
        ls_nested_skip(number);
        return;
    }
    c->domain = number;
    c->owner->task_ids[c->depth] = id->words[0];
}

static void task_begin(const ls_domain *domain, itt_id id, itt_id parent, ls_label *name) {
    (void)parent;
    begin_task(domain, &id, name);
}

static void task_end(const ls_domain *domain) {
    if (domain && domain->flags)
        ls_nested_end(ls_domain_number((ls_domain *)domain));
}

static void task_begin_ex(const ls_domain *domain, void *clock, unsigned long long at, itt_id id, itt_id parent,
                          ls_label *name) {
    (void)clock, (void)at, (void)parent;
    begin_task(domain, &id, name);
}

static void task_end_ex(const ls_domain *domain, void *clock, unsigned long long at) {
    (void)clock, (void)at;
    task_end(domain);
}

/* A task that is called by its function: the symbol, or the library and the place in it. */
static ls_label *label_of_function(void *function) {
    char text[LF_NAME_LIMIT];
    Dl_info about = {0};
    if (dladdr(function, &about) && about.dli_sname)
        return ls_label_make(about.dli_sname);
    const char *file = about.dli_fname ? about.dli_fname : "";
    const char *slash = strrchr(file, '/');
    snprintf(text, sizeof text, "%.900s+0x%zx", slash ? slash + 1 : file,
             (size_t)((char *)function - (char *)about.dli_fbase));
    return ls_label_make(text);
}

static void task_begin_fn(const ls_domain *domain, itt_id id, itt_id parent, void *function) {
    (void)parent;
    if (domain && domain->flags)
        begin_task(domain, &id, label_of_function(function));
}

static void task_begin_fn_ex(const ls_domain *domain, void *clock, unsigned long long at, itt_id id, itt_id parent,
                             void *function) {
    (void)clock, (void)at;
    task_begin_fn(domain, id, parent, function);
}

/* --- What ends by its id ----------------------------------------------------------------------------------------- */

static void begin_async(const ls_domain *domain, const ls_id *id, ls_label *name, uint32_t kind) {
    ls_context *c = open_span(domain, name, kind);
    if (c)
        ls_carry(id, c);
    else
        ls_range_missed();
}

static void end_async(const ls_id *id) {
    uint64_t handle[2];
    if (ls.wiped && ls_async_take(id, handle))
        ls_range_end(handle);
}

static ls_id id_of(const ls_domain *domain, const itt_id *id, uint64_t what) {
    uint64_t number = ls_domain_number((ls_domain *)domain);
    return (ls_id){{id ? id->words[0] : 0, id ? id->words[1] : 0, id ? id->words[2] : 0, what << 32 | number}};
}

static void overlapped_begin(const ls_domain *domain, itt_id id, itt_id parent, ls_label *name) {
    (void)parent;
    if (!domain || !domain->flags || !name)
        return;
    ls_id key = id_of(domain, &id, BY_OVERLAPPED);
    begin_async(domain, &key, name, LF_TASK);
}

static void overlapped_end(const ls_domain *domain, itt_id id) {
    if (!domain || !domain->flags)
        return;
    ls_id key = id_of(domain, &id, BY_OVERLAPPED);
    end_async(&key);
}

static void overlapped_begin_ex(const ls_domain *domain, void *clock, unsigned long long at, itt_id id, itt_id parent,
                                ls_label *name) {
    (void)clock, (void)at;
    overlapped_begin(domain, id, parent, name);
}

static void overlapped_end_ex(const ls_domain *domain, void *clock, unsigned long long at, itt_id id) {
    (void)clock, (void)at;
    overlapped_end(domain, id);
}

/* Frames have a domain and no name. */
static ls_label frame_label = {.text = "frame"};

static void frame_begin(const ls_domain *domain, itt_id *id) {
    if (!domain || !domain->flags)
        return;
    ls_id key = id_of(domain, id, BY_FRAME);
    begin_async(domain, &key, &frame_label, LF_FRAME);
}

static void frame_end(const ls_domain *domain, itt_id *id) {
    if (!domain || !domain->flags)
        return;
    ls_id key = id_of(domain, id, BY_FRAME);
    end_async(&key);
}

static unsigned long long get_timestamp(void) { return ls_ticks(); }

/* A frame that is over, by two of our timestamps. */
static void frame_submit(const ls_domain *domain, itt_id *id, unsigned long long begin, unsigned long long end) {
    (void)id;
    unsigned long long now = ls_ticks();
    end = end && end <= now ? end : now;
    if (!domain || !domain->flags || !begin || begin > end)
        return;
    ls_thread *t;
    ls_context *c = ls_range_slot("", &t);
    if (!c) {
        ls_range_missed();
        return;
    }
    const ls_use *use = ls_label_use(&frame_label, (ls_domain *)domain);
    ls_open_slot(t, c, use->name, LF_FRAME);
    c->start = begin;
    ls_write_range(t, c, end, 1);
    ls_close_here(t, c);
}

/* --- Events ------------------------------------------------------------------------------------------------------ */

#define MOST_EVENTS 4096
static _Atomic(ls_label *) events[MOST_EVENTS];
static ls_domain no_domain = {.flags = 1, .name = ""};

/* The number of the events of this name, from 1 on; 0: too many are known. */
static int event_create(const char *name, int length) {
    char text[LF_NAME_LIMIT];
    size_t bytes = name && length > 0 ? strnlen(name, (size_t)length) : 0;
    bytes = bytes < sizeof text ? bytes : sizeof text - 1;
    memcpy(text, name ? name : "", bytes);
    text[bytes] = 0;
    ls_label *label = ls_label_make(text);
    for (int i = 0; i < MOST_EVENTS; i++) {
        ls_label *known = NULL;
        if (atomic_compare_exchange_strong(&events[i], &known, label) || known == label)
            return i + 1;
    }
    return 0;
}

static ls_label *event_of(int event, ls_id *id) {
    ls_thread *t = event > 0 && event <= MOST_EVENTS ? ls_thread_here() : NULL;
    *id = (ls_id){{(uint64_t)event, t ? t->track : 0, 0, (uint64_t)BY_EVENT << 32}};
    return t ? atomic_load(&events[event - 1]) : NULL;
}

/* An event need not end: one that begins anew was a moment. */
static int event_start(int event) {
    ls_id id;
    uint64_t handle[2];
    ls_label *label = event_of(event, &id);
    if (label && ls_async_take(&id, handle))
        ls_range_was_moment(handle);
    if (label)
        begin_async(&no_domain, &id, label, LF_EVENT);
    return 0;
}

static int event_end(int event) {
    ls_id id;
    if (event_of(event, &id))
        end_async(&id);
    return 0;
}

/* --- Markers and control ----------------------------------------------------------------------------------------- */

static void marker(const ls_domain *domain, itt_id id, ls_label *name, int scope) {
    (void)id, (void)scope;
    char text[LF_NAME_LIMIT + 2];
    if (!domain || !domain->flags || !name)
        return;
    ls_text_in_domain(text, name->text ? name->text : "(no name)", domain);
    ls_mark(text, LF_MARK_MARKER, 0);
}

static void marker_ex(const ls_domain *domain, void *clock, unsigned long long at, itt_id id, ls_label *name,
                      int scope) {
    (void)clock, (void)at;
    marker(domain, id, name, scope);
}

/* The program does not want to be measured here. All is recorded nevertheless, and it is said where that was: half of
 * the layers cannot be paused this way, and half a picture would be wrong. */
static void pause_here(void) { ls_mark("ITT", LF_MARK_PAUSED, 0); }
static void resume_here(void) { ls_mark("ITT", LF_MARK_RESUMED, 0); }

static void thread_set_name(const char *name) {
    ls_thread *t = name ? ls_thread_here() : NULL;
    if (t)
        ls_thread_name(t->ring->h.tid, name);
}

/* A name that is none makes nothing, and nothing is done with it. */
static ls_domain *domain_create(const char *name) { return name ? ls_domain_make(name) : NULL; }
static ls_label *string_handle_create(const char *name) { return name ? ls_label_make(name) : NULL; }

/* --- The table --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void *function;
} ours[] = {
    {"domain_create", (void *)domain_create},
    {"string_handle_create", (void *)string_handle_create},
    {"task_begin", (void *)task_begin},
    {"task_end", (void *)task_end},
    {"task_begin_ex", (void *)task_begin_ex},
    {"task_end_ex", (void *)task_end_ex},
    {"task_begin_fn", (void *)task_begin_fn},
    {"task_begin_fn_ex", (void *)task_begin_fn_ex},
    {"task_begin_overlapped", (void *)overlapped_begin},
    {"task_end_overlapped", (void *)overlapped_end},
    {"task_begin_overlapped_ex", (void *)overlapped_begin_ex},
    {"task_end_overlapped_ex", (void *)overlapped_end_ex},
    {"region_begin", (void *)overlapped_begin},
    {"region_end", (void *)overlapped_end},
    {"frame_begin_v3", (void *)frame_begin},
    {"frame_end_v3", (void *)frame_end},
    {"frame_submit_v3", (void *)frame_submit},
    {"get_timestamp", (void *)get_timestamp},
    {"event_create", (void *)event_create},
    {"event_start", (void *)event_start},
    {"event_end", (void *)event_end},
    {"marker", (void *)marker},
    {"marker_ex", (void *)marker_ex},
    {"pause", (void *)pause_here},
    {"resume", (void *)resume_here},
    {"thread_set_name", (void *)thread_set_name},
    {"counter_create", (void *)itt_counter_create},
    {"counter_create_typed", (void *)itt_counter_create_typed},
    {"counter_create_v3", (void *)itt_counter_create_v3},
    {"counter_set_value", (void *)itt_counter_set},
    {"counter_set_value_v3", (void *)itt_counter_set},
    {"counter_set_value_ex", (void *)itt_counter_set_ex},
    {"counter_inc", (void *)itt_counter_inc},
    {"counter_dec", (void *)itt_counter_dec},
    {"counter_inc_delta", (void *)itt_counter_inc_delta},
    {"counter_dec_delta", (void *)itt_counter_dec_delta},
    {"counter_inc_v3", (void *)itt_counter_inc_v3},
    {"counter_dec_v3", (void *)itt_counter_dec_v3},
    {"counter_inc_delta_v3", (void *)itt_counter_inc_delta_v3},
    {"counter_dec_delta_v3", (void *)itt_counter_dec_delta_v3},
    {"metadata_add", (void *)itt_metadata_add},
    {"metadata_add_with_scope", (void *)itt_metadata_add_with_scope},
    {"metadata_str_add", (void *)itt_metadata_str_add},
    {"metadata_str_add_with_scope", (void *)itt_metadata_str_add_with_scope},
    {"formatted_metadata_add", (void *)itt_formatted_metadata_add},
};

static void *ours_for(const char *name) {
    static const char prefix[] = "__itt_";
    if (strncmp(name, prefix, sizeof prefix - 1))
        return NULL;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (!strcmp(name + sizeof prefix - 1, ours[i].name))
            return ours[i].function;
    return NULL;
}

/* A library of the program that has ITT begins to use it. All that we do not take is what it would be without us. */
LS_EXPORT void __itt_api_init(itt_global *global, int groups) {
    static const unsigned char magic[] = {0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30};
    if (!global || memcmp(global->magic, magic, sizeof magic) || global->version_major != 3 || !global->functions)
        return;
    ls_itt_taken();
    int is_recorded = !ls_door_open();
    for (const itt_function *f = global->functions; f->name; f++) {
        void *function = is_recorded && (groups == GROUP_OF_ALL || f->group & groups) ? ours_for(f->name) : NULL;
        *f->function = function ? function : f->null;
    }
}

LS_EXPORT const char *__itt_api_version(void) { return "layerscope"; }

/* The library goes. Nothing of it was kept: names are copies, and a domain of ours may still be asked for. */
LS_EXPORT void __itt_api_fini(itt_global *global) { (void)global; }
