/* Objects of CPython 3.11 to 3.14, by where the members of its structures lie; tests/dump/test_python_locks.py tries the
 * numbers with each version that is there. */
#define _GNU_SOURCE
#include "python_objects.h"

#include "procfs.h"

#include <string.h>

#define NAME_BYTES 64u
#define TYPES 64u /* a power of two */
#define KEYS_MOST 256u

enum {
    OBJECT_TYPE = 8,
    TYPE_NAME = 24, TYPE_BASIC_SIZE = 32, TYPE_FLAGS = 168, /* of a PyTypeObject */
    DICT_KEYS = 32, DICT_VALUES = 40,                       /* of a PyDictObject */
    KEYS_LOG2_INDEX = 9, KEYS_KIND = 10, KEYS_ENTRIES = 24, KEYS_INDICES = 32, /* of a PyDictKeysObject */
    KEYS_GENERAL = 0,                                       /* entries have the hash too */
    NUMBER_TAG = 16, NUMBER_DIGITS = 24, DIGIT_BITS = 30,   /* of a PyLongObject */
};
#define FLAG_INLINE_VALUES (1ull << 2)  /* 3.13 */
#define FLAG_MANAGED_DICT (1ull << 4)   /* 3.11 and later: a word before the object leads to its attributes */

uint64_t sm_word(const sm_process *p, uint64_t address) {
    int32_t pid = p->pid;
    uint64_t word;
    return address && !sm_read_pages(&pid, address, &word, sizeof word) ? word : 0;
}

int sm_python_is(const sm_process *p, uint64_t object, const char *name) {
    static struct {
        uint64_t type;
        int32_t pid;
        char name[NAME_BYTES];
    } known[TYPES];
    uint64_t type = object && object % 8 == 0 ? sm_word(p, object + OBJECT_TYPE) : 0;
    uint32_t slot = (uint32_t)(type >> 4) & (TYPES - 1);
    int32_t pid = p->pid;
    if (!type || type % 8)
        return 0;
    if (known[slot].type != type || known[slot].pid != pid) {
        uint64_t text = sm_word(p, type + TYPE_NAME);
        known[slot].type = 0;
        memset(known[slot].name, 0, NAME_BYTES);
        for (uint32_t at = 0; at + 8 < NAME_BYTES && !memchr(known[slot].name, 0, at); at += 8)
            if (!text || sm_read_pages(&pid, text + at, known[slot].name + at, 8))
                return 0;
        known[slot].type = type;
        known[slot].pid = pid;
    }
    return !strcmp(known[slot].name, name);
}

/* --- Attributes --- */

/* Where in its keys a name stands; -1: nowhere. `*value`: what stands beside it there. */
static int place_of_key(const sm_process *p, uint64_t keys, const char *name, uint64_t *value) {
    uint8_t head[KEYS_INDICES];
    int32_t pid = p->pid;
    char text[NAME_BYTES];
    uint64_t count, entry[3];
    *value = 0;
    if (!keys || sm_read_pages(&pid, keys, head, sizeof head) || head[KEYS_LOG2_INDEX] > 16)
        return -1;
    memcpy(&count, head + KEYS_ENTRIES, sizeof count);
    uint64_t words = head[KEYS_KIND] == KEYS_GENERAL ? 3 : 2;
    uint64_t at = keys + KEYS_INDICES + (1ull << head[KEYS_LOG2_INDEX]);
    for (uint64_t i = 0; i < count && i < KEYS_MOST; i++, at += 8 * words) {
        if (sm_read_pages(&pid, at, entry, 8 * words))
            return -1;
        int bytes = lu_python_text(p->python, entry[words - 2], sm_read_pages, &pid, text, sizeof text);
        if (bytes == (int)strlen(name) && !memcmp(text, name, (size_t)bytes)) {
            *value = entry[words - 1];
            return (int)i;
        }
    }
    return -1;
}

static uint64_t of_dict(const sm_process *p, uint64_t dict, const char *name) {
    uint64_t value, values = sm_word(p, dict + DICT_VALUES);
    int place = place_of_key(p, sm_word(p, dict + DICT_KEYS), name, &value);
    uint64_t first = p->python >= LF_PYTHON_3_13 ? 8 : 0;
    return place < 0 ? 0 : values ? sm_word(p, values + first + 8u * (uint64_t)place) : value;
}

/* Where the values lie that an object has without a dict, and the dict that it has else; 0: not. */
static uint64_t values_of(const sm_process *p, uint64_t object, uint64_t type, uint64_t *dict) {
    *dict = sm_word(p, object - 24);
    if (p->python == LF_PYTHON_3_11)
        return sm_word(p, object - 32);
    if (p->python == LF_PYTHON_3_12) {
        uint64_t word = *dict;
        *dict = word & 1 ? 0 : word;
        return word & 1 ? word + 1 : 0;
    }
    uint64_t values = object + sm_word(p, type + TYPE_BASIC_SIZE);
    int has_values = !!(sm_word(p, type + TYPE_FLAGS) & FLAG_INLINE_VALUES) && sm_word(p, values) >> 24 & 0xff;
    return has_values ? values + 8 : 0;
}

uint64_t sm_python_attribute(const sm_process *p, uint64_t object, const char *name) {
    uint64_t type = object && object % 8 == 0 ? sm_word(p, object + OBJECT_TYPE) : 0, dict, value;
    if (!type || !(sm_word(p, type + TYPE_FLAGS) & FLAG_MANAGED_DICT))
        return 0;
    uint64_t values = values_of(p, object, type, &dict);
    if (!values)
        return dict ? of_dict(p, dict, name) : 0;
    uint64_t cached_keys = p->python == LF_PYTHON_3_11 ? 872 : 880; /* of a PyHeapTypeObject */
    int place = place_of_key(p, sm_word(p, type + cached_keys), name, &value);
    return place < 0 ? 0 : sm_word(p, values + 8u * (uint64_t)place);
}

uint64_t sm_python_first(const sm_process *p, uint64_t frame) {
    return lu_python_value(p->python, sm_word(p, lu_python_value_at(p->python, frame, 0)));
}

int64_t sm_python_number(const sm_process *p, uint64_t object) {
    if (!sm_python_is(p, object, "int"))
        return -1;
    uint64_t tag = sm_word(p, object + NUMBER_TAG), digits = sm_word(p, object + NUMBER_DIGITS);
    uint64_t count = p->python == LF_PYTHON_3_11 ? tag : tag >> 3;
    int is_negative = p->python == LF_PYTHON_3_11 ? (int64_t)tag < 0 : (tag & 3) == 2;
    if (is_negative || count > 2)
        return -1;
    uint64_t low = digits & 0xffffffff, high = count > 1 ? digits >> 32 : 0;
    return (int64_t)(count ? low | high << DIGIT_BITS : 0);
}
