/* Functions whose frames are told by the rarer instructions of call frame information. Each spins rdi rounds. */
    .text
    .macro begin name
    .globl \name
    .type \name, @function
\name:
    .cfi_startproc
    .endm
    .macro rounds
1:  dec %rdi
    jnz 1b
    .endm
    .macro finish name
    ret
    .cfi_endproc
    .size \name, . - \name
    .endm

/* CFA by an expression: the word at rsp + 8 is the CFA. DW_CFA_def_cfa_expression: breg7 8; deref */
    begin cfa_by_expression
    lea 8(%rsp), %rax
    push %rax
    .cfi_def_cfa_offset 16
    push %rbx
    .cfi_def_cfa_offset 24
    .cfi_escape 0x0f, 3, 0x77, 8, 0x06
    mov $1, %rbx
    rounds
    pop %rbx
    .cfi_def_cfa 7, 16
    pop %rax
    .cfi_def_cfa_offset 8
    finish cfa_by_expression

/* rbp where an expression says: DW_CFA_expression rbp: lit16; neg; plus. It begins with the CFA on the stack. */
    begin register_by_expression
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_escape 0x10, 6, 3, 0x40, 0x1f, 0x22
    xor %ebp, %ebp
    rounds
    pop %rbp
    .cfi_def_cfa_offset 8
    .cfi_same_value 6
    finish register_by_expression

/* rbp is kept, less 5, in r10 and in an expression: DW_CFA_val_expression rbp: breg10 0; const1u 2; lit3; plus; plus */
    begin value_by_expression
    lea -5(%rbp), %r10
    push %rbp
    .cfi_def_cfa_offset 16
    .cfi_escape 0x16, 6, 7, 0x7a, 0, 0x08, 2, 0x33, 0x22, 0x22
    mov $77, %rbp
    rounds
    pop %rbp
    .cfi_def_cfa_offset 8
    .cfi_restore 6
    finish value_by_expression

/* rbp in another register. */
    begin register_in_register
    mov %rbp, %r11
    .cfi_register 6, 11
    xor %ebp, %ebp
    rounds
    mov %r11, %rbp
    .cfi_same_value 6
    finish register_in_register

/* remember and restore, twice inside of each other; GNU_args_size in between. */
    begin remembered
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset 3, -16
    .cfi_remember_state
    push %rbp
    .cfi_def_cfa_offset 24
    .cfi_offset 6, -24
    .cfi_remember_state
    push %r12
    .cfi_escape 0x2e, 8
    .cfi_def_cfa_offset 32
    mov $5, %rbp
    mov %rdi, %rbx
    rounds
    mov %rbx, %rdi
    pop %r12
    .cfi_restore_state
    rounds
    pop %rbp
    .cfi_restore_state
    pop %rbx
    .cfi_def_cfa_offset 8
    .cfi_restore 3
    finish remembered

/* Offsets with a sign and registers in their long forms: offset_extended, offset_extended_sf, def_cfa_sf, def_cfa_offset_sf,
 * restore_extended, GNU_negative_offset_extended (the offset counts upwards, so it is written as -2 in 10 bytes), val_offset
 * (rbp is the CFA less 48), advance_loc1 and advance_loc2 by the padding. */
    begin long_forms
    push %rbp
    .cfi_escape 0x12, 7, 0x7e
    .cfi_escape 0x11, 6, 2
    mov $3, %rbp
    rounds
    .cfi_escape 0x06, 6
    .cfi_escape 0x05, 6, 2
    .skip 100, 0x90
    .cfi_escape 0x13, 0x7e
    mov $1000, %rdi
    rounds
    .skip 300, 0x90
    .cfi_escape 0x2f, 6, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01
    mov $1000, %rdi
    rounds
    .skip 70000, 0x90
    .cfi_escape 0x05, 6, 2
    mov $1000, %rdi
    rounds
    pop %rbp
    .cfi_escape 0x13, 0x7f
    .cfi_same_value 6
    finish long_forms

    .section .note.GNU-stack, "", @progbits
