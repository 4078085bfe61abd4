"""The sections of an ELF file, and bytes of it: read piece by piece, so that a file of a gigabyte
costs what is asked of it, and never mapped, since a file that is cut while it is mapped ends
whoever looks at it.

Numbers are those of elf(5). 64-bit little-endian files only, which is what Linux runs on x86-64 and
AArch64.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from msgspec import Struct

from layerscope.host import libraries

VDSO = "[vdso]"  # as /proc/PID/maps names it
SYMTAB, RELA, NOBITS, DYNSYM = 2, 4, 8, 11
EXECUTED = 4  # SHF_EXECINSTR
_COMPRESSED = 1 << 11  # SHF_COMPRESSED
_ZLIB, _ZSTD = 1, 2  # ELFCOMPRESS_
_MANY_SECTIONS = 0xFFFF  # SHN_XINDEX: the number is in the first section
_NAMES_BYTES = 1 << 24  # of all sections
_NAME_BYTES = 64
_SECTIONS_MOST = 1 << 18  # a build with a section for each function has tens of thousands

HEADER = np.dtype(
    [
        ("ident", "S16"),
        ("type", "<u2"),
        ("machine", "<u2"),
        ("version", "<u4"),
        ("entry", "<u8"),
        ("segments", "<u8"),
        ("sections", "<u8"),
        ("flags", "<u4"),
        ("bytes", "<u2"),
        ("segment_bytes", "<u2"),
        ("segment_count", "<u2"),
        ("section_bytes", "<u2"),
        ("section_count", "<u2"),
        ("names", "<u2"),
    ]
)
SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("align", "<u8"),
        ("entry_bytes", "<u8"),
    ]
)


class Damaged(ValueError):
    """A file is not what it says: cut, no ELF file, or larger in one place than any real one."""


class Content:
    """The bytes of an open file, or of one that lies in memory."""

    def __init__(self, source: int | bytes) -> None:
        self._source = source
        self.size = len(source) if isinstance(source, bytes) else os.fstat(source).st_size

    def read(self, at: int, length: int) -> bytes:
        """Exactly `length` bytes from `at` on. Damaged where they are not all there, OSError where
        none can be read.
        """
        if at < 0 or length < 0 or at + length > self.size:
            raise Damaged(f"{length} bytes at {at} of a file of {self.size}")
        if isinstance(self._source, bytes):
            return self._source[at : at + length]
        pieces, end = [], at + length
        while at < end:  # a single read gives no more than 2 GiB
            piece = os.pread(self._source, end - at, at)
            if not piece:
                raise Damaged("the file was cut while it was read")
            pieces.append(piece)
            at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class Section(Struct, frozen=True):
    """One section: `address` and `size` where it is loaded, `offset` in the file. `link`: number of
    another section, `entry_bytes`: size of each entry of a table.
    """

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    entry_bytes: int

    @property
    def is_packed(self) -> bool:
        """Whether its bytes are compressed."""
        return bool(self.flags & _COMPRESSED)


class Elf:
    """An ELF file. Damaged if it is none that can be read here."""

    def __init__(self, content: Content) -> None:
        self.content = content
        head = np.frombuffer(content.read(0, HEADER.itemsize), HEADER)[0]
        if head["ident"][:6] != b"\x7fELF\x02\x01":
            raise Damaged("no 64-bit little-endian ELF file")
        self.machine = int(head["machine"])
        self._headers = self._section_headers(
            int(head["sections"]), int(head["section_count"]), head
        )
        self.addresses, self.sizes = self._headers["address"], self._headers["size"]
        self.executed = (self._headers["flags"] & EXECUTED) != 0
        names = int(head["names"])
        if names == _MANY_SECTIONS and len(self._headers):
            names = int(self._headers["link"][0])
        self._names = self._names_of_sections(names)
        self.sections = [self._section(row) for row in self._headers.tolist()]

    def _names_of_sections(self, number: int) -> bytes:
        if number >= len(self._headers):
            return b""
        at, size = (int(self._headers[field][number]) for field in ("offset", "size"))
        # A table that is cut ends where the file does.
        length = min(size, _NAMES_BYTES, max(0, self.content.size - at))
        with contextlib.suppress(Damaged):
            return self.content.read(at, length)
        return b""

    def _section_headers(self, at: int, count: int, head: np.void) -> np.ndarray:
        if at == 0:
            return np.zeros(0, SECTION)
        if int(head["section_bytes"]) != SECTION.itemsize:
            raise Damaged("sections of another size")
        if count == 0:
            first = np.frombuffer(self.content.read(at, SECTION.itemsize), SECTION)
            count = int(first["size"][0])
        if count > _SECTIONS_MOST:
            raise Damaged(f"{count} sections")
        return np.frombuffer(self.content.read(at, count * SECTION.itemsize), SECTION)

    def _section(self, row: tuple[int, ...]) -> Section:
        place, kind, flags, address, offset, size, link, _, _, entry_bytes = row
        name = self._names[place : place + _NAME_BYTES].partition(b"\0")[0]
        return Section(
            name.decode("utf-8", "replace"), kind, flags, address, offset, size, link, entry_bytes
        )

    def section(self, name: str) -> Section | None:
        """The first section of this name that has bytes in the file."""
        for section in self.sections:
            if section.name == name and section.type != NOBITS:
                return section
        return None

    def text(self, at: int, size: int, place: int, most: int) -> str:
        """The text that begins at `place` of a table of `size` bytes at `at` of the file; cut after
        `most` bytes.
        """
        length = min(size - place, most)
        if length <= 0:
            return ""
        # Most names are short, and a table may end where the file does.
        for wanted in (min(length, 256), length):
            found = self.content.read(at + place, wanted)
            end = found.find(b"\0")
            if end >= 0:
                return found[:end].decode("utf-8", "replace")
        return found.decode("utf-8", "replace")

    def data(self, section: Section, most: int) -> bytes:
        """The bytes of a section, unpacked; Damaged where they are more than `most`."""
        if section.size > most:
            raise Damaged(f"{section.name} has {section.size} bytes")
        found = self.content.read(section.offset, section.size)
        if not section.is_packed:
            return found
        if len(found) < 24:
            raise Damaged(f"{section.name} is cut")
        kind, size = int.from_bytes(found[:4], "little"), int.from_bytes(found[8:16], "little")
        if size > most:
            raise Damaged(f"{section.name} has {size} bytes when unpacked")
        try:
            if kind == _ZLIB:
                return zlib.decompressobj().decompress(found[24:], max(1, size))
            if kind == _ZSTD:
                return bytes(pa.decompress(found[24:], size, codec="zstd", asbytes=True))
        except (zlib.error, OSError, ValueError) as error:  # pyarrow's errors are of the last two
            raise Damaged(f"{section.name}: {error}") from error
        raise Damaged(f"{section.name} is packed in a way that is not known")


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[int]:
    """A descriptor of a regular file; OSError for everything else, such as a pipe, which must not
    be waited for.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:  # no file can have such a name
        raise OSError(22, "no file can have this name", str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "it is no regular file", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def vdso() -> Iterator[int]:
    """A descriptor of a file with the code that the kernel maps into each process, of this one.
    OSError: none.
    """
    descriptor = os.memfd_create("vdso", os.MFD_CLOEXEC)
    try:
        with (
            open("/proc/self/maps", "rb") as maps,
            open("/proc/self/mem", "rb", buffering=0) as memory,
        ):
            mapped = next((line for line in maps if line.rstrip().endswith(VDSO.encode())), b"")
            if not mapped:
                raise FileNotFoundError(2, "this kernel maps no code of its own", VDSO)
            start, end = (int(address, 16) for address in mapped.split()[0].split(b"-"))
            os.write(descriptor, os.pread(memory.fileno(), end - start, start))
        yield descriptor
    finally:
        os.close(descriptor)


def build_id(descriptor: int) -> bytes:
    """The build id of an open file; empty where it has none."""
    path = Path(f"/proc/self/fd/{descriptor}")
    digits = libraries.build_id(path) or ""
    return bytes.fromhex(digits)
