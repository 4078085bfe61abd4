/* What programs count and tell by ITT: counters, and metadata, which are the arguments of tasks. */
#define _GNU_SOURCE
#include "itt.h"
#include "text_cache.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Values ------------------------------------------------------------------------------------------------------ */

static const uint8_t bytes_of[] = {8, 8, 8, 4, 4, 2, 2, 4, 8};

/* A number of a program, which may lie anywhere, in 8 bytes; floating point as double. */
static uint64_t bits_of(int type, const void *values, size_t index) {
    uint64_t bits = 0;
    memcpy(&bits, (const char *)values + index * bytes_of[type], bytes_of[type]);
    if (type == ITT_S32)
        return (uint64_t)(int64_t)(int32_t)bits;
    if (type == ITT_S16)
        return (uint64_t)(int64_t)(int16_t)bits;
    if (type == ITT_FLOAT) {
        float single;
        memcpy(&single, &bits, sizeof single);
        double number = single;
        memcpy(&bits, &number, sizeof bits);
    }
    return bits;
}

/* JSON of one of `values`. */
size_t itt_value_text(char *into, size_t bytes, int type, const void *values, size_t index) {
    uint64_t bits = bits_of(type, values, index);
    int length;
    if (type == ITT_FLOAT || type == ITT_DOUBLE) {
        double number;
        memcpy(&number, &bits, sizeof number);
        return ls_real_text(into, bytes, type == ITT_FLOAT ? 9 : 17, number);
    } else if (type == ITT_S64 || type == ITT_S32 || type == ITT_S16) {
        length = snprintf(into, bytes, "%lld", (long long)bits);
    } else {
        length = snprintf(into, bytes, "%llu", (unsigned long long)bits);
    }
    return (size_t)length;
}

/* A value of a counter: whole, and within what an int64 holds. */
int64_t itt_value_of(int type, const void *value) {
    type = type >= ITT_UNKNOWN && type <= ITT_DOUBLE ? type : ITT_U64;
    uint64_t bits = bits_of(type, value, 0);
    if (type != ITT_FLOAT && type != ITT_DOUBLE)
        return (int64_t)bits;
    double number;
    memcpy(&number, &bits, sizeof number);
    if (!(number > -9.2e18 && number < 9.2e18)) /* not a number, too */
        return number > 0 ? INT64_MAX : number < 0 ? INT64_MIN : 0;
    return (int64_t)(number < 0 ? number - 0.5 : number + 0.5);
}

/* --- Counters ---------------------------------------------------------------------------------------------------- */

static void count(const char *name, const ls_domain *domain, int64_t value) {
    char text[LF_NAME_LIMIT + 2];
    ls_text_in_domain(text, name ? name : "(no name)", domain);
    ls_counter(text, value);
}

#define MOST_COUNTERS 4096u
static itt_counter *counters, others[ITT_DOUBLE + 1]; /* others: of each type, for all that are too many */
static uint32_t counter_count;

static itt_counter *new_counter(const itt_counter *like) {
    itt_counter *counter = counter_count < MOST_COUNTERS ? malloc(sizeof *counter) : NULL;
    if (!counter) {
        counter = &others[like->type];
        counter->name = "(other counters)", counter->domain = "", counter->type = like->type;
        return counter;
    }
    *counter = *like;
    counter->next = counters;
    counters = counter;
    counter_count++;
    return counter;
}

/* One made twice is the same: programs make them in loops. */
itt_counter *itt_counter_create_typed(const char *name, const char *domain, int type) {
    itt_counter like = {.name = ls_label_make(name ? name : "(no name)")->text,
                        .domain = ls_label_make(domain ? domain : "")->text,
                        .type = type >= ITT_UNKNOWN && type <= ITT_DOUBLE ? type : ITT_U64};
    ls_lock(&ls.wiped->labels_lock);
    itt_counter *counter = counters;
    while (counter && (counter->name != like.name || counter->domain != like.domain || counter->type != like.type))
        counter = counter->next;
    if (!counter)
        counter = new_counter(&like);
    ls_unlock(&ls.wiped->labels_lock);
    return counter;
}

itt_counter *itt_counter_create(const char *name, const char *domain) {
    return itt_counter_create_typed(name, domain, ITT_U64);
}

itt_counter *itt_counter_create_v3(const ls_domain *domain, const char *name, int type) {
    return itt_counter_create_typed(name, domain ? domain->name : NULL, type);
}

static void tell(const itt_counter *counter, int64_t value) {
    const ls_domain domain = {.name = counter->domain};
    count(counter->name, &domain, value);
}

void itt_counter_set(itt_counter *counter, void *value) {
    if (counter && value)
        tell(counter, itt_value_of(counter->type, value));
}

void itt_counter_set_ex(itt_counter *counter, void *clock, unsigned long long at, void *value) {
    (void)clock, (void)at;
    itt_counter_set(counter, value);
}

void itt_counter_inc_delta(itt_counter *counter, unsigned long long delta) {
    if (counter)
        tell(counter, __atomic_add_fetch(&counter->value, (long)delta, __ATOMIC_RELAXED));
}

void itt_counter_dec_delta(itt_counter *counter, unsigned long long delta) { itt_counter_inc_delta(counter, -delta); }
void itt_counter_inc(itt_counter *counter) { itt_counter_inc_delta(counter, 1); }
void itt_counter_dec(itt_counter *counter) { itt_counter_inc_delta(counter, -1ull); }

/* These have no counter to keep the value in: one is made for each name and domain. */
#define MOST_KEPT 1024u
static struct {
    _Atomic uint64_t key; /* domain << 32 | hash of the name's address; 0: free */
    _Atomic int64_t value;
} kept[MOST_KEPT];

void itt_counter_inc_delta_v3(const ls_domain *domain, ls_label *name, unsigned long long delta) {
    if (!domain || !name || !domain->flags)
        return;
    uint64_t where = (uintptr_t)name * 0x9e3779b97f4a7c15u;
    uint64_t key = (uint64_t)ls_domain_number((ls_domain *)domain) << 32 | (uint32_t)(where >> 32) | 1;
    for (uint32_t i = 0; i < 16; i++) {
        uint64_t free = 0;
        uint32_t at = (uint32_t)((key ^ key >> 29) + i) % MOST_KEPT;
        if (!atomic_compare_exchange_strong(&kept[at].key, &free, key) && free != key)
            continue;
        count(name->text, domain, atomic_fetch_add(&kept[at].value, (int64_t)delta) + (int64_t)delta);
        return;
    }
}

void itt_counter_dec_delta_v3(const ls_domain *domain, ls_label *name, unsigned long long delta) {
    itt_counter_inc_delta_v3(domain, name, -delta);
}
void itt_counter_inc_v3(const ls_domain *domain, ls_label *name) { itt_counter_inc_delta_v3(domain, name, 1); }
void itt_counter_dec_v3(const ls_domain *domain, ls_label *name) { itt_counter_inc_delta_v3(domain, name, -1ull); }

/* --- Metadata ---------------------------------------------------------------------------------------------------- */

/* The open task of this thread that is told about: the one with this id, the innermost one where there is none. */
static ls_context *task_of(const ls_domain *domain, const itt_id *id) {
    ls_thread *t = ls_this_thread;
    if (!domain || !domain->flags || !ls.wiped || !ls_thread_is_current(t))
        return NULL;
    uint32_t number = ls_domain_number((ls_domain *)domain);
    ls_context *c = ls_nested_find(t, number);
    if (t->skips && (t->skips > LS_SKIPS || !c || t->skipped[t->skips - 1].depth > c->depth))
        return NULL; /* it is about one that is not recorded */
    if (!c || !id || !id->words[0])
        return c;
    for (uint32_t depth = c->depth + 1u; depth-- > 0;) {
        c = &t->contexts[depth];
        if (c->kind >= LF_TASK && c->domain == number && t->task_ids[depth] == id->words[0])
            return c;
    }
    return NULL;
}

static void tell_numbers(ls_context *c, const ls_domain *domain, const ls_label *key, int type, size_t values_count,
                         const void *values) {
    char *json = c->kind == LF_TASK && values && values_count ? ls_arguments_of(c, domain) : NULL;
    if (!json || type < ITT_UNKNOWN || type > ITT_DOUBLE)
        return;
    const char *name = key && key->text ? key->text : "metadata";
    char number[32];
    if (values_count == 1) {
        itt_value_text(number, sizeof number, type, values, 0);
        ls_arguments_number(json, name, number);
        return;
    }
    size_t before = strlen(json);
    ls_arguments_open(json, name);
    for (size_t i = 0; strlen(json) > before && i < values_count && i < LF_NAME_LIMIT; i++) {
        itt_value_text(number, sizeof number, type, values, i);
        ls_arguments_number(json, NULL, number);
    }
    if (strlen(json) > before)
        ls_arguments_close(json);
}

/* A text about a primitive is kept as it is: it is what its library calls its problem. */
static void tell_text(ls_context *c, const ls_domain *domain, const char *key, const char *text, size_t length) {
    if (c->kind != LF_TASK) {
        char copy[LF_NAME_LIMIT];
        size_t have = strnlen(text, length);
        if (have == LF_NAME_LIMIT) /* half a text says nothing */
            return;
        if (have == length) { /* its end is not marked */
            memcpy(copy, text, have);
            copy[have] = 0;
            text = copy;
        }
        c->args = ls_cached_arguments(c->owner, text)->id;
        return;
    }
    char *json = ls_arguments_of(c, domain);
    if (json)
        ls_arguments_text(json, key, text, length);
}

void itt_metadata_add(const ls_domain *domain, itt_id id, ls_label *key, int type, size_t values_count, void *values) {
    ls_context *c = task_of(domain, &id);
    if (c)
        tell_numbers(c, domain, key, type, values_count, values);
}

void itt_metadata_add_with_scope(const ls_domain *domain, int scope, ls_label *key, int type, size_t values_count,
                                 void *values) {
    ls_context *c = scope == ITT_SCOPE_UNKNOWN || scope == ITT_SCOPE_TASK ? task_of(domain, NULL) : NULL;
    if (c)
        tell_numbers(c, domain, key, type, values_count, values);
}

void itt_metadata_str_add(const ls_domain *domain, itt_id id, ls_label *key, const char *text, size_t length) {
    ls_context *c = text ? task_of(domain, &id) : NULL;
    if (c) /* length 0: up to its NUL */
        tell_text(c, domain, key && key->text ? key->text : "metadata", text, length ? length : LF_NAME_LIMIT);
}

void itt_metadata_str_add_with_scope(const ls_domain *domain, int scope, ls_label *key, const char *text,
                                     size_t length) {
    ls_context *c = text && (scope == ITT_SCOPE_UNKNOWN || scope == ITT_SCOPE_TASK) ? task_of(domain, NULL) : NULL;
    if (c)
        tell_text(c, domain, key && key->text ? key->text : "metadata", text, length ? length : LF_NAME_LIMIT);
}

/* oneDNN tells each primitive by the format "%s". */
void itt_formatted_metadata_add(const ls_domain *domain, ls_label *format, ...) {
    ls_context *c = format && format->text ? task_of(domain, NULL) : NULL;
    if (!c)
        return;
    va_list values;
    va_start(values, format);
    if (!strcmp(format->text, "%s")) {
        const char *text = va_arg(values, const char *);
        if (text)
            tell_text(c, domain, "metadata", text, LF_NAME_LIMIT);
    } else {
        char text[LF_NAME_LIMIT];
        int error = errno;
        int length = vsnprintf(text, sizeof text, format->text, values);
        errno = error;
        if (length >= 0)
            tell_text(c, domain, "metadata", text, sizeof text);
    }
    va_end(values);
}
