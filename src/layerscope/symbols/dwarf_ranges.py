"""Which addresses an entry of DWARF has: one piece, or a list in `.debug_ranges` (before DWARF 5)
or `.debug_rnglists` (DWARF 5, sections 2.17 and 7.25).
"""

from __future__ import annotations

from layerscope.symbols.cursor import Cursor
from layerscope.symbols.debug_sections import DebugSections
from layerscope.symbols.dwarf_entries import (
    ADDR_BASE,
    HIGH_PC,
    LOW_PC,
    RANGES,
    RNGLISTS_BASE,
    Attributes,
    UnitEntries,
)
from layerscope.symbols.dwarf_forms import ADDRESS
from layerscope.symbols.elf_file import Damaged

_SECTION_BYTES = 1 << 26
_ADDRESSES = (1 << 64) - 1
_RNGLISTX = 0x23
_END, _BASE_X, _START_X_END_X, _START_X_LENGTH = 0, 1, 2, 3  # DW_RLE_
_OFFSET_PAIR, _BASE, _START_END, _START_LENGTH = 4, 5, 6, 7
Piece = tuple[int, int]


class RangeLists:
    """The lists of one file, and the addresses that they number."""

    def __init__(self, sections: DebugSections) -> None:
        self._sections = sections
        # What has been read, by the name of the section.
        self._read: dict[str, bytes] = {}

    def section(self, name: str) -> bytes:
        """All of a section; nothing where there is none."""
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = self._sections.whole(name, _SECTION_BYTES)
        return found


class Ranges:
    """The addresses of the entries of one unit."""

    def __init__(self, lists: RangeLists, unit: UnitEntries) -> None:
        self._unit = unit
        self._lists = lists
        self._is_new = unit.version >= 5
        name = ".debug_rnglists" if self._is_new else ".debug_ranges"
        self._section = lists.section(name)
        self._addresses = _number(unit.own, ADDR_BASE, 8)
        self._base = _number(unit.own, RNGLISTS_BASE, 0)
        # What addresses in lists are counted from, until one says otherwise.
        form, low = unit.own.get(LOW_PC, (ADDRESS, 0))
        self._low = self._address(form, low)

    def of(self, entry: Attributes) -> list[Piece]:
        """The addresses of an entry, each piece with its first and the one behind its last; none
        where it has no code.
        """
        if RANGES in entry:
            return self._list(*entry[RANGES])
        if LOW_PC not in entry or HIGH_PC not in entry:
            return []
        low = self._address(*entry[LOW_PC])
        form, high = entry[HIGH_PC]
        if not isinstance(high, int):
            return []
        end = low + high
        if form == ADDRESS:
            end = self._address(form, high)
        return [(low, end)]

    def _address(self, form: int, value: int | bytes | None) -> int:
        """The address that an attribute has, or numbers."""
        if not isinstance(value, int):
            raise Damaged("an address that is no number")
        return value if form == ADDRESS else self._numbered(value)

    def _numbered(self, index: int) -> int:
        """The address of that number in `.debug_addr`."""
        table = self._lists.section(".debug_addr")
        place = self._addresses + 8 * index
        cursor = Cursor(table, place)
        return cursor.number(8)

    def _list(self, form: int, value: int | bytes | None) -> list[Piece]:
        """The pieces of a list, by its place or by its number."""
        if not isinstance(value, int):
            raise Damaged("a list of addresses that is nowhere")
        at = value
        if form == _RNGLISTX:
            width = self._unit.offset_bytes
            numbered = Cursor(self._section, self._base + width * value)
            at = self._base + numbered.number(width)
        cursor = Cursor(self._section, at)
        return self._entries(cursor) if self._is_new else self._pairs(cursor)

    def _pairs(self, cursor: Cursor) -> list[Piece]:
        """A list of `.debug_ranges`."""
        found: list[Piece] = []
        base = self._low
        while (pair := (cursor.number(8), cursor.number(8))) != (0, 0):
            if pair[0] == _ADDRESSES:
                base = pair[1]
            else:
                found.append((base + pair[0], base + pair[1]))
        return found

    def _entries(self, cursor: Cursor) -> list[Piece]:
        """A list of `.debug_rnglists`."""
        found: list[Piece] = []
        base = self._low
        while (kind := cursor.number(1)) != _END:
            if kind == _OFFSET_PAIR:
                low = cursor.uleb()
                found.append((base + low, base + cursor.uleb()))
            elif kind == _BASE:
                base = cursor.number(8)
            elif kind == _BASE_X:
                base = self._numbered(cursor.uleb())
            elif kind == _START_LENGTH:
                low = cursor.number(8)
                found.append((low, low + cursor.uleb()))
            elif kind == _START_END:
                low = cursor.number(8)
                found.append((low, cursor.number(8)))
            elif kind == _START_X_LENGTH:
                low = self._numbered(cursor.uleb())
                found.append((low, low + cursor.uleb()))
            elif kind == _START_X_END_X:
                low = self._numbered(cursor.uleb())
                found.append((low, self._numbered(cursor.uleb())))
            else:
                raise Damaged(f"a list of addresses with the unknown entry {kind}")
        return found


def _number(entry: Attributes, attribute: int, otherwise: int) -> int:
    _, value = entry.get(attribute, (0, None))
    return value if isinstance(value, int) else otherwise
