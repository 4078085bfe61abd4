"""Lines of Python: the location table (`co_linetable`) of CPython 3.11 and newer.

The format is that of Objects/locations.md in CPython's sources (InternalDocs/code_objects.md in
newer ones). An entry begins with a byte whose highest bit is set: bits 3 to 6 say of what kind it
is, bits 0 to 2 how many instructions of two bytes it is for, less one. What follows are numbers of
six bits a byte, the lowest first; bit 6 says that there is more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PYTHONS = (11, 12, 13, 14)
_NO_LOCATION, _LONG, _NO_COLUMNS, _ONE_LINE = (
    15,
    14,
    13,
    10,
)  # _ONE_LINE and the two behind it: 0, 1, 2 lines on
_UNIT_BYTES = 2
_NUMBER_BITS_MOST = (
    36  # more than any line needs; a damaged table must not make numbers of a megabyte
)


def code_lines(
    python: int, first_line: int, table: bytes, places: NDArray[np.integer]
) -> NDArray[np.int32]:
    """The line of each place in a code object, -1: none, as for what the compiler adds.

    `python`: 11 for 3.11, and so on; of others nothing is known. `first_line`, `table`:
    co_firstlineno, co_linetable. `places`: indices of instructions in bytes. What lies behind a
    damaged entry, or behind the table, has no line.
    """
    found = np.full(len(places), -1, np.int32)
    if python not in PYTHONS:
        return found
    ends, lines = _entries(first_line, table)
    if len(ends):
        entry = np.searchsorted(ends, places, "right")
        inside = (np.asarray(places) >= 0) & (entry < len(ends))
        found[inside] = lines[entry[inside]]
    return found


def _entries(first_line: int, table: bytes) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Where each entry ends, in bytes of instructions, and its line."""
    ends: list[int] = []
    lines: list[int] = []
    line, end, at = first_line, 0, 0
    while at < len(table) and table[at] & 0x80:
        kind, units = table[at] >> 3 & 15, (table[at] & 7) + 1
        if kind in (_LONG, _NO_COLUMNS):
            line += _signed(table, at + 1)
        elif _ONE_LINE <= kind < _NO_COLUMNS:
            line += kind - _ONE_LINE
        if not -(1 << 31) <= line < 1 << 31:
            break
        end += units * _UNIT_BYTES
        ends.append(end)
        lines.append(line if kind != _NO_LOCATION else -1)
        at += 1
        while at < len(table) and not table[at] & 0x80:
            at += 1
    return np.array(ends, np.int64), np.array(lines, np.int32)


def _signed(table: bytes, at: int) -> int:
    """The number at `at`: its lowest bit is its sign."""
    value = shift = 0
    while at < len(table) and shift < _NUMBER_BITS_MOST:
        value |= (table[at] & 63) << shift
        if not table[at] & 64:
            break
        shift += 6
        at += 1
    return -(value >> 1) if value & 1 else value >> 1
