"""Values of attributes in DWARF 2 to 5, whatever form they have (DWARF 5, section 7.5.6, and GNU's
extensions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from layerscope.symbols.cursor import Cursor
from layerscope.symbols.elf_file import Damaged

Value = int | bytes | None
# Reads a text that lies elsewhere: name of the section, place in it.
Texts = Callable[[str, int], bytes]

ADDRESS = 0x01
_INDIRECT, _IMPLICIT = 0x16, 0x21
# Texts that lie in these sections.
ELSEWHERE: Mapping[int, str] = {0x0E: ".debug_str", 0x1F: ".debug_line_str"}
_SIZES: Mapping[int, int] = {
    ADDRESS: 8,
    0x05: 2,
    0x06: 4,
    0x07: 8,
    0x0B: 1,
    0x0C: 1,
    0x11: 1,
    0x12: 2,
    0x13: 4,
    0x14: 8,
    0x19: 0,
    0x1C: 4,
    0x1E: 16,
    0x20: 8,
    0x24: 8,
    0x25: 1,
    0x26: 2,
    0x27: 3,
    0x28: 4,
    0x29: 1,
    0x2A: 2,
    0x2B: 3,
    0x2C: 4,
}
_ULEB = {0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23, 0x1F01, 0x1F02}
_OFFSETS = {0x10, 0x17, 0x1D, 0x1F20, 0x1F21}
_BLOCKS = {0x0A: 1, 0x03: 2, 0x04: 4}
_LONG_BLOCKS = {0x09, 0x18}
# Numbers that say what they mean, without another table.
CONSTANTS = {0x05, 0x06, 0x07, 0x0B, 0x0F, 0x17}


def value(cursor: Cursor, form: int, texts: Texts) -> Value:
    """The value at the cursor, and the cursor behind it. None: a flag that is set, or a text that
    is kept elsewhere.
    """
    if form in _SIZES:
        return cursor.number(_SIZES[form])
    if form in _ULEB:
        return cursor.uleb()
    if form == 0x0D:
        return cursor.sleb()
    if form in ELSEWHERE:
        return texts(ELSEWHERE[form], cursor.offset())
    if form == 0x08:
        return cursor.text()
    if form in _OFFSETS:
        return cursor.offset()
    if form in _BLOCKS:
        return cursor.take(cursor.number(_BLOCKS[form]))
    if form in _LONG_BLOCKS:
        return cursor.take(cursor.uleb())
    if form == _INDIRECT and (real := cursor.uleb()) not in (_INDIRECT, _IMPLICIT):
        return value(cursor, real, texts)
    raise Damaged(f"DWARF has the unknown form {form:#x}")


def fixed_size(form: int, offset_bytes: int) -> int:
    """How many bytes a value of this form has; -1: it depends on the value."""
    if form in ELSEWHERE or form in _OFFSETS:
        return offset_bytes
    if is_implicit(form):
        return 0
    return _SIZES.get(form, -1)


def is_implicit(form: int) -> bool:
    """Whether the value stands where the attribute is declared."""
    return form == _IMPLICIT
