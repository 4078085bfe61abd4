/* JSON on standard output. */
#ifndef LAYERSCOPE_SAMPLER_JSON_H
#define LAYERSCOPE_SAMPLER_JSON_H

#include <stdio.h>

/* A text in quotes. Bytes that are no UTF-8 stay as they are. */
static inline void sm_json_text(const char *text, size_t bytes) {
    putchar('"');
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

#endif
