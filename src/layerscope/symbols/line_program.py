"""Line programs of DWARF 2 to 5: which line each address comes from (DWARF 5, section 6.2)."""

from __future__ import annotations

import os
from array import array

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.symbols.cursor import Cursor
from layerscope.symbols.dwarf_forms import ELSEWHERE, Texts, Value, value
from layerscope.symbols.elf_file import Damaged

# A name, or the section that has it and the place there.
Name = bytes | tuple[str, int]
_PATH, _DIRECTORY = 1, 2  # DW_LNCT_
_FILES_MOST = 1 << 17
# A row of the table. `file`: number of its name, -1: the code ends here.
LINE = np.dtype([("address", "<u8"), ("file", "<i4"), ("line", "<i4")])
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _ADD_CONST, _FIXED_ADVANCE = 1, 2, 3, 4, 8, 9
_OPERANDS = (
    0,
    1,
    1,
    1,
    1,
    0,
    0,
    0,
    1,
)  # of the first opcodes; the numbers might say something else, and never do
_END_SEQUENCE, _SET_ADDRESS = 1, 2
_ADDRESSES = (1 << 64) - 1


class Header(Struct, frozen=True):
    """What stands before a program. `files`: (name, number of its folder), of DWARF 5 from 0 on,
    else from 1 on. A name that lies elsewhere is read by `texts` when it is asked for: nearly all
    files are headers that no code comes from.
    """

    version: int
    step_bytes: int
    line_base: int
    line_range: int
    operands: tuple[int, ...]  # how many operands each standard opcode has, from the first on
    folders: list[Name]
    files: list[tuple[Name, int]]
    program: bytes
    texts: Texts

    def path(self, number: int, folder: bytes) -> str | None:
        """The path of a file; `folder` is where it was compiled. None where there is no file of
        that number.
        """
        index = number if self.version >= 5 else number - 1
        if not 0 <= index < len(self.files):
            return None
        name, of = self.files[index]
        of = of if self.version >= 5 else of - 1
        inside = self.folders[of] if 0 <= of < len(self.folders) else b""
        parts = (folder, self._text(inside), self._text(name))
        return os.path.normpath(os.fsdecode(os.path.join(*parts)))

    def _text(self, name: Name) -> bytes:
        return name if isinstance(name, bytes) else self.texts(*name)


def header(data: bytes, texts: Texts) -> Header:
    """The program at the beginning of `data`, which may go on behind it. `texts` reads names that
    lie elsewhere.
    """
    cursor = Cursor(data)
    length = cursor.length()
    end = cursor.at + length
    version = cursor.number(2)
    if not 2 <= version <= 5 or end > len(data):
        raise Damaged(f"lines of DWARF {version}, or cut")
    if version >= 5:
        cursor.take(2)
    program = cursor.offset()
    program += cursor.at
    step_bytes = cursor.number(1)
    cursor.take(2 if version >= 4 else 1)
    line_base = int.from_bytes(cursor.take(1), "little", signed=True)
    line_range, opcodes = cursor.number(1), cursor.number(1)
    if line_range == 0 or opcodes == 0 or not cursor.at <= program <= end:
        raise Damaged("lines without a range")
    operands = tuple(cursor.take(opcodes - 1))
    if operands[:9] != _OPERANDS:
        raise Damaged("opcodes of lines that are not the standard's")
    if version >= 5:
        folders = [name for name, _ in _entries(cursor, texts)]
        files = _entries(cursor, texts)
    else:
        folders, files = _old_names(cursor)
    return Header(
        version,
        step_bytes,
        line_base,
        line_range,
        operands,
        folders,
        files,
        data[program:end],
        texts,
    )


def _entries(cursor: Cursor, texts: Texts) -> list[tuple[Name, int]]:
    formats = [(cursor.uleb(), cursor.uleb()) for _ in range(cursor.number(1))]
    count = cursor.uleb()
    if count > _FILES_MOST:
        raise Damaged(f"{count} files")
    found: list[tuple[Name, int]] = []
    for _ in range(count):
        name: Name = b""
        of = 0
        for kind, form in formats:
            if form in ELSEWHERE:
                told: Value | Name = (ELSEWHERE[form], cursor.offset())
            else:
                told = value(cursor, form, texts)
            if kind == _PATH:
                name = told if isinstance(told, (bytes, tuple)) else b""
            elif kind == _DIRECTORY:
                of = told if isinstance(told, int) else 0
        found.append((name, of))
    return found


def _old_names(cursor: Cursor) -> tuple[list[Name], list[tuple[Name, int]]]:
    folders: list[Name] = []
    files: list[tuple[Name, int]] = []
    while name := cursor.text():
        folders.append(name)
    while name := cursor.text():
        files.append((name, cursor.uleb()))
        cursor.uleb()
        cursor.uleb()
    return folders, files


def rows(of: Header) -> NDArray[np.void]:
    """The table, by address (LINE); the last row of an address holds. A program that is damaged
    ends there.
    """
    machine = _Machine(of)
    try:
        machine.run()
    except (Damaged, IndexError):
        machine.drop_open()
    table = np.zeros(len(machine.addresses), LINE)
    table["address"] = machine.addresses
    table["file"] = machine.files
    table["line"] = machine.lines
    # Code that begins where other code ends has its row behind the end.
    is_no_end = table["file"] >= 0
    place = np.arange(len(table))
    order = np.lexsort((place, is_no_end, table["address"]))
    return table[order]


def is_sound(table: NDArray[np.void]) -> bool:
    """Whether a table that comes from elsewhere can be used as one of `rows`."""
    return (
        table.dtype == LINE
        and table.ndim == 1
        and bool(np.all(table["address"][1:] >= table["address"][:-1]))
    )


class _Machine:
    """The machine that a program is for, as far as addresses, files and lines go."""

    def __init__(self, of: Header) -> None:
        self._of = of
        self.addresses, self.files, self.lines = array("Q"), array("i"), array("i")
        self._first = 0  # row of the sequence that is not ended yet

    def run(self) -> None:
        """Run the program to its end. IndexError and Damaged where it is cut, or does not what
        programs do.
        """
        program, first_special = self._of.program, len(self._of.operands) + 1
        step, base, line_range = self._of.step_bytes, self._of.line_base, self._of.line_range
        # Nearly all rows come from special opcodes: what each does is worked out once.
        specials = [divmod(code, line_range) for code in range(256 - first_special)]
        advances = [(step * pc, base + more) for pc, more in specials]
        to_address, to_file, to_line = self.addresses.append, self.files.append, self.lines.append
        address, file, line, at = 0, 1, 1, 0
        while at < len(program):
            code = program[at]
            at += 1
            if code >= first_special:
                advance, more = advances[code - first_special]
                address = address + advance & _ADDRESSES
                line += more
            elif code == _ADVANCE_LINE:
                more, at = _sleb(program, at)
                line += more
            elif code == _ADVANCE_PC:
                advance, at = _uleb(program, at)
                address = address + advance * step & _ADDRESSES
            elif code == _SET_FILE:
                file, at = _uleb(program, at)
                file = min(file, _FILES_MOST + 1)
            elif code == 0:
                address, at, is_end = self._extended(at, address)
                if is_end:
                    address, file, line = 0, 1, 1
            elif code == _ADD_CONST:
                address = address + advances[-1][0] & _ADDRESSES
            elif code == _FIXED_ADVANCE:
                address = address + program[at] + 256 * program[at + 1] & _ADDRESSES
                at += 2
            elif code != _COPY:
                for _ in range(self._of.operands[code - 1]):
                    _, at = _uleb(program, at)
            if code >= first_special or code == _COPY:
                to_address(address)
                to_file(file)
                to_line(line if 0 <= line < 1 << 31 else 0)
        self.drop_open()

    def _extended(self, at: int, address: int) -> tuple[int, int, bool]:
        """An extended opcode: the address and the place in the program behind it, and whether a
        sequence ends.
        """
        program = self._of.program
        length, at = _uleb(program, at)
        end = at + length
        if length and program[at] == _END_SEQUENCE:
            self.addresses.append(address)
            self.files.append(-1)
            self.lines.append(0)
            # What the linker has dropped begins at 0, or where no code can be.
            if not 0 < self.addresses[self._first] < _ADDRESSES - 1:
                self.drop_open()
            self._first = len(self.addresses)
            return 0, end, True
        if length and program[at] == _SET_ADDRESS:
            address = int.from_bytes(program[at + 1 : min(end, at + 9)], "little")
        return address, end, False

    def drop_open(self) -> None:
        """Forget what was not ended: nobody knows how far its last line goes."""
        del self.addresses[self._first :]
        del self.files[self._first :]
        del self.lines[self._first :]


def _uleb(program: bytes, at: int) -> tuple[int, int]:
    """The unsigned number at `at`, and the place behind it."""
    byte = program[at]
    if byte < 128:
        return byte, at + 1
    cursor = Cursor(program, at)
    number = cursor.uleb()
    return number, cursor.at


def _sleb(program: bytes, at: int) -> tuple[int, int]:
    """The signed number at `at`, and the place behind it."""
    byte = program[at]
    if byte < 128:
        return (byte - 128 if byte & 64 else byte), at + 1
    cursor = Cursor(program, at)
    return cursor.sleb(), cursor.at
