"""What an ELF file says about itself."""

from __future__ import annotations

import struct
from pathlib import Path

_PT_NOTE = 4
_NT_GNU_BUILD_ID = 3


def build_id(path: Path) -> str | None:
    """The GNU build-id of a 64-bit little-endian ELF file in hex; None when it has none or is no
    such file.
    """
    try:
        with path.open("rb") as file:
            head = file.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return None
            (offset,) = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            file.seek(offset)
            table = file.read(size * count)
            for i in range(count):
                kind, _, at, _, _, length = struct.unpack_from("<IIQQQQ", table, i * size)
                if kind == _PT_NOTE:
                    file.seek(at)
                    found = build_id_note(file.read(min(length, 1 << 16)))
                    if found:
                        return found
    except (OSError, ValueError, struct.error):  # ValueError: a place that no file can have
        return None
    return None


def build_id_note(notes: bytes) -> str | None:
    """The GNU build-id in the notes of an ELF file or of the kernel, in hex; None when there is
    none.
    """
    at = 0
    while at + 12 <= len(notes):
        name_length, length, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + (name_length + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[start : start + length].hex()
        at = start + (length + 3 & ~3)
    return None
