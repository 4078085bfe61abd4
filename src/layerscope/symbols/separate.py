"""Files beside an ELF file that hold its symbols and lines: debug files of the system, and
`.gnu_debugdata` inside.

Where debug files lie is as gdb looks for them ("Debugging Information in Separate Files" in its
manual), which also describes `.gnu_debugdata` (MiniDebugInfo).
"""

from __future__ import annotations

import lzma
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from layerscope.symbols.elf_file import Content, Damaged, Elf, build_id, opened

DEBUG = Path("/usr/lib/debug")
_MINI_BYTES = 1 << 26  # symbols of functions alone, unpacked
_MINI_MEMORY = 1 << 27
_CHECKED_BYTES = 1 << 28  # of a file without a build id, whose checksum has to be read whole
_PIECE = 1 << 22


def mini(elf: Elf) -> Elf | None:
    """The ELF file packed in `.gnu_debugdata`; None where there is none. Damaged where it cannot be
    unpacked.
    """
    section = elf.section(".gnu_debugdata")
    if section is None:
        return None
    packed = elf.data(section, _MINI_BYTES)
    try:
        unpacked = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MINI_MEMORY).decompress(
            packed, _MINI_BYTES
        )
    except lzma.LZMAError as error:
        raise Damaged(f".gnu_debugdata: {error}") from error
    return Elf(Content(unpacked))


def debug_file(path: Path, elf: Elf, identity: bytes) -> Path | None:
    """The debug file of `path`, which has the build id `identity` (empty: none); None where there
    is none.

    One with another build id, or with another checksum than the file says, is of another build.
    """
    for found, checksum in _candidates(path, elf, identity):
        if _has_build_id(found, identity) if identity else _has_checksum(found, checksum):
            return found
    return None


def places(path: Path, elf: Elf, identity: bytes) -> list[Path]:
    """All files that `debug_file` looks for."""
    return [found for found, _ in _candidates(path, elf, identity)]


def _candidates(path: Path, elf: Elf, identity: bytes) -> Iterator[tuple[Path, int]]:
    """What may be the debug file, the best first, and the checksum that it has."""
    if len(identity) > 1:
        digits = identity.hex()
        yield DEBUG / ".build-id" / digits[:2] / f"{digits[2:]}.debug", 0
    yield from _linked(path, elf)


def _linked(path: Path, elf: Elf) -> Iterator[tuple[Path, int]]:
    """What `.gnu_debuglink` may mean, and the checksum of it."""
    section = elf.section(".gnu_debuglink")
    try:
        content = elf.data(section, 4096) if section else b""
    except Damaged:
        return
    name = os.fsdecode(content.partition(b"\0")[0])
    if not name or "/" in name or len(content) < 8:
        return
    checksum = int.from_bytes(content[-4:], "little")
    folder = path.absolute().parent
    # A file may name itself.
    for found in (folder / name, folder / ".debug" / name, DEBUG / str(folder).lstrip("/") / name):
        if found != path.absolute():
            yield found, checksum


def _has_build_id(path: Path, identity: bytes) -> bool:
    try:
        with opened(path) as descriptor:
            return build_id(descriptor) == identity
    except (OSError, ValueError):
        return False


def _has_checksum(path: Path, checksum: int) -> bool:
    try:
        with opened(path) as descriptor:
            size = os.fstat(descriptor).st_size
            if size > _CHECKED_BYTES:
                return False
            found = 0
            for at in range(0, size, _PIECE):
                found = zlib.crc32(os.pread(descriptor, _PIECE, at), found)
            return found == checksum
    except (OSError, ValueError):
        return False
