/* Domains and names that a program makes for ITT and NVTX. One made twice is the same: programs make them in loops. */
#define _GNU_SOURCE
#include "client.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define CHAINS 4096u
#define MOST_LABELS (1u << 17) /* a program that makes more of them makes a name for each moment */
#define MOST_DOMAINS (1u << 12)

static ls_label *labels[CHAINS];
static ls_domain *domains;
static uint32_t label_count, domain_count;
static _Atomic int numbers;
static ls_label other_label = {.text = "(other names)"};
static ls_domain other_domain = {.flags = 1, .name = "(other domains)"};

static char *copied(const char *text) {
    size_t length = strnlen(text, LF_NAME_LIMIT);
    char *copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
    }
    return copy;
}

static int is_copy(const char *copy, const char *text) {
    return !strncmp(copy, text, LF_NAME_LIMIT);
}

static uint32_t chain_of(const char *text) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < LF_NAME_LIMIT && text[i]; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return (hash ^ hash >> 15) % CHAINS;
}

/* A fork may fall anywhere in here: what it copies is a whole chain, with or without the new one. */
static ls_label *new_label(ls_label **chain, const char *text) {
    if (label_count >= MOST_LABELS)
        return &other_label;
    ls_label *label = calloc(1, sizeof *label);
    if (!label || !(label->text = copied(text))) {
        free(label);
        return &other_label;
    }
    label->next = *chain;
    *chain = label;
    label_count++;
    return label;
}

ls_label *ls_label_make(const char *text) {
    ls_label **chain = &labels[chain_of(text)], *label;
    ls_lock(&ls.wiped->labels_lock);
    for (label = *chain; label && !is_copy(label->text, text);)
        label = label->next;
    if (!label)
        label = new_label(chain, text);
    ls_unlock(&ls.wiped->labels_lock);
    return label;
}

static ls_domain *new_domain(const char *name) {
    if (domain_count >= MOST_DOMAINS)
        return &other_domain;
    ls_domain *domain = calloc(1, sizeof *domain);
    if (!domain || !(domain->name = copied(name))) {
        free(domain);
        return &other_domain;
    }
    domain->flags = 1;
    domain->next = domains;
    domains = domain;
    domain_count++;
    return domain;
}

ls_domain *ls_domain_make(const char *name) {
    ls_lock(&ls.wiped->labels_lock);
    ls_domain *domain = domains;
    while (domain && !is_copy(domain->name, name))
        domain = domain->next;
    if (!domain)
        domain = new_domain(name);
    ls_unlock(&ls.wiped->labels_lock);
    return domain;
}

uint32_t ls_domain_count(ls_domain *domain) {
    int none = 0, number = atomic_fetch_add(&numbers, 1) + 1;
    if (__atomic_compare_exchange_n(&domain->number, &none, number, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return (uint32_t)number;
    return (uint32_t)none;
}

/* A name of the recording: what the program calls it, in one line, and its domain in a second one. Its length. */
size_t ls_text_in_domain(char *into, const char *text, const ls_domain *domain) {
    const char *name = domain->name ? domain->name : "";
    size_t second = strnlen(name, LF_NAME_LIMIT / 4), first = strnlen(text, LF_NAME_LIMIT - second - 1);
    for (size_t at = 0; at < first; at++)
        into[at] = text[at] == '\n' || text[at] == '\r' ? ' ' : text[at];
    into[first] = second ? '\n' : 0;
    memcpy(into + first + 1, name, second);
    into[first + 1 + second] = 0;
    return first;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), less = strlen(end);
    return length >= less && !strcmp(text + length - less, end);
}

/* oneDNN tells its primitives in domains of their own: dnnl::primitive::execute since 2.3, ::create since 3.12. */
uint32_t ls_kind_in(const ls_domain *domain) {
    const char *name = domain->name ? domain->name : "";
    if (ends_with(name, "::primitive::execute"))
        return LF_EXECUTE;
    return ends_with(name, "::primitive::create") ? LF_CREATE : LF_TASK;
}

const ls_use *ls_label_learn(ls_label *label, ls_domain *domain) {
    char text[LF_NAME_LIMIT + 2];
    uint32_t kind = ls_kind_in(domain);
    const char *known = label->text ? label->text : "(no name)";
    if (kind == LF_TASK) {
        ls_text_in_domain(text, known, domain);
        known = text;
    }
    ls_cached_name name;
    ls_name_find(known, &name);
    ls_use *use = name.id ? malloc(sizeof *use) : NULL;
    if (!use) { /* there may be room for the name the next time */
        static const ls_use nameless[] = {{.kind = LF_TASK}, {.kind = LF_EXECUTE}, {.kind = LF_CREATE}};
        return &nameless[kind == LF_TASK ? 0 : kind == LF_EXECUTE ? 1 : 2];
    }
    *use = (ls_use){LS_LOAD(ls.wiped->generation), ls_domain_number(domain), name.id, kind, LS_LOAD(label->uses)};
    while (!__atomic_compare_exchange_n(&label->uses, &use->next, use, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    return use;
}

/* UTF-8 of a wchar_t string, as much as a name may have. */
void ls_text_of_wide(char *into, const void *wide) {
    size_t length = 0;
    for (const wchar_t *at = wide; at && *at && length + 4 <= LF_NAME_LIMIT; at++) {
        uint32_t code = (uint32_t)*at <= 0x10ffff ? (uint32_t)*at : 0xfffd;
        int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        static const uint8_t heads[] = {0, 0xc0, 0xe0, 0xf0};
        into[length++] = (char)(heads[more] | code >> 6 * more);
        while (more--)
            into[length++] = (char)(0x80 | (code >> 6 * more & 0x3f));
    }
    into[length] = 0;
}
