/* Rows of unwind information. */
#ifndef LAYERSCOPE_STACKS_CFI_H
#define LAYERSCOPE_STACKS_CFI_H

#include "elf.h"

enum { LU_SAME, LU_UNDEFINED, LU_AT_CFA, LU_CFA_PLUS, LU_REGISTER, LU_EXPRESSION, LU_VALUE_EXPRESSION };
typedef struct {
    uint8_t of, kind;
    uint16_t bytes; /* of an expression */
    int32_t value;  /* offset to the CFA, register, or where in .eh_frame the expression lies */
} lu_rule;

/* How to get from a frame to its caller at one address. */
typedef struct {
    uint64_t start, end; /* of the function */
    lu_rule cfa; /* LU_REGISTER: `of` plus `value`; or LU_EXPRESSION */
    bool signal; /* a signal came here: what it interrupted was no call */
    uint8_t count;
    lu_rule rules[LF_REGISTERS]; /* of registers that do not keep their value */
} lu_row;

/* The row at an address of the object, NULL if there is none. It stays until the next call. */
const lu_row *lu_row_at(lu_object *object, uint64_t address);

#endif
