/* DWARF expressions with the answer, as the standard tells it (DWARF 5, 2.5.1), and some that have none. */
#include "stacks/expression.h"
#include "samples.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *code; /* hexadecimal */
    bool good;
    int64_t value;
} example;

/* rbx is 100, rbp is 0x1000, memory has its own address plus 1; the rest is not known. On the stack: 7. */
static const example examples[] = {
    {"", true, 7},
    {"30", true, 0},
    {"4f", true, 31},
    {"08ff", true, 255},
    {"09ff", true, -1},
    {"0aff7f", true, 0x7fff},
    {"0b0080", true, -32768},
    {"0cffffffff", true, 0xffffffff},
    {"0dffffffff", true, -1},
    {"0e0100000000000080", true, INT64_MIN + 1},
    {"0ffeffffffffffffff", true, -2},
    {"03efcdab8967452301", true, 0x0123456789abcdef},
    {"10e58e26", true, 624485},
    {"1180 7f", true, -128},
    {"730a", true, 110},
    {"737c", true, 96},
    {"92 03 05", true, 105},
    {"7600", true, 0x1000},
    {"7600 06", true, 0x1001},
    {"7600 94 01", true, 1},
    {"7600 94 02", true, 0x1001},
    {"12 22", true, 14},
    {"33 13", true, 7},
    {"33 14 1c 1c", true, 7 - (3 - 7)},
    {"33 34 15 02 22 22", true, 3 + 4 + 7},
    {"33 16 1c", true, 3 - 7},
    {"33 34 17 1c", true, 7 - 3},
    {"33 34 17 1c 1c", true, 4 - (7 - 3)},
    {"09f9 19", true, 7},
    {"33 1a", true, 3},
    {"32 1b", true, 3},
    {"09fe 1b", true, -3},
    {"34 1d", true, 3},
    {"33 1e", true, 21},
    {"1f", true, -7},
    {"20", true, -8},
    {"38 21", true, 15},
    {"23 8001", true, 135},
    {"34 24", true, 112},
    {"31 25", true, 3},
    {"1f 31 26", true, -4},
    {"1f 31 25", true, INT64_MAX - 3},
    {"33 27", true, 4},
    {"37 29", true, 1},
    {"36 2a", true, 1},
    {"37 2b", true, 0},
    {"37 2c", true, 1},
    {"36 2d", true, 0},
    {"36 2e", true, 1},
    {"2f 0100 30 96", true, 7},
    {"31 28 0100 30", true, 7},
    {"30 28 0100 39", true, 9},
    {"33 12 31 1c 16 13 12 28 f7ff", true, 0}, /* counts down */
    {"13", false, 0},
    {"13 13", false, 0},
    {"06", false, 0},            /* nothing is at 7 */
    {"77 00", false, 0},         /* rsp is not known */
    {"90 80", false, 0},
    {"92 80 80 80", false, 0},
    {"92 20 00", false, 0},
    {"7600 94 09", false, 0},
    {"7600 94 00", false, 0},
    {"15 05", false, 0},
    {"30 1b", false, 0},
    {"30 1d", false, 0},
    {"2f fdff", false, 0}, /* for ever */
    {"2f 0001", false, 0},
    {"2f 00", false, 0},
    {"08", false, 0},
    {"e0", false, 0},
    {"9c", false, 0},
};

static bool read_word(void *of, uint64_t address, uint64_t *word) {
    (void)of;
    *word = address + 1;
    return address >= 0x1000;
}

static size_t parsed(const char *text, uint8_t *into) {
    size_t count = 0;
    unsigned value;
    for (; *text; text += *text == ' ' ? 1 : 2)
        if (*text != ' ' && sscanf(text, "%2x", &value) == 1)
            into[count++] = (uint8_t)value;
    return count;
}

int main(void) {
    int wrong = 0;
    uint64_t registers[LF_REGISTERS] = {[LF_RBX] = 100, [LF_RBP] = 0x1000};
    lu_machine machine = {registers, 1u << LF_RBX | 1u << LF_RBP, read_word, NULL};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        uint8_t code[64];
        uint64_t value = 7;
        size_t bytes = parsed(examples[i].code, code);
        bool good = lu_expression(&machine, code, bytes, true, &value);
        if (good == examples[i].good && (!good || (int64_t)value == examples[i].value))
            continue;
        wrong++;
        printf("%s: %d %ld, not %d %ld\n", examples[i].code, good, (long)value, examples[i].good,
               (long)examples[i].value);
    }
    puts(wrong ? "wrong" : "done");
    return wrong != 0;
}
