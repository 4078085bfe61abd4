"""The tables of one ELF file that name addresses: symbols, stubs and debugging information, its own
and those of files beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from layerscope.symbols import inlined_frames, line_program, separate, symbol_table
from layerscope.symbols.dwarf_inlined import InlinedCalls
from layerscope.symbols.dwarf_lines import FoundLines, Lines, no_lines
from layerscope.symbols.elf_file import DYNSYM, SYMTAB, Content, Damaged, Elf, build_id, opened
from layerscope.symbols.kept import LINES_LEAST, SYMBOLS_LEAST, Kept
from layerscope.symbols.known_addresses import InlinedFrames
from layerscope.symbols.plt import Stubs
from layerscope.symbols.symbol_table import SymbolTable
from layerscope.symbols.unwind_starts import names_by_start


class FoundInObject(NamedTuple):
    """What a file knows of addresses: names as the linker has them, of a stub `name@plt`, ""
    where none is known; files and lines; `is_limited`: there may be a line, but a limit was in the
    way. `beside`: the files that were looked for beside it.
    """

    names: list[str]
    files: list[str | None]
    lines: NDArray[np.int32]
    is_limited: NDArray[np.bool_]
    inlined: InlinedFrames
    beside: list[Path]


class ObjectTables(Struct):
    """The tables of the file at `path`, of which `key` is what they are kept under."""

    path: Path
    build_id: bytes
    key: str
    _lasting: Elf | None = None
    _of_lines: Lines | None = None
    _debug: Path | None = None
    _has_looked: bool = False
    _has_left_out: bool = False
    _rows: dict[str, NDArray[np.void]] = field(default_factory=dict)

    def find(self, descriptor: int, kept: Kept, addresses: NDArray[np.uint64]) -> FoundInObject:
        """What the file knows of addresses. `descriptor` is the file, open. Damaged where it is
        none that can be read.
        """
        elf = Elf(Content(descriptor))
        names = self._names(elf, kept, addresses)
        lines, inlined = self._lines(elf, kept, addresses)
        beside = separate.places(self.path, elf, self.build_id)
        return FoundInObject(names, lines.files, lines.lines, lines.is_limited, inlined, beside)

    def names(self, descriptor: int, kept: Kept, addresses: NDArray[np.uint64]) -> list[str]:
        """The names alone, as `find` gives them; `descriptor` stays open."""
        if self._lasting is None:
            self._lasting = Elf(Content(descriptor))
        return self._names(self._lasting, kept, addresses)

    @property
    def has_left_out(self) -> bool:
        """Whether a limit has left lines or inlined functions out."""
        return self._has_left_out

    def _names(self, elf: Elf, kept: Kept, addresses: NDArray[np.uint64]) -> list[str]:
        result = [""] * len(addresses)
        with contextlib.ExitStack() as stack:
            for table in self._tables(elf, kept, stack):
                open_ = np.array([place for place, name in enumerate(result) if not name], np.int64)
                rows, of_row = np.unique(table.find(addresses[open_]), return_inverse=True)
                names = [table.name(row) if row >= 0 else "" for row in rows.tolist()]
                for place, number in zip(open_.tolist(), of_row.tolist(), strict=True):
                    result[place] = names[number]
                if all(result):
                    return result
        stubs = Stubs(elf)
        for place, address in enumerate(addresses.tolist()):
            if not result[place] and (name := stubs.name(address)):
                result[place] = f"{name}@plt"
        open_ = np.array([place for place, name in enumerate(result) if not name], np.int64)
        if len(open_):
            by_start = names_by_start(elf, self.path.name, addresses[open_])
            for place, name in zip(open_.tolist(), by_start, strict=True):
                result[place] = name
        return result

    def _lines(
        self, elf: Elf, kept: Kept, addresses: NDArray[np.uint64]
    ) -> tuple[FoundLines, InlinedFrames]:
        with contextlib.ExitStack() as stack:
            if not Lines.are_in(elf):
                beside = self._beside(elf, stack)
                if beside is None or not Lines.are_in(beside):
                    return no_lines(len(addresses)), {}
                elf = beside
            if self._of_lines is None:
                self._of_lines = Lines(elf)

            def keep(place: str, make: symbol_table.Make) -> NDArray[np.void]:
                return kept.rows(
                    f"{self.key}-lines-{place}", make, line_program.is_sound, LINES_LEAST
                )

            found = self._of_lines.find(elf, addresses, keep)
            calls = InlinedCalls(self._of_lines.sections)
            inlined = inlined_frames.split(addresses, found, self._of_lines, calls)
            self._has_left_out |= self._of_lines.left_out > 0 or calls.has_left_out
            return found, inlined

    def _tables(self, elf: Elf, kept: Kept, stack: contextlib.ExitStack) -> Iterator[SymbolTable]:
        """Tables of symbols, the best first."""
        if any(section.type == SYMTAB for section in elf.sections):
            yield from self._table("own", elf, (SYMTAB,), kept)
            return
        beside = self._beside(elf, stack)
        if beside is not None:
            yield from self._table("debug", beside, (SYMTAB,), kept)
        yield from self._table("dynamic", elf, (DYNSYM,), kept)
        with contextlib.suppress(Damaged):
            inside = separate.mini(elf)
            if inside is not None:
                yield from self._table("mini", inside, (SYMTAB,), Kept(None))

    def _table(
        self, which: str, elf: Elf, kinds: tuple[int, ...], kept: Kept
    ) -> Iterator[SymbolTable]:
        """The table, its rows remembered; none where it is damaged."""
        keep = partial(self._rows_of, which, kept)
        with contextlib.suppress(Damaged):
            found = symbol_table.table(elf, kinds, keep)
            if found is not None:
                yield found

    def _rows_of(
        self, which: str, kept: Kept, place: str, make: symbol_table.Make
    ) -> NDArray[np.void]:
        """The rows of a table, made or found in the cache once."""
        if which not in self._rows:
            self._rows[which] = kept.rows(
                f"{self.key}-{which}-{place}", make, symbol_table.is_sound, SYMBOLS_LEAST
            )
        return self._rows[which]

    def _beside(self, elf: Elf, stack: contextlib.ExitStack) -> Elf | None:
        """The file beside this one with its symbols or lines, open until `stack` is closed; None:
        there is none.
        """
        if not self._has_looked:
            self._has_looked = True
            self._debug = separate.debug_file(self.path, elf, self.build_id)
        if self._debug is None:
            return None
        try:
            descriptor = stack.enter_context(opened(self._debug))
            if self.build_id and build_id(descriptor) != self.build_id:
                return None
            return Elf(Content(descriptor))
        except (OSError, Damaged):
            return None
