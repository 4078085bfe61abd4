/* Texts, each once, in a table with open addressing. */
#include <stdlib.h>
#include <string.h>

#include "traces.h"

#define FIRST_CAPACITY 1024

static uint64_t mixed(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t hash_of(const uint8_t *p, size_t length) {
    uint64_t hash = 0x9e3779b97f4a7c15ull ^ length, word;
    for (; length >= 8; p += 8, length -= 8) {
        memcpy(&word, p, 8);
        hash = mixed(hash ^ word, 0xa0761d6478bd642full);
    }
    word = 0;
    memcpy(&word, p, length);
    return mixed(hash ^ word, 0xe7037ed1a0b428dbull);
}

static int has_room(lt_words *words) {
    if (words->count < words->capacity)
        return 1;
    if (words->capacity >= (uint32_t)1 << 29)
        return 0;
    uint32_t capacity = words->capacity ? words->capacity * 2 : FIRST_CAPACITY, mask = capacity * 2 - 1;
    uint64_t *at = realloc(words->at, ((size_t)capacity + 1) * sizeof *at);
    if (at)
        words->at = at;
    uint64_t *hash = realloc(words->hash, capacity * sizeof *hash);
    if (hash)
        words->hash = hash;
    int32_t *slot = malloc(((size_t)mask + 1) * sizeof *slot);
    if (!at || !hash || !slot) {
        free(slot);
        return 0;
    }
    free(words->slot);
    words->slot = slot;
    words->capacity = capacity;
    words->mask = mask;
    words->at[0] = 0;
    memset(slot, 255, ((size_t)mask + 1) * sizeof *slot);
    for (uint32_t number = 0; number < words->count; number++) {
        uint32_t place = (uint32_t)words->hash[number] & mask;
        while (slot[place] >= 0)
            place = (place + 1) & mask;
        slot[place] = (int32_t)number;
    }
    return 1;
}

static int has_room_for(lt_words *words, size_t length) {
    if (words->text && words->used + length <= words->room)
        return 1;
    size_t room = (words->used + length) * 3 / 2 + 65536;
    uint8_t *text = realloc(words->text, room);
    if (!text)
        return 0;
    words->text = text;
    words->room = room;
    return 1;
}

static int is_word(const lt_words *words, uint32_t number, lt_part part) {
    uint64_t at = words->at[number];
    return words->at[number + 1] - at == part.length && !memcmp(words->text + at, part.at, part.length);
}

static int32_t searched(lt_words *words, lt_part part) {
    if (!has_room(words))
        return -1;
    uint64_t hash = hash_of(part.at, part.length);
    uint32_t place = (uint32_t)hash & words->mask;
    int32_t known;
    while ((known = words->slot[place]) >= 0) {
        if (words->hash[known] == hash && is_word(words, (uint32_t)known, part))
            return known;
        place = (place + 1) & words->mask;
    }
    if (!has_room_for(words, part.length))
        return -1;
    memcpy(words->text + words->used, part.at, part.length);
    words->used += part.length;
    words->hash[words->count] = hash;
    words->slot[place] = (int32_t)words->count;
    words->at[words->count + 1] = words->used;
    return (int32_t)words->count++;
}

/* The number of a text; -1 where there is no memory for it. */
int32_t lt_word(lt_words *words, lt_part part) {
    if (words->count && is_word(words, words->last, part)) /* events in a row have much in common */
        return (int32_t)words->last;
    int32_t found = searched(words, part);
    if (found >= 0)
        words->last = (uint32_t)found;
    return found;
}

void lt_free_words(lt_words *words) {
    free(words->text);
    free(words->at);
    free(words->hash);
    free(words->slot);
}
