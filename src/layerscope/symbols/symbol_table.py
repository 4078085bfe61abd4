"""Where functions lie in an ELF file: a symbol table sorted for looking addresses up, kept in the
user's cache.

That of a large framework has half a million symbols, so nothing here runs once for each of them.
Names stay in the file: only those asked for are read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.symbols.elf_file import DYNSYM, SYMTAB, Damaged, Elf, Section

SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
# A row of the sorted table. `end`: the first address behind the function. `outer`: row of the
# nearest function that begins earlier and ends later, -1: none. `rank`: of names of one function
# the lowest is best; 1: local to the file, 2: without a size.
ROW = np.dtype(
    [
        ("start", "<u8"),
        ("end", "<u8"),
        ("outer", "<i4"),
        ("name", "<u4"),
        ("rank", "u1"),
        ("pad", "u1", (7,)),
    ]
)
_LABEL, _FUNCTION, _IFUNC = 0, 2, 10  # STT_NOTYPE: hand-written assembly often says no more
_LOCAL = 0  # STB_LOCAL
_RESERVED = 0xFF00  # SHN_LORESERVE: no section, such as absolute values
_SYMBOLS_BYTES = 1 << 28  # of one table at most; that of a large framework is 12 MiB
_NAME_BYTES = 1 << 14  # longer names are cut; the longest seen has 1,500 bytes
_Preference = tuple[bool, int, int, int, str]
_ALIASES = 32  # names of one function to choose from, at most
_NESTED = 64  # functions around each other that are looked through, at most

Make = Callable[[], NDArray[np.void]]
Keep = Callable[[str, Make], NDArray[np.void]]


class SymbolTable(Struct, frozen=True):
    """Functions of a file (`rows`, of ROW, by start), and where their names lie in it."""

    elf: Elf
    names: Section
    rows: NDArray[np.void]

    def find(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of the innermost function that each address lies in; -1: none."""
        if not len(self.rows):
            return np.full(len(addresses), -1)
        found = np.searchsorted(self.rows["start"], addresses, "right").astype(np.int64) - 1
        for _ in range(_NESTED):
            outside = np.flatnonzero((found >= 0) & (self.rows["end"][found] <= addresses))
            if not len(outside):
                return found
            found[outside] = self.rows["outer"][found[outside]]
        found[(found >= 0) & (self.rows["end"][found] <= addresses)] = -1
        return found

    def name(self, row: int) -> str:
        """The best name of the function in that row, as the linker has it, without a version."""
        first = max(0, row - _ALIASES + 1)
        near = self.rows[first : row + _ALIASES]
        start = self.rows["start"][row]
        ranks: dict[str, int] = {}
        for alias in near[near["start"] == start][::-1]:
            text = self._text(int(alias["name"]))
            ranks[text] = int(alias["rank"])

        def preference(text: str) -> _Preference:
            """The least is the best name."""
            is_empty = text == ""
            underscores = _underscores(text)
            return is_empty, ranks[text], underscores, len(text), text

        return min(ranks, key=preference)

    def _text(self, place: int) -> str:
        try:
            text = self.elf.text(self.names.offset, self.names.size, place, _NAME_BYTES).partition(
                "@"
            )[0]
        except Damaged:
            return ""
        return "" if text.startswith("$") else text  # of AArch64: where instructions begin


def table(
    elf: Elf, kinds: tuple[int, ...] = (SYMTAB, DYNSYM), keep: Keep | None = None
) -> SymbolTable | None:
    """The functions in the first table of these kinds that the file has; None where it has none.

    `keep`: gives what is kept under a name, or makes and keeps it. Damaged where the table is not
    what it says.
    """
    for kind in kinds:
        section = next((each for each in elf.sections if each.type == kind and each.size), None)
        if section and section.link < len(elf.sections):
            names = elf.sections[section.link]

            def make(section: Section = section) -> NDArray[np.void]:
                return _rows(elf, section)

            key = f"{section.offset:x}-{section.size:x}"
            return SymbolTable(elf, names, keep(key, make) if keep else make())
    return None


def is_sound(rows: NDArray[np.void]) -> bool:
    """Whether rows that come from elsewhere can be used as `rows` of a table."""
    if rows.dtype != ROW or rows.ndim != 1:
        return False
    numbers = np.arange(len(rows))
    outer = rows["outer"]
    return bool(
        np.all(rows["start"][1:] >= rows["start"][:-1])
        and np.all(outer < numbers)
        and np.all(outer >= -1)
    )


def _rows(elf: Elf, section: Section) -> NDArray[np.void]:
    count = section.size // SYMBOL.itemsize
    if count * SYMBOL.itemsize > _SYMBOLS_BYTES:
        raise Damaged(f"a table of {count} symbols")
    symbols = np.frombuffer(elf.content.read(section.offset, count * SYMBOL.itemsize), SYMBOL)
    kind = symbols["info"] & 15
    is_code = (symbols["section"] != 0) & (
        (symbols["section"] < _RESERVED) | (symbols["section"] == 0xFFFF)
    )
    functions = symbols[is_code & ((kind == _FUNCTION) | (kind == _IFUNC))]
    rows = _sorted(_unsorted(elf, functions))
    labels = symbols[is_code & (kind == _LABEL)]
    labels = labels[_is_executed(elf, labels)]
    labels = labels[SymbolTable(elf, section, rows).find(labels["value"]) < 0]
    if not len(labels):
        return rows
    added = _unsorted(elf, labels)
    starts = np.sort(np.concatenate([rows["start"], added["start"]]))
    _end_at_next(added, starts, labels["size"] == 0)
    return _sorted(np.concatenate([rows, added]))


def _unsorted(elf: Elf, symbols: NDArray[np.void]) -> NDArray[np.void]:
    """Rows of `symbols`, without `outer`. What has no size goes on to the next, at most to the end
    of its section.
    """
    rows = np.zeros(len(symbols), ROW)
    rows["start"], rows["name"] = symbols["value"], symbols["name"]
    rows["end"] = symbols["value"] + np.minimum(symbols["size"], ~symbols["value"])
    is_open = symbols["size"] == 0
    rows["rank"] = 2 * is_open + (symbols["info"] >> 4 == _LOCAL)
    index = np.minimum(symbols["section"], max(0, len(elf.sections) - 1))
    section_end = elf.addresses[index] + elf.sizes[index]
    rows["end"][is_open] = np.where(section_end > rows["start"], section_end, rows["start"] + 1)[
        is_open
    ]
    _end_at_next(rows, np.sort(rows["start"]), is_open)
    return rows


def _end_at_next(
    rows: NDArray[np.void], starts: NDArray[np.uint64], which: NDArray[np.bool_]
) -> None:
    """Let the rows `which` end where the next of `starts` begins, unless they end earlier."""
    following = np.searchsorted(starts, rows["start"], "right")
    has_next = which & (following < len(starts))
    next_start = (
        starts[np.minimum(following, max(0, len(starts) - 1))] if len(starts) else rows["end"]
    )
    rows["end"][has_next] = np.minimum(rows["end"], next_start)[has_next]


def _is_executed(elf: Elf, symbols: NDArray[np.void]) -> NDArray[np.bool_]:
    known = symbols["section"] < len(elf.sections)
    found = np.zeros(len(symbols), bool)
    found[known] = elf.executed[symbols["section"][known]]
    return found


def _sorted(rows: NDArray[np.void]) -> NDArray[np.void]:
    """The rows by start, and those of one start by end, with `outer`."""
    order = np.lexsort((rows["end"], rows["start"]))
    rows = rows[order]
    rows["outer"] = -1
    if not len(rows):
        return rows
    ends = rows["end"]
    farthest = np.maximum.accumulate(ends)
    inner = 1 + np.flatnonzero(farthest[:-1] > ends[1:])
    if not len(inner):
        return rows
    # Few functions lie inside others, and no step of this walk is made twice.
    outer = rows["outer"].tolist()
    ends_of = ends.tolist()
    for row in inner.tolist():
        before = row - 1
        while before >= 0 and ends_of[before] <= ends_of[row]:
            before = outer[before]
        outer[row] = before
    rows["outer"] = outer
    return rows


def _underscores(text: str) -> int:
    return len(text) - len(text.lstrip("_"))
