"""Functions that a compiler has inlined, by the DWARF of an ELF file: which of them an address lies
in, and where they are called.

Only units that have the addresses are read, and of these only functions that have them (DWARF 5,
section 3.3.8).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from msgspec import Struct

from layerscope.symbols import dwarf_units
from layerscope.symbols.debug_sections import DebugSections
from layerscope.symbols.dwarf_entries import (
    CALL_FILE,
    CALL_LINE,
    ORIGIN,
    Attributes,
    Declaration,
    TooLarge,
    UnitEntries,
)
from layerscope.symbols.dwarf_names import EntryNames
from layerscope.symbols.dwarf_ranges import RangeLists, Ranges
from layerscope.symbols.elf_file import Damaged

INFO_BYTES = 1 << 24  # of the units of one file that are read in one go
_UNITS = 4096
# DW_TAG_
_SUBPROGRAM, _INLINED = 0x2E, 0x1D
_AROUND = {0x11, 0x39, 0x1E, 0x0B, 0x32, 0x25}  # compile unit, namespace, module, blocks
_TAGS = {_SUBPROGRAM, _INLINED, *_AROUND}


class InlinedCall(NamedTuple):
    """A function that was inlined: its name as the linker would have it, and where it is called:
    the number of the file in the lines of the unit, and the line; 0: not known.
    """

    name: str
    file: int
    line: int


class _Call(Struct, frozen=True):
    """The same with the place of what tells its name, in `.debug_info`."""

    origin: int
    file: int
    line: int


class InlinedCalls:
    """The inlined functions of one file. `has_left_out`: a limit has left some out."""

    def __init__(self, sections: DebugSections) -> None:
        self._sections = sections
        self._lists = RangeLists(sections)
        # Those that were read, by where they begin, and how many bytes they have.
        self._units: dict[int, UnitEntries] = {}
        self._bytes = 0
        # Where all units begin, as soon as somebody has to know.
        self._places: list[int] | None = None
        self.has_left_out = False

    def find(self, place: int, addresses: list[int]) -> list[list[InlinedCall]] | None:
        """The calls that each address lies in, from the outside in; None where a limit forbids to
        look. `place`: of the unit that has them, in `.debug_info`; `addresses` in order.
        """
        try:
            unit = self._unit(place)
            chains = _chains(unit, Ranges(self._lists, unit), addresses)
            origins = {call.origin for chain in chains for call in chain}
            names = EntryNames(self._unit_of).of(origins)
        except TooLarge:
            self.has_left_out = True
            return None
        except (Damaged, RecursionError):
            return [[] for _ in addresses]
        return [
            [InlinedCall(names[call.origin], call.file, call.line) for call in chain]
            for chain in chains
        ]

    def _unit(self, place: int) -> UnitEntries:
        """The unit that begins at a place of `.debug_info`."""
        known = self._units.get(place)
        if known is None:
            left = INFO_BYTES - self._bytes
            known = UnitEntries(self._sections, place, left)
            self._units[place] = known
            self._bytes += known.bytes_
        return known

    def _unit_of(self, place: int) -> UnitEntries | None:
        """The unit that a place of `.debug_info` is in; None where it is in none."""
        for unit in reversed(self._units.values()):
            if unit.has(place):
                return unit
        if place < 0:
            return None
        if self._places is None:
            self._places = dwarf_units.unit_places(self._sections, _UNITS)
        before = bisect_right(self._places, place)
        if not before:
            return None
        unit = self._unit(self._places[before - 1])
        return unit if unit.has(place) else None


def _chains(unit: UnitEntries, ranges: Ranges, addresses: list[int]) -> list[list[_Call]]:
    """The calls that each address lies in, from the outside in."""
    walk = _Walk(unit, ranges, addresses)
    unit.walk(walk.visit, _TAGS)
    rest = [row for row, is_found in enumerate(walk.is_in_function) if not is_found]
    if rest:  # functions may stand within others, and within classes
        left = [addresses[row] for row in rest]
        again = _Walk(unit, ranges, left)
        unit.walk(again.visit, _TAGS, is_thorough=True)
        for row, chain in zip(rest, again.chains, strict=True):
            walk.chains[row] = chain
    return walk.chains


class _Walk:
    """What a walk through one unit sees of the calls around addresses."""

    def __init__(self, unit: UnitEntries, ranges: Ranges, addresses: list[int]) -> None:
        self._unit = unit
        self._ranges = ranges
        self._addresses = addresses
        # By row of the addresses.
        self.chains: list[list[_Call]] = [[] for _ in addresses]
        self.is_in_function = [False] * len(addresses)
        # What is around an entry, by its depth: None is a function.
        self._around: list[tuple[int, _Call | None]] = []

    def visit(self, place: int, declaration: Declaration, at: int, depth: int) -> bool:
        """See an entry; whether addresses may be in what it contains."""
        while self._around and self._around[-1][0] >= depth:
            self._around.pop()
        tag = declaration.tag
        if tag in _AROUND:
            return True
        if tag == _INLINED and not self._around:  # in a function without any of the addresses
            return False
        code = self._unit.code(declaration, at)
        rows = self._rows(code)
        if not rows:
            return False
        outer = None
        if self._around:
            _, outer = self._around[-1]
        call = None
        if tag == _SUBPROGRAM:
            for row in rows:
                self.is_in_function[row] = True
                self.chains[row] = []
        else:
            entry = self._unit.read(declaration, at)
            call = self._call(entry)
            for row in rows:
                chain = self.chains[row]
                last = chain[-1] if chain else None
                if last is outer:
                    chain.append(call)
        self._around.append((depth, call))
        return True

    def _call(self, entry: Attributes) -> _Call:
        origin = self._unit.target(entry.get(ORIGIN))
        file = _number(entry, CALL_FILE)
        line = _number(entry, CALL_LINE)
        return _Call(origin, file, line)

    def _rows(self, entry: Attributes) -> set[int]:
        """Which of the addresses an entry has."""
        found: set[int] = set()
        for low, end in self._ranges.of(entry):
            if low <= 0:  # the linker has dropped it
                continue
            first = bisect_left(self._addresses, low)
            behind = bisect_left(self._addresses, end)
            found.update(range(first, behind))
        return found


def _number(entry: Attributes, attribute: int) -> int:
    """An attribute that is a number; 0 where there is none."""
    _, found = entry.get(attribute, (0, 0))
    return found if isinstance(found, int) else 0
