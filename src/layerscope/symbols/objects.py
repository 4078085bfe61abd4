"""One ELF file with all that tells names and lines of its code."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from layerscope.symbols import line_program, separate, symbol_table
from layerscope.symbols.dwarf_lines import Lines
from layerscope.symbols.elf_file import DYNSYM, SYMTAB, Content, Damaged, Elf, build_id, opened
from layerscope.symbols.kept import LINES_LEAST, SYMBOLS_LEAST, Kept
from layerscope.symbols.plt import Stubs
from layerscope.symbols.symbol_table import SymbolTable

Identity = tuple[int, int, int, int]


def identity(descriptor: int) -> Identity:
    """What tells that a file is still the same: device, inode, size, time of its last change."""
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns


@dataclass(slots=True)
class ElfObject:
    """What is known of a file, kept between questions."""

    path: Path
    of: Identity
    build_id: bytes
    lines: Lines | None = None
    _debug: Path | None = None
    _has_looked: bool = False
    _rows: dict[str, NDArray[np.void]] = field(default_factory=dict)

    def find(self, descriptor: int, kept: Kept, addresses: NDArray[np.uint64]) -> list[str]:
        """The name of the function at each address as the linker has it, of a stub `name@plt`; "":
        not known.

        `descriptor` is the file, open. Damaged where it is none that can be read.
        """
        elf = Elf(Content(descriptor))
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
        return result

    def find_lines(
        self, descriptor: int, kept: Kept, addresses: NDArray[np.uint64]
    ) -> tuple[list[str | None], NDArray[np.int32]] | None:
        """The file and line of each address; None where the file has no lines. Damaged as
        `find`.
        """
        elf = Elf(Content(descriptor))
        with contextlib.ExitStack() as stack:
            if not Lines.are_in(elf):
                beside = self._beside(elf, stack)
                if beside is None or not Lines.are_in(beside):
                    return None
                elf = beside
            if self.lines is None:
                self.lines = Lines(elf)

            def keep(place: str, make: symbol_table.Make) -> NDArray[np.void]:
                return kept.rows(
                    self._key("lines", place), make, line_program.is_sound, LINES_LEAST
                )

            return self.lines.find(elf, addresses, keep)

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
        if which not in self._rows:
            self._rows[which] = kept.rows(
                self._key(which, place), make, symbol_table.is_sound, SYMBOLS_LEAST
            )
        return self._rows[which]

    def _key(self, which: str, place: str) -> str:
        """What a table of this file is kept under."""
        # A file and its debug file have one build id, and so has what is left when it is stripped.
        device, inode, size, mtime_ns = self.of
        name = self.build_id.hex() or f"{device:x}-{inode:x}-{mtime_ns:x}"
        return f"{name}-{size:x}-{which}-{place}"

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
