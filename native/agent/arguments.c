/* The JSON text of the arguments of a span: {"key": value, ...}, no longer than a name. `json` has room for
 * LF_NAME_LIMIT bytes, and lacks its last brace until ls_arguments_id. What does not fit is cut or left out. */
#define _GNU_SOURCE
#include "client.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MOST (LF_NAME_LIMIT - 8) /* bytes of text; then there is room for a quote, a bracket, the brace and the NUL */

/* JSON of a number with so many digits, with a decimal point whatever the program's language has (setlocale); JSON
 * knows no infinity. Its length. */
size_t ls_real_text(char *into, size_t bytes, int digits, double number) {
    if (!isfinite(number))
        return (size_t)snprintf(into, bytes, "null");
    locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)); /* of "C" there is one, and none is made */
    size_t length = (size_t)snprintf(into, bytes, "%.*g", digits, number);
    uselocale(before);
    return length;
}

/* Append a string with its quotes; whether it is whole. */
static int add_string(char *json, const char *text, size_t length) {
    size_t at = strlen(json), i;
    json[at++] = '"';
    for (i = 0; i < length && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];
        if (at + 6 > MOST)
            break;
        if (c == '"' || c == '\\') {
            json[at++] = '\\';
            json[at++] = (char)c;
        } else if (c < 0x20) {
            at += (size_t)sprintf(json + at, "\\u%04x", c);
        } else {
            json[at++] = (char)c;
        }
    }
    json[at++] = '"';
    json[at] = 0;
    return i == length || !text[i];
}

/* Begin a member; 0: there is no room for it. */
static int begin(char *json, const char *key) {
    size_t before = strlen(json);
    if (before + strnlen(key, MOST) + 48 > MOST)
        return 0;
    strcpy(json + before, before ? ", " : "{");
    if (!add_string(json, key, MOST)) {
        json[before] = 0;
        return 0;
    }
    strcat(json, ": ");
    return 1;
}

void ls_arguments_text(char *json, const char *key, const char *text, size_t length) {
    if (begin(json, key))
        add_string(json, text, length);
}

/* `number` is JSON already; without a key, one more of the list that is open. */
void ls_arguments_number(char *json, const char *key, const char *number) {
    if (key ? begin(json, key) : strlen(json) + strlen(number) + 2 < MOST) {
        if (!key && json[strlen(json) - 1] != '[')
            strcat(json, ", ");
        strcat(json, number);
    }
}

void ls_arguments_open(char *json, const char *key) {
    if (begin(json, key))
        strcat(json, "[");
}

void ls_arguments_close(char *json) { strcat(json, "]"); }

/* The number of the finished text; 0: it is empty, or there are too many different ones. */
uint32_t ls_arguments_id(char *json) {
    if (!*json)
        return 0;
    strcat(json, "}");
    ls_cached_name name;
    ls_name_find_arguments(json, &name);
    return name.id;
}

/* Its domain, which stands in the arguments of a span as in those of one that has no others. */
void ls_arguments_domain(char *json, const ls_domain *domain) {
    if (domain->name && *domain->name)
        ls_arguments_text(json, "domain", domain->name, LF_NAME_LIMIT / 4);
}

/* Where the arguments of an open span of this thread are written until it ends; it has this domain. NULL: nowhere. */
char *ls_arguments_of(ls_context *c, const ls_domain *domain) {
    ls_thread *t = c->owner;
    if (!t->arguments) {
        size_t bytes = (size_t)LF_OPEN_SLOTS * LF_NAME_LIMIT; /* only what is written to takes memory */
        char *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED)
            return NULL;
        t->arguments = made;
    }
    char *json = t->arguments + (size_t)c->depth * LF_NAME_LIMIT;
    if (c->args != LS_ARGUMENTS_LATER) {
        *json = 0;
        ls_arguments_domain(json, domain);
        c->args = LS_ARGUMENTS_LATER;
    }
    return json;
}

/* The number of what was written there. */
uint32_t ls_arguments_end(const ls_context *c) {
    return ls_arguments_id(c->owner->arguments + (size_t)c->depth * LF_NAME_LIMIT);
}
