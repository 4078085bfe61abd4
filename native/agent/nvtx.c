/* The NVTX collector: what programs annotate for NVIDIA's tools, without a GPU and without those tools. Their copy of
 * the NVTX 3 header loads the library that NVTX_INJECTION64_PATH names and has it fill in tables of function pointers.
 * Facts from nvToolsExt.h, nvtxDetail/nvtxTypes.h, nvToolsExtPayload.h and nvtxDetail/nvtxExtTypes.h of
 * https://github.com/NVIDIA/NVTX; no header of theirs. */
#define _GNU_SOURCE
#include "client.h"
#include "text_cache.h"

#include <stdio.h>
#include <string.h>

enum { TABLE_OF_CALLBACKS = 1, MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { MESSAGE_ASCII = 1, MESSAGE_WIDE = 2, MESSAGE_REGISTERED = 3, COLOR_ARGB = 1 };
enum { PAYLOAD_U64 = 1, PAYLOAD_S64 = 2, PAYLOAD_DOUBLE = 3, PAYLOAD_U32 = 4, PAYLOAD_S32 = 5, PAYLOAD_FLOAT = 6 };
#define NO_TRACKING (-2) /* what push and pop return where nobody looks: the program sees no difference */
#define BY_RANGE 4ull    /* what an id is of (async_spans.c); itt.c has the others */

typedef void (*function)(void);
typedef struct {
    size_t size;
    int (*module_table)(int module, function ***table, unsigned *entries);
} callbacks;

/* nvtxEventAttributes_t */
typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    union {
        const char *ascii;
        const void *wide;
        ls_label *registered;
    } message;
} attributes;
_Static_assert(sizeof(attributes) == 48, "attributes");

static ls_domain global_domain = {.flags = 1, .name = ""};
static _Atomic uint64_t ranges;

static ls_domain *domain_of(ls_domain *domain) { return domain ? domain : &global_domain; }

/* --- Categories -------------------------------------------------------------------------------------------------- */

#define MOST_CATEGORIES 1024u
static struct {
    uint32_t domain, category;
    _Atomic(ls_label *) name;
} categories[MOST_CATEGORIES];
static _Atomic uint32_t category_count;

static ls_label *category_name(uint32_t domain, uint32_t category) {
    uint32_t count = atomic_load(&category_count);
    for (uint32_t i = count < MOST_CATEGORIES ? count : MOST_CATEGORIES; i-- > 0;) {
        ls_label *name = atomic_load(&categories[i].name);
        if (name && categories[i].category == category && categories[i].domain == domain)
            return name;
    }
    return NULL;
}

static void domain_name_category(ls_domain *domain, uint32_t category, const char *name) {
    uint32_t number = ls_domain_number(domain_of(domain));
    ls_label *label = name ? ls_label_make(name) : NULL;
    if (!label || category_name(number, category) == label)
        return;
    if (atomic_load(&category_count) >= MOST_CATEGORIES)
        return;
    uint32_t i = atomic_fetch_add(&category_count, 1);
    if (i >= MOST_CATEGORIES)
        return;
    categories[i].domain = number;
    categories[i].category = category;
    atomic_store(&categories[i].name, label);
}

static void name_category(uint32_t category, const char *name) { domain_name_category(NULL, category, name); }

static void domain_name_category_wide(ls_domain *domain, uint32_t category, const void *name) {
    char text[LF_NAME_LIMIT + 2];
    ls_text_of_wide(text, name);
    domain_name_category(domain, category, text);
}

static void name_category_wide(uint32_t category, const void *name) {
    domain_name_category_wide(NULL, category, name);
}

/* --- Names and arguments ----------------------------------------------------------------------------------------- */

/* What a range or mark is called. `buffer`: where that is written if it is nowhere else. */
static const char *text_of(const attributes *a, char *buffer) {
    const char *text = NULL;
    if (a->message_type == MESSAGE_ASCII) {
        text = a->message.ascii;
    } else if (a->message_type == MESSAGE_REGISTERED && a->message.registered) {
        text = a->message.registered->text;
    } else if (a->message_type == MESSAGE_WIDE) {
        ls_text_of_wide(buffer, a->message.wide);
        text = buffer;
    }
    return text ? text : "(no name)";
}

static uint32_t name_of(ls_thread *t, const char *text, ls_domain *domain) {
    if ((!domain->name || !*domain->name) && !memchr(text, '\n', strnlen(text, LF_NAME_LIMIT)))
        return ls_cached_text(t, text)->id;
    char both[LF_NAME_LIMIT + 2];
    ls_cached_name name;
    ls_text_in_domain(both, text, domain);
    ls_name_find(both, &name);
    return name.id;
}

static char *digits(char *end, uint64_t value) {
    *--end = 0;
    do
        *--end = (char)('0' + value % 10);
    while (value /= 10);
    return end;
}

static void add_payload(char *json, const attributes *a) {
    char text[32], *number = text;
    double real = 0;
    float single;
    int64_t whole = (int64_t)a->payload;
    switch (a->payload_type) {
    case PAYLOAD_S32:
        whole = (int32_t)whole; /* fall through */
    case PAYLOAD_S64:
        number = digits(text + sizeof text, whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole);
        if (whole < 0)
            *--number = '-';
        break;
    case PAYLOAD_U64:
    case PAYLOAD_U32:
        number = digits(text + sizeof text, a->payload_type == PAYLOAD_U32 ? (uint32_t)a->payload : a->payload);
        break;
    case PAYLOAD_DOUBLE:
        memcpy(&real, &a->payload, sizeof real);
        ls_real_text(text, sizeof text, 17, real);
        break;
    default:
        memcpy(&single, &a->payload, sizeof single);
        ls_real_text(text, sizeof text, 9, (double)single);
    }
    ls_arguments_number(json, "payload", number);
}

/* What is said besides the name and the payload. */
static void say(ls_said *said, const attributes *a, ls_domain *domain) {
    char text[16];
    *said->json = 0;
    ls_arguments_domain(said->json, domain);
    ls_label *name = a->category ? category_name(said->domain, a->category) : NULL;
    if (name)
        ls_arguments_text(said->json, "category", name->text, LF_NAME_LIMIT);
    else if (a->category)
        ls_arguments_number(said->json, "category", digits(text + sizeof text, a->category));
    if (a->color_type == COLOR_ARGB) {
        snprintf(text, sizeof text, "#%08x", a->color);
        ls_arguments_text(said->json, "color", text, sizeof text);
    }
}

static uint32_t id_of(const ls_said *said, const attributes *payload) {
    char json[LF_NAME_LIMIT];
    memcpy(json, said->json, strlen(said->json) + 1);
    if (payload)
        add_payload(json, payload);
    return ls_arguments_id(json);
}

/* The number of the text of what is said besides the name; 0: nothing is. Mostly it is what was said the last time. */
static uint32_t arguments_of(ls_thread *t, const attributes *a, ls_domain *domain) {
    uint32_t color = a->color_type == COLOR_ARGB ? a->color : 0;
    int has_payload = a->payload_type >= PAYLOAD_U64 && a->payload_type <= PAYLOAD_FLOAT;
    if (!a->category && a->color_type != COLOR_ARGB && !has_payload)
        return 0;
    uint32_t number = ls_domain_number(domain), names = atomic_load(&category_count);
    ls_said *said = &t->said;
    if (said->domain != number || said->category != a->category || said->names != names || said->color != color ||
        said->color_type != a->color_type) {
        said->domain = number, said->category = a->category, said->names = names;
        said->color = color, said->color_type = a->color_type;
        say(said, a, domain);
        said->id = id_of(said, NULL);
        if (!said->id) /* there may be room for it the next time */
            said->domain = 0;
    }
    return has_payload ? id_of(said, a) : said->id;
}

/* --- Ranges and marks -------------------------------------------------------------------------------------------- */

static ls_context *open_range(ls_domain *domain, const attributes *a, const char *text, int may_cross) {
    ls_thread *t;
    ls_context *c = ls_range_slot(text, &t);
    if (!c) {
        ls_range_missed();
        return NULL;
    }
    uint32_t name = name_of(t, text, domain), args = a ? arguments_of(t, a, domain) : 0;
    if (may_cross)
        c = ls_crossing_slot(t, c);
    ls_open_crossing(t, c, name, LF_TASK);
    c->args = args;
    return c;
}

static void push(ls_domain *domain, const attributes *a, const char *text) {
    uint32_t number = ls_domain_number(domain);
    ls_context *c = open_range(domain, a, text ? text : "(no name)", 0);
    if (c)
        c->domain = number;
    else
        ls_nested_skip(number);
}

static int domain_push(ls_domain *domain, const attributes *a) {
    char buffer[LF_NAME_LIMIT + 2];
    if (a)
        push(domain_of(domain), a, text_of(a, buffer));
    else
        push(domain_of(domain), NULL, NULL);
    return NO_TRACKING;
}

static int push_attributes(const attributes *a) { return domain_push(NULL, a); }

static int push_text(const char *text) {
    push(&global_domain, NULL, text);
    return NO_TRACKING;
}

static int push_wide(const void *wide) {
    char text[LF_NAME_LIMIT + 2];
    ls_text_of_wide(text, wide);
    return push_text(text);
}

static int domain_pop(ls_domain *domain) {
    ls_nested_end(ls_domain_number(domain_of(domain)));
    return NO_TRACKING;
}

static int pop(void) { return domain_pop(NULL); }

static uint64_t start(ls_domain *domain, const attributes *a, const char *text) {
    uint64_t number = atomic_fetch_add(&ranges, 1) + 1;
    ls_context *c = open_range(domain, a, text ? text : "(no name)", 1);
    if (c)
        ls_carry(&(ls_id){{number, 0, 0, BY_RANGE << 32}}, c);
    return number;
}

static uint64_t domain_start(ls_domain *domain, const attributes *a) {
    char buffer[LF_NAME_LIMIT + 2];
    return start(domain_of(domain), a, a ? text_of(a, buffer) : NULL);
}

static uint64_t start_attributes(const attributes *a) { return domain_start(NULL, a); }
static uint64_t start_text(const char *text) { return start(&global_domain, NULL, text); }

static uint64_t start_wide(const void *wide) {
    char text[LF_NAME_LIMIT + 2];
    ls_text_of_wide(text, wide);
    return start_text(text);
}

static void end(uint64_t number) {
    uint64_t handle[2];
    if (number && ls_async_take(&(ls_id){{number, 0, 0, BY_RANGE << 32}}, handle))
        ls_range_end(handle);
}

static void domain_end(ls_domain *domain, uint64_t number) {
    (void)domain;
    end(number);
}

static void mark(ls_domain *domain, const char *text) {
    char both[LF_NAME_LIMIT + 2];
    ls_text_in_domain(both, text ? text : "(no name)", domain);
    ls_mark(both, LF_MARK_MARKER, 0);
}

static void domain_mark(ls_domain *domain, const attributes *a) {
    char buffer[LF_NAME_LIMIT + 2];
    mark(domain_of(domain), a ? text_of(a, buffer) : NULL);
}

static void mark_attributes(const attributes *a) { domain_mark(NULL, a); }
static void mark_text(const char *text) { mark(&global_domain, text); }

static void mark_wide(const void *wide) {
    char text[LF_NAME_LIMIT + 2];
    ls_text_of_wide(text, wide);
    mark_text(text);
}

/* --- The rest ---------------------------------------------------------------------------------------------------- */

static void name_thread(uint32_t tid, const char *name) {
    if (name)
        ls_thread_name((int32_t)tid, name);
}

static void name_thread_wide(uint32_t tid, const void *wide) {
    char text[LF_NAME_LIMIT + 2];
    ls_text_of_wide(text, wide);
    name_thread(tid, text);
}

static void *register_text(ls_domain *domain, const char *text) {
    (void)domain;
    return ls_label_make(text ? text : "(no name)");
}

static void *register_wide(ls_domain *domain, const void *wide) {
    char text[LF_NAME_LIMIT + 2];
    ls_text_of_wide(text, wide);
    return register_text(domain, text);
}

static void *create_domain(const char *name) { return ls_domain_make(name ? name : ""); }

static void *create_domain_wide(const void *wide) {
    char text[LF_NAME_LIMIT + 2];
    ls_text_of_wide(text, wide);
    return create_domain(text);
}

static const function core[] = {
    [1] = (function)mark_attributes, [2] = (function)mark_text,      [3] = (function)mark_wide,
    [4] = (function)start_attributes, [5] = (function)start_text,    [6] = (function)start_wide,
    [7] = (function)end,             [8] = (function)push_attributes, [9] = (function)push_text,
    [10] = (function)push_wide,      [11] = (function)pop,           [12] = (function)name_category,
    [13] = (function)name_category_wide, [14] = (function)name_thread, [15] = (function)name_thread_wide,
};
/* 6, 7: resources; 14: a domain is kept, another of its name may be in use; 15: initialize. */
static const function core2[] = {
    [1] = (function)domain_mark,     [2] = (function)domain_start,   [3] = (function)domain_end,
    [4] = (function)domain_push,     [5] = (function)domain_pop,     [8] = (function)domain_name_category,
    [9] = (function)domain_name_category_wide, [10] = (function)register_text, [11] = (function)register_wide,
    [12] = (function)create_domain,  [13] = (function)create_domain_wide,
};

static void fill(const callbacks *from, int module, const function *ours, unsigned count) {
    function **table = NULL;
    unsigned entries = 0;
    if (!from->module_table(module, &table, &entries) || !table)
        return;
    for (unsigned i = 1; i < count && i < entries; i++)
        if (table[i] && ours[i])
            *table[i] = ours[i];
}

/* A library of the program that has NVTX begins to use it. 0: it is not recorded; then each call costs it nothing. */
LS_EXPORT int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const callbacks *from = export_table ? export_table(TABLE_OF_CALLBACKS) : NULL;
    if (!from || from->size < sizeof *from || !from->module_table || ls_door_open())
        return 0;
    fill(from, MODULE_CORE, core, sizeof core / sizeof *core);
    fill(from, MODULE_CORE2, core2, sizeof core2 / sizeof *core2);
    return 1;
}

/* --- The extension for payloads ---------------------------------------------------------------------------------- */

/* Ranges that are given structs: NCCL pops some that it has pushed as all others in this way. What is in the structs is
 * not read. */
enum { EXTENSION_PAYLOADS = 2 };

/* nvtxExtModuleSegment_t, nvtxExtModuleInfo_t */
typedef struct {
    size_t id, count;
    function *slots;
} segment;
typedef struct {
    uint16_t version, size, module, compatible;
    size_t segment_count;
    segment *segments;
} extension;

static void mark_payload(ls_domain *domain, const void *payload, size_t count) {
    (void)payload, (void)count;
    domain_mark(domain, NULL);
}

static int push_payload(ls_domain *domain, const void *payload, size_t count) {
    (void)payload, (void)count;
    return domain_push(domain, NULL);
}

static int pop_payload(ls_domain *domain, const void *payload, size_t count) {
    (void)payload, (void)count;
    return domain_pop(domain);
}

static uint64_t start_payload(ls_domain *domain, const void *payload, size_t count) {
    (void)payload, (void)count;
    return domain_start(domain, NULL);
}

static void end_payload(ls_domain *domain, uint64_t number, const void *payload, size_t count) {
    (void)payload, (void)count;
    domain_end(domain, number);
}

/* 0, 1: schemas and enumerations of the structs. */
static const function payloads[] = {
    [2] = (function)mark_payload,  [3] = (function)push_payload, [4] = (function)pop_payload,
    [5] = (function)start_payload, [6] = (function)end_payload,
};

/* The same for an extension of NVTX. Slots that are left alone are switched off by the header. */
LS_EXPORT int InitializeInjectionNvtxExtension(const extension *of) {
    if (!of || of->module != EXTENSION_PAYLOADS || !of->segment_count || !of->segments || ls_door_open())
        return 0;
    const segment *first = of->segments;
    for (size_t i = 0; i < sizeof payloads / sizeof *payloads && i < first->count; i++)
        if (payloads[i])
            first->slots[i] = payloads[i];
    return 1;
}
