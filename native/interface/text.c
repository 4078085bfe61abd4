/* Text that grows, JSON in it, and small files. */
#define _GNU_SOURCE
#include "interface.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *room_for(li_text *text, size_t bytes) {
    if (text->used + bytes + 1 > text->room) {
        size_t room = 2 * (text->used + bytes + 128);
        char *grown = text->failed ? NULL : realloc(text->data, room);
        if (!grown) {
            text->failed = 1;
            return NULL;
        }
        text->data = grown;
        text->room = room;
    }
    return text->data + text->used;
}

void li_add(li_text *text, const char *format, ...) {
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    int bytes = vsnprintf(NULL, 0, format, values);
    char *at = bytes >= 0 ? room_for(text, (size_t)bytes) : NULL;
    if (at) {
        vsnprintf(at, (size_t)bytes + 1, format, again);
        text->used += (size_t)bytes;
    }
    va_end(again);
    va_end(values);
}

/* How many bytes the UTF-8 character at `at` has; 0: it is none. */
static size_t character(const unsigned char *at, size_t bytes) {
    size_t length = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : at[0] >= 0xe0 && at[0] < 0xf0 ? 3
                  : at[0] >= 0xf0 && at[0] < 0xf5 ? 4 : 0;
    if (length > bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    /* Too long forms, halves of pairs, and beyond the last character. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90)
        || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

/* Append a JSON string; what is no UTF-8 becomes U+FFFD. */
void li_add_json(li_text *text, const char *words, size_t bytes) {
    const unsigned char *at = (const unsigned char *)words, *end = at + bytes;
    li_add(text, "\"");
    while (at < end) {
        size_t length = character(at, (size_t)(end - at));
        if (!length)
            li_add(text, "\\ufffd");
        else if (*at == '"' || *at == '\\')
            li_add(text, "\\%c", *at);
        else if (*at < 0x20)
            li_add(text, "\\u%04x", *at);
        else
            li_add(text, "%.*s", (int)length, (const char *)at);
        at += length ? length : 1;
    }
    li_add(text, "\"");
}

/* Append a JSON list of strings. */
void li_add_words(li_text *text, char *const *words) {
    li_add(text, "[");
    for (size_t i = 0; words[i]; i++) {
        li_add(text, i ? ", " : "");
        li_add_json(text, words[i], strlen(words[i]));
    }
    li_add(text, "]");
}

/* Write a file by rename. 0, or minus an errno. */
int li_write_file(const char *path, const li_text *text) {
    char temporary[PATH_MAX + 8];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    int fd = text->failed ? -1 : open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return text->failed ? -ENOMEM : -errno;
    ssize_t written = write(fd, text->data ? text->data : "", text->used);
    int error = written < 0 ? errno : (size_t)written < text->used ? ENOSPC : 0;
    close(fd);
    if (!error && rename(temporary, path))
        error = errno;
    if (error)
        unlink(temporary);
    return -error;
}

/* The first `bytes` - 1 bytes of a file, with a NUL behind; how many, -1: none. */
int li_read_file(const char *path, char *into, size_t bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    while (fd >= 0 && have < bytes - 1) {
        ssize_t n = read(fd, into + have, bytes - 1 - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    into[have] = 0;
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : (int)have;
}
