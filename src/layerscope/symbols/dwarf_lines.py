"""Files and lines of addresses of an ELF file, by its DWARF: read only of the compile units that
have the addresses.

`.debug_aranges` tells which these are; units that it does not name are looked through one after the
other.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from layerscope.symbols import dwarf_units, line_program
from layerscope.symbols.cursor import Cursor
from layerscope.symbols.dwarf_units import ARANGES
from layerscope.symbols.elf_file import Damaged, Elf, Section
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
_SECTION_BYTES = 1 << 28  # of one that is packed: it has to be unpacked whole
_UNIT_BYTES = 4096  # more than the first entry of a unit has
_ABBREVIATIONS_BYTES = 1 << 16
_TEXT_BYTES = 4096


@dataclass(slots=True)
class _Read:
    """A unit that was read: `header` is None where it has no lines, or damaged ones."""

    folder: bytes = b""
    header: Header | None = None
    rows: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, LINE))


class Lines:
    """The lines of one file, as far as they were asked for. `left_out`: addresses that its limits
    left without.
    """

    def __init__(self, elf: Elf) -> None:
        self._elf = elf
        self._sections = {
            each.name: each for each in elf.sections if each.name.startswith(".debug_")
        }
        self._unpacked: dict[str, bytes] = {}
        self._aranges = self._ranges()
        self._named = set(np.unique(self._aranges["unit"]).tolist())
        self._others: list[int] | None = None
        self._units: dict[int, _Read] = {}
        self._bytes = 0
        self._is_limited = np.zeros(0, bool)
        self.left_out = 0

    @staticmethod
    def are_in(elf: Elf) -> bool:
        """Whether the file has any lines."""
        return elf.section(".debug_line") is not None and elf.section(".debug_info") is not None

    def find(
        self, elf: Elf, addresses: NDArray[np.uint64], keep: Keep
    ) -> tuple[list[str | None], NDArray[np.int32], NDArray[np.bool_]]:
        """The file and line of each address; None and -1 where there is none, and whether a limit
        is why. `elf`: the same file as before, open.

        `keep`: gives what is kept under a name, or makes and keeps it.
        """
        self._elf, self._keep = elf, keep
        self._is_limited = np.zeros(len(addresses), bool)
        files: list[str | None] = [None] * len(addresses)
        lines = np.full(len(addresses), -1, np.int32)
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
            self._fill(unit, addresses, places, files, lines)
        open_ = np.flatnonzero(~is_named)
        for unit in self._unnamed() if len(open_) else []:
            open_ = open_[self._fill(unit, addresses, open_, files, lines)]
            if not len(open_):
                break
        return files, lines, self._is_limited & (lines < 0)

    def _fill(
        self,
        unit: int,
        addresses: NDArray[np.uint64],
        places: NDArray[np.int64],
        files: list[str | None],
        lines: NDArray[np.int32],
    ) -> NDArray[np.bool_]:
        """Fill in those of `places` that the unit has lines of; which of them it has not."""
        read = self._unit(unit, addresses[places], unit in self._named)
        if read is None:
            self.left_out += len(places) if unit in self._named else 0
            self._is_limited[places] = True
            return np.ones(len(places), bool)
        if not len(read.rows) or read.header is None:
            return np.ones(len(places), bool)
        row = np.searchsorted(read.rows["address"], addresses[places], "right").astype(np.int64) - 1
        found = (row >= 0) & (read.rows["file"][row] >= 0)
        known: dict[int, str | None] = {}
        for place, at in zip(places[found].tolist(), row[found].tolist(), strict=True):
            file, line = int(read.rows["file"][at]), int(read.rows["line"][at])
            if line > 0:  # 0: the compiler made it of nothing
                if file not in known:
                    known[file] = _path(read.header, file, read.folder)
                files[place], lines[place] = known[file], line
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
            info = self._some(".debug_info", at, _UNIT_BYTES)
            abbreviations = self._some(
                ".debug_abbrev", dwarf_units.abbreviations_of(info), _ABBREVIATIONS_BYTES
            )
            about = dwarf_units.unit(info, abbreviations, self._text)
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
                self._exactly(".debug_line", about.lines, size), self._text
            )
            header = result.header
            result.rows = self._keep(f"{about.lines:x}-{size:x}", lambda: line_program.rows(header))
        except (Damaged, RecursionError):
            result = _Read()
        self._units[at] = result
        return result

    def _program_size(self, at: int) -> int:
        beginning = self._some(".debug_line", at, 12)
        cursor = Cursor(beginning)
        length = cursor.length()
        return cursor.at + length

    def _unnamed(self) -> list[int]:
        """Units that no range names."""
        if self._others is None:
            section = self._sections.get(".debug_info")
            size = self._size(section) if section else 0
            places = dwarf_units.unit_places(lambda name, at: self._some(name, at, 12), size, UNITS)
            self._others = [at for at in places if at not in self._named]
        return self._others

    def _ranges(self) -> NDArray[np.void]:
        section = self._sections.get(".debug_aranges")
        with contextlib.suppress(Damaged):
            return dwarf_units.ranges(self._elf.data(section, _ARANGES_BYTES) if section else b"")
        return np.zeros(0, ARANGES)

    def _text(self, name: str, at: int) -> bytes:
        return self._some(name, at, _TEXT_BYTES).partition(b"\0")[0]

    def _exactly(self, name: str, at: int, length: int) -> bytes:
        found = self._some(name, at, length)
        if len(found) < length:
            raise Damaged(f"{name} is cut")
        return found

    def _some(self, name: str, at: int, most: int) -> bytes:
        """Bytes of a section from `at` on: `most`, or as many as it has. Damaged where it has none
        there.
        """
        section = self._sections.get(name)
        if section is None:
            raise Damaged(f"there is no {name}")
        size = self._size(section)
        if not 0 <= at < size:
            raise Damaged(f"{name} has no place {at}")
        if section.is_packed:
            return self._unpacked[name][at : at + most]
        return self._elf.content.read(section.offset + at, min(most, size - at))

    def _size(self, section: Section) -> int:
        if not section.is_packed:
            return section.size
        name = section.name
        unpacked = self._unpacked.get(name)
        if unpacked is None:
            unpacked = self._elf.data(section, _SECTION_BYTES)
            self._unpacked[name] = unpacked
        return len(unpacked)


def _path(header: Header, file: int, folder: bytes) -> str | None:
    try:
        return header.path(file, folder)
    except Damaged:  # its name lies elsewhere
        return None
