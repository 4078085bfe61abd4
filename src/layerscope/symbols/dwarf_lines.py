"""Files and lines of addresses of an ELF file, by its DWARF: read only of the compile units that
have the addresses.

`.debug_aranges` tells which these are; units that it does not name are looked through one after the
other.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from layerscope.model.distinct import distinct
from layerscope.symbols import dwarf_units, line_program
from layerscope.symbols.cursor import Cursor
from layerscope.symbols.debug_sections import DebugSections
from layerscope.symbols.dwarf_units import ARANGES
from layerscope.symbols.elf_file import Damaged, Elf
from layerscope.symbols.line_program import LINE, Header
from layerscope.symbols.symbol_table import Keep

# Of one file. Python reads about 4 MB of line programs a second; those of libpython have 2.5 MB, of
# a large framework 200 MB.
PROGRAM_BYTES = 12 << 20
_UNIT_PROGRAM_BYTES = (
    2 << 20
)  # of one unit, whose rows are in memory several times; of libpython's the largest has 70 KB
UNITS = 4096
_ARANGES_BYTES = 1 << 27
_UNIT_BYTES = 4096  # more than the first entry of a unit has
_ABBREVIATIONS_BYTES = 1 << 16


class _Read(Struct):
    """A unit that was read: `header` is None where it has no lines, or damaged ones."""

    folder: bytes = b""
    header: Header | None = None
    rows: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, LINE))


class FoundLines(NamedTuple):
    """Files and lines of addresses: None and -1 where there are none, and whether a limit is why.
    `units`: the places of their units in `.debug_info`, -1 where none has them.
    """

    files: list[str | None]
    lines: NDArray[np.int32]
    is_limited: NDArray[np.bool_]
    units: NDArray[np.int64]


def no_lines(count: int) -> FoundLines:
    """So many addresses without lines."""
    files: list[str | None] = [None] * count
    lines = np.full(count, -1, np.int32)
    is_limited = np.zeros(count, bool)
    units = np.full(count, -1, np.int64)
    return FoundLines(files, lines, is_limited, units)


class Lines:
    """The lines of one file, as far as they were asked for. `sections`: where they are read.
    `left_out`: addresses that its limits left without.
    """

    def __init__(self, elf: Elf) -> None:
        self.sections = DebugSections(elf)
        self._aranges = self._ranges()
        self._named = set(distinct(self._aranges["unit"]).tolist())
        self._others: list[int] | None = None
        self._units: dict[int, _Read] = {}
        self._bytes = 0
        self.left_out = 0

    @staticmethod
    def are_in(elf: Elf) -> bool:
        """Whether the file has any lines."""
        return elf.section(".debug_line") is not None and elf.section(".debug_info") is not None

    def find(self, elf: Elf, addresses: NDArray[np.uint64], keep: Keep) -> FoundLines:
        """The line of each address. `elf`: the same file as before, open.

        `keep`: gives what is kept under a name, or makes and keeps it.
        """
        self.sections.elf, self._keep = elf, keep
        found = no_lines(len(addresses))
        row = np.searchsorted(self._aranges["start"], addresses, "right").astype(np.int64) - 1
        is_named = np.zeros(len(addresses), bool)
        if len(self._aranges):
            is_named = (row >= 0) & (addresses < self._aranges["end"][row])
        units = (
            self._aranges["unit"][row[is_named]] if len(self._aranges) else np.zeros(0, np.uint64)
        )
        # Where the limits leave something out, it is what was asked least.
        numbers, counts = np.unique(units, return_counts=True)
        for unit in numbers[np.argsort(-counts, kind="stable")].tolist():
            places = np.flatnonzero(is_named)[units == unit]
            self._fill(unit, addresses, places, found)
        open_ = np.flatnonzero(~is_named)
        for unit in self._unnamed() if len(open_) else []:
            open_ = open_[self._fill(unit, addresses, open_, found)]
            if not len(open_):
                break
        np.logical_and(found.is_limited, found.lines < 0, out=found.is_limited)
        return found

    def path(self, unit: int, file: int) -> str | None:
        """The path of a file by its number in a unit that was read."""
        read = self._units.get(unit)
        if read is None:
            return None
        if read.header is None:
            return None
        return _path(read.header, file, read.folder)

    def _fill(
        self,
        unit: int,
        addresses: NDArray[np.uint64],
        places: NDArray[np.int64],
        all_found: FoundLines,
    ) -> NDArray[np.bool_]:
        """Fill in those of `places` that the unit has lines of; which of them it has not."""
        read = self._unit(unit, addresses[places], unit in self._named)
        if read is None:
            self.left_out += len(places) if unit in self._named else 0
            all_found.is_limited[places] = True
            return np.ones(len(places), bool)
        if not len(read.rows) or read.header is None:
            return np.ones(len(places), bool)
        row = np.searchsorted(read.rows["address"], addresses[places], "right").astype(np.int64) - 1
        found = (row >= 0) & (read.rows["file"][row] >= 0)
        all_found.units[places[found]] = unit
        known: dict[int, str | None] = {}
        for place, at in zip(places[found].tolist(), row[found].tolist(), strict=True):
            file, line = int(read.rows["file"][at]), int(read.rows["line"][at])
            if line > 0:  # 0: the compiler made it of nothing
                if file not in known:
                    known[file] = _path(read.header, file, read.folder)
                all_found.files[place], all_found.lines[place] = known[file], line
        return ~found

    def _unit(self, at: int, asked: NDArray[np.uint64], is_named: bool) -> _Read | None:
        """The unit at that place of `.debug_info`; None where a limit forbids to read it.

        One that no range names, and that says itself that it has none of the addresses `asked`, is
        not read.
        """
        if at in self._units:
            return self._units[at]
        if len(self._units) >= UNITS:
            return None
        result = _Read()
        try:
            info = self.sections.some(".debug_info", at, _UNIT_BYTES)
            declared = dwarf_units.head(Cursor(info)).abbreviations
            abbreviations = self.sections.some(".debug_abbrev", declared, _ABBREVIATIONS_BYTES)
            about = dwarf_units.unit(info, abbreviations, self.sections.text)
            if about is None:
                self._units[at] = result
                return result
            if (
                about.high > about.low
                and not is_named
                and not np.any((asked >= about.low) & (asked < about.high))
            ):
                return result
            size = self._program_size(about.lines)
            if size > _UNIT_PROGRAM_BYTES or self._bytes + size > PROGRAM_BYTES:
                return None
            self._bytes += size
            result.folder = about.folder
            result.header = line_program.header(
                self.sections.exactly(".debug_line", about.lines, size), self.sections.text
            )
            header = result.header
            result.rows = self._keep(f"{about.lines:x}-{size:x}", lambda: line_program.rows(header))
        except (Damaged, RecursionError):
            result = _Read()
        self._units[at] = result
        return result

    def _program_size(self, at: int) -> int:
        """How many bytes the line program at a place has."""
        beginning = self.sections.some(".debug_line", at, 12)
        cursor = Cursor(beginning)
        length = cursor.length()
        return cursor.at + length

    def _unnamed(self) -> list[int]:
        """Units that no range names."""
        if self._others is None:
            places = dwarf_units.unit_places(self.sections, UNITS)
            self._others = [at for at in places if at not in self._named]
        return self._others

    def _ranges(self) -> NDArray[np.void]:
        with contextlib.suppress(Damaged):
            return dwarf_units.ranges(self.sections.whole(".debug_aranges", _ARANGES_BYTES))
        return np.zeros(0, ARANGES)


def _path(header: Header, file: int, folder: bytes) -> str | None:
    try:
        return header.path(file, folder)
    except Damaged:  # its name lies elsewhere
        return None
