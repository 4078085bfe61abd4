"""Compile units of DWARF: which of them has an address, and where its lines are.

DWARF 5, sections 6.1.2 (.debug_aranges) and 7.5 (units, abbreviations). Of a unit only the first
entry is read.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.symbols.cursor import Cursor
from layerscope.symbols.debug_sections import DebugSections
from layerscope.symbols.dwarf_forms import ADDRESS, CONSTANTS, Texts, is_implicit, value
from layerscope.symbols.elf_file import Damaged

_STMT_LIST, _LOW_PC, _HIGH_PC, _COMP_DIR, _RANGES = 0x10, 0x11, 0x12, 0x1B, 0x55
_WANTED = {_STMT_LIST, _LOW_PC, _HIGH_PC, _COMP_DIR, _RANGES}
_SKELETON, _SPLIT = 0x04, 0x05  # DW_UT_: an identity follows the header
_DECLARATIONS = (
    4096  # looked through for that of the first entry; it is the first one nearly always
)
ARANGES = np.dtype([("start", "<u8"), ("end", "<u8"), ("unit", "<u8")])


class Unit(Struct, frozen=True):
    """A compile unit. `lines`: place of its line program. `folder`: where it was compiled; empty:
    not known.

    `low`, `high`: the addresses of its code, 0 where it has several ranges.
    """

    lines: int
    folder: bytes
    low: int
    high: int


class UnitHead(NamedTuple):
    """The head of a unit: `end` of it; `abbreviations`, where its entries are declared."""

    version: int
    end: int
    abbreviations: int


def ranges(data: bytes) -> NDArray[np.void]:
    """Which addresses belong to which unit (ARANGES, by start), as `.debug_aranges` says. Ends
    where it is damaged.
    """
    found: list[NDArray[np.void]] = []
    cursor = Cursor(data)
    with contextlib.suppress(Damaged):
        while cursor.at < len(data):
            start = cursor.at
            length = cursor.length()
            end = cursor.at + length
            version, unit = cursor.number(2), cursor.offset()
            if end > len(data):
                break
            if (version, cursor.number(1), cursor.number(1)) == (2, 8, 0):
                first = start + (cursor.at - start + 15 & ~15)
                pairs = np.frombuffer(
                    data[first : first + max(0, end - first) // 16 * 16], "<u8"
                ).reshape(-1, 2)
                rows = np.zeros(len(pairs), ARANGES)
                rows["start"], rows["end"], rows["unit"] = pairs[:, 0], pairs.sum(axis=1), unit
                # What the linker has dropped begins at 0.
                found.append(rows[(rows["start"] != 0) & (rows["end"] > rows["start"])])
            cursor.at = end
    joined = np.concatenate(found) if found else np.zeros(0, ARANGES)
    return joined[np.argsort(joined["start"], kind="stable")]


def unit_places(sections: DebugSections, most: int) -> list[int]:
    """Where the first `most` units of `.debug_info` begin."""
    found: list[int] = []
    at = 0
    with contextlib.suppress(Damaged):
        size = sections.size(".debug_info")
        while at + 12 <= size and len(found) < most:
            found.append(at)
            head = sections.some(".debug_info", at, 12)
            cursor = Cursor(head)
            length = cursor.length()
            at += cursor.at + length
    return found


def unit(info: bytes, abbreviations: bytes, texts: Texts) -> Unit | None:
    """The unit at the beginning of `info`; None where it has no lines. `abbreviations`: those
    that its head names.
    """
    cursor = Cursor(info)
    head(cursor)
    code = cursor.uleb()
    found: dict[int, tuple[int, int | bytes | None]] = {}
    for attribute, form, implicit in _declaration(Cursor(abbreviations), code):
        got = implicit if is_implicit(form) else value(cursor, form, texts)
        if attribute in _WANTED:
            found[attribute] = form, got
    lines = found.get(_STMT_LIST, (0, None))[1]
    if not isinstance(lines, int):
        return None
    folder = found.get(_COMP_DIR, (0, b""))[1]
    low, high = 0, 0
    low_form, low_value = found.get(_LOW_PC, (0, None))
    high_form, high_value = found.get(_HIGH_PC, (0, None))
    is_plain = low_form == ADDRESS and (high_form == ADDRESS or high_form in CONSTANTS)
    if (
        is_plain
        and isinstance(low_value, int)
        and isinstance(high_value, int)
        and _RANGES not in found
    ):
        low, high = low_value, high_value + (0 if high_form == ADDRESS else low_value)
    return Unit(lines, folder if isinstance(folder, bytes) else b"", low, high)


def head(cursor: Cursor) -> UnitHead:
    """What stands before the entries of the unit at the cursor, and the cursor behind it."""
    length = cursor.length()
    end = cursor.at + length
    version = cursor.number(2)
    if not 2 <= version <= 5:
        raise Damaged(f"DWARF {version}")
    if version < 5:
        abbreviations = cursor.offset()
        cursor.take(1)
        return UnitHead(version, end, abbreviations)
    kind = cursor.number(1)
    cursor.take(1)
    abbreviations = cursor.offset()
    if kind in (_SKELETON, _SPLIT):
        cursor.take(8)
    return UnitHead(version, end, abbreviations)


def _declaration(cursor: Cursor, code: int) -> list[tuple[int, int, int]]:
    """(attribute, form, value if it stands here) of the entry `code`."""
    for _ in range(_DECLARATIONS):
        found = cursor.uleb()
        if found == 0:
            break
        cursor.uleb()
        cursor.take(1)
        if found == code:
            return _attributes(cursor)
        _skip_attributes(cursor)
    raise Damaged("an entry of DWARF that is declared nowhere")


def _attributes(cursor: Cursor) -> list[tuple[int, int, int]]:
    attributes = []
    while (pair := (cursor.uleb(), cursor.uleb())) != (0, 0):
        attributes.append((*pair, cursor.sleb() if is_implicit(pair[1]) else 0))
    return attributes


def _skip_attributes(cursor: Cursor) -> None:
    """Go over the attributes of an entry: there are a hundred thousand of them in libpython."""
    data, at = cursor.data, cursor.at
    try:
        while True:
            attribute, form = data[at], data[at + 1]
            at += 2
            if not attribute and not form:
                break
            if (
                attribute > 127 or form > 127 or is_implicit(form)
            ):  # more than a byte each, or a value behind them
                cursor.at = at - 2
                attribute, form = cursor.uleb(), cursor.uleb()
                if not attribute and not form:
                    at = cursor.at
                    break
                if is_implicit(form):
                    cursor.sleb()
                at = cursor.at
    except IndexError as error:
        raise Damaged("a declaration of DWARF that is cut") from error
    cursor.at = at
