/* Feeds changed copies of a trace to the scan of traces, in pieces of any size: for sanitizers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traces/traces.h"

#define MORE 4096

static uint64_t state = 88172645463325252ull;

static uint32_t chance(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static long change(uint8_t *text, long length) {
    long at = chance() % length, some = chance() % 60;
    switch (chance() % 4) {
    case 0:
        text[at] = (uint8_t)chance();
        return length;
    case 1:
        text[at] = "{}[]\",:\\0 \nt"[chance() % 12];
        return length;
    case 2:
        if (at + some >= length)
            return at + 1;
        memmove(text + at, text + at + some, length - at - some);
        return length - some;
    }
    memset(text + at, "{[0\"9"[chance() % 5], length - at < some ? length - at : some);
    return length;
}

static void scan(const uint8_t *text, long length) {
    lt_scan *found = lt_new(chance() % 2);
    long step = 1 + chance() % (chance() % 3 ? 300 : 50000);
    for (long at = 0; at < length; at += step) {
        long size = step < length - at ? step : length - at;
        uint8_t *piece = malloc(size); /* of its own size: what is read behind it is seen */
        memcpy(piece, text + at, size);
        if (lt_feed(found, piece, size, 0) < 0)
            exit(2);
        free(piece);
        if (chance() % 3 == 0)
            lt_clear(found);
    }
    if (lt_feed(found, (const uint8_t *)"", 0, 1) < 0)
        exit(2);
    lt_free(found);
}

int main(int count, char **words) {
    long rounds = atol(words[1]);
    for (int number = 2; number < count; number++) {
        FILE *file = fopen(words[number], "rb");
        uint8_t *whole = malloc(1 << 20), *copy = malloc((1 << 20) + MORE);
        long length = (long)fread(whole, 1, 1 << 20, file);
        fclose(file);
        for (long round = 0; round < rounds; round++) {
            long from = chance() % 2 ? chance() % length : 0, left = length - from;
            memcpy(copy, whole + from, left);
            for (uint32_t changes = chance() % 12; changes && left > 1; changes--)
                left = change(copy, left);
            scan(copy, left);
        }
        free(whole);
        free(copy);
    }
    puts("all were read");
    return 0;
}
