"""Lines of Python: the location table (`co_linetable`) of CPython 3.11 and newer.

The format is that of Objects/locations.md in CPython's sources (InternalDocs/code_objects.md in
newer ones). An entry begins with a byte whose highest bit is set: bits 3 to 6 say of what kind it
is, bits 0 to 2 how many instructions of two bytes it is for, less one. What follows are numbers of
six bits a byte, the lowest first; bit 6 says that there is more.

The tables of many code objects are decoded in one go: a program has hundreds of them, and a table
has more entries than instructions that were ever seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
_NUMBER_BYTES = 6  # of 6 bits: more than any line needs
_PIECE_BYTES = 1 << 20  # of tables that are decoded in one go
_LINES = 1 << 31


class LineTable(NamedTuple):
    """What a code object tells of its lines: co_firstlineno, co_linetable; `python`: 11 for 3.11,
    and so on.
    """

    python: int
    first_line: int
    content: bytes


def code_lines(
    python: int, first_line: int, table: bytes, places: NDArray[np.integer]
) -> NDArray[np.int32]:
    """The line of each place in one code object, as `lines_in_codes` tells it."""
    table_of = np.zeros(len(places), np.int64)
    return lines_in_codes([LineTable(python, first_line, table)], table_of, places)


def lines_in_codes(
    tables: Sequence[LineTable], table_of: NDArray[np.integer], places: NDArray[np.integer]
) -> NDArray[np.int32]:
    """The line of each place, -1: none, as for what the compiler adds.

    `table_of`: which of `tables` each place is in; `places`: indices of instructions in bytes. Of
    tables of other Pythons nothing is known. What lies behind a damaged entry, or behind the table,
    has no line.
    """
    found = np.full(len(places), -1, np.int32)
    of = np.asarray(table_of).astype(np.int64)
    inside = np.asarray(places).astype(np.int64)
    for first, behind in _pieces(tables):
        mine = np.flatnonzero((of >= first) & (of < behind))
        if len(mine):
            found[mine] = _lines(tables[first:behind], of[mine] - first, inside[mine])
    return found


def _pieces(tables: Sequence[LineTable]) -> Iterator[tuple[int, int]]:
    first = size = 0
    for number, table in enumerate(tables):
        if size and size + len(table.content) > _PIECE_BYTES:
            yield first, number
            first, size = number, 0
        size += len(table.content)
    yield first, len(tables)


def _lines(
    tables: Sequence[LineTable], table_of: NDArray[np.int64], places: NDArray[np.int64]
) -> NDArray[np.int32]:
    contents = [_readable(table) for table in tables]
    bytes_behind = np.cumsum([len(content) for content in contents])
    octets = np.frombuffer(b"".join(contents), np.uint8)
    heads = np.flatnonzero(octets & 0x80)
    # The entries of all tables one after the other, and which are those of each table.
    entries_behind = np.searchsorted(heads, bytes_behind)
    entries = np.diff(entries_behind, prepend=0)
    first_entry = entries_behind - entries
    units = (octets[heads] & 7) + np.int64(1)
    ends = np.append(0, np.cumsum(_UNIT_BYTES * units))
    first_place, end_place = ends[first_entry], ends[entries_behind]
    size = end_place - first_place
    found = np.full(len(places), -1, np.int32)
    asked = first_place[table_of] + np.maximum(places, 0)
    is_inside = (places >= 0) & (places < size[table_of])
    entry = np.searchsorted(ends[1:], asked[is_inside], "right")
    table_ends = np.repeat(bytes_behind, entries)
    moves = np.append(0, np.cumsum(_moves(octets, heads, table_ends)))
    first_line = np.array([each.first_line for each in tables], np.int64)
    lines = moves[1:] + np.repeat(first_line - moves[first_entry], entries)
    has_none = octets[heads] >> 3 & 15 == _NO_LOCATION
    is_damaged = (lines < -_LINES) | (lines >= _LINES)
    if is_damaged.any():
        damaged = np.append(0, np.cumsum(is_damaged))
        has_none |= damaged[1:] > np.repeat(damaged[first_entry], entries)
    found[is_inside] = np.where(has_none, -1, lines)[entry]
    return found


def _readable(table: LineTable) -> bytes:
    """The content of a table that can be read; nothing of another one."""
    is_known = table.python in PYTHONS
    begins_entry = table.content[:1] >= b"\x80"
    is_readable = is_known and begins_entry
    return table.content if is_readable else b""


def _moves(
    octets: NDArray[np.uint8], heads: NDArray[np.int64], behind: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many lines on each entry is; `behind`: where its table ends."""
    kind = octets[heads] >> 3 & 15
    is_short = (kind >= _ONE_LINE) & (kind < _NO_COLUMNS)
    moves = np.where(is_short, kind - np.int64(_ONE_LINE), 0)
    # The others are followed by a number of bytes with six bits each.
    with_number = np.flatnonzero((kind == _LONG) | (kind == _NO_COLUMNS))
    value = np.zeros(len(with_number), np.int64)
    goes_on = np.arange(len(with_number))
    for number in range(_NUMBER_BYTES):
        entry = with_number[goes_on]
        at = heads[entry] + 1 + number
        is_there = at < behind[entry]
        goes_on = goes_on[is_there]
        octet = octets[at[is_there]].astype(np.int64)
        value[goes_on] |= (octet & 63) << 6 * number
        goes_on = goes_on[octet & 64 > 0]
    is_negative = value & 1
    size = value >> 1
    moves[with_number] = np.where(is_negative, -size, size)
    return moves
