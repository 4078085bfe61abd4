/* Numbers and expressions of DWARF. */
#ifndef LAYERSCOPE_STACKS_EXPRESSION_H
#define LAYERSCOPE_STACKS_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *at, *end;
    bool bad; /* something was not there */
} lu_cursor;

uint64_t lu_take(lu_cursor *cursor, unsigned bytes);
uint64_t lu_take_uleb(lu_cursor *cursor);
int64_t lu_take_sleb(lu_cursor *cursor);
/* A pointer as `encoding` (DW_EH_PE_*) says; `here` is the address of the cursor's place, `data` that of the table. */
uint64_t lu_take_pointer(lu_cursor *cursor, uint8_t encoding, uint64_t here, uint64_t data);

typedef struct {
    const uint64_t *registers;
    uint32_t known;
    bool (*read)(void *of, uint64_t address, uint64_t *word);
    void *of;
} lu_machine;

/* Computes a DWARF expression, beginning with `*value` on the stack if `given`. */
bool lu_expression(const lu_machine *machine, const uint8_t *code, size_t bytes, bool given, uint64_t *value);

#endif
