/* Numbers of texts that a thread meets again and again, by their address first. */
#ifndef LAYERSCOPE_TEXT_CACHE_H
#define LAYERSCOPE_TEXT_CACHE_H

#include "agent.h"

#include <string.h>

/* Whether the string at `text` still is the one in the cache. Word by word: a word that starts at a
 * multiple of its size never reaches into a page that the string is not on, and a shorter string differs
 * before the word behind its end. A sanitizer is right that the last word may hold bytes of others. */
typedef uint64_t __attribute__((may_alias)) word_of_text;

__attribute__((no_sanitize_address)) static inline int ls_same_text(const char *text, const ls_cached_name *known) {
    if ((uintptr_t)text % 8)
        return !strcmp(known->copy, text);
    const word_of_text *a = (const word_of_text *)text, *b = (const word_of_text *)known->copy;
    uint32_t length = known->length;
    for (; length >= 8; length -= 8)
        if (*a++ != *b++)
            return 0;
    return !length || !((*a ^ *b) << (64 - 8 * length));
}

static inline const ls_cached_name *ls_cached_by(ls_thread *t, const char *text,
                                                void (*find)(const char *, ls_cached_name *)) {
    uintptr_t bits = (uintptr_t)text;
    ls_cached_name *known = &t->cache[((bits >> 4) ^ (bits >> 13)) % LS_CACHE];
    if (LS_UNLIKELY(known->pointer != text) || LS_UNLIKELY(!ls_same_text(text, known)))
        find(text, known);
    return known;
}

static inline const ls_cached_name *ls_cached_text(ls_thread *t, const char *text) {
    return ls_cached_by(t, text, ls_name_find);
}

static inline const ls_cached_name *ls_cached_arguments(ls_thread *t, const char *text) {
    return ls_cached_by(t, text, ls_name_find_arguments);
}

#endif
