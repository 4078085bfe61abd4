"""The page that a process of the program shares with us: what it is, and what it is answered.

Read and written field by field, without NumPy: the session of a program that imports no framework
starts sooner.
"""

from __future__ import annotations

import mmap
import struct

from layerscope.rawfile import layout


class ProcessPage:
    """The page in the memory `fd`. Numbers are aligned, so each is read and written whole."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, layout.PAGE_BYTES)

    def number(self, name: str) -> int:
        """The field `name`, a number."""
        offset, kind = layout.PAGE_FIELDS[name]
        value: int
        (value,) = struct.unpack_from(kind, self._memory, offset)
        return value

    def text(self, name: str) -> bytes:
        """The field `name`, characters, without the zeros behind them."""
        offset, kind = layout.PAGE_FIELDS[name]
        value: bytes
        (value,) = struct.unpack_from(kind, self._memory, offset)
        return value.rstrip(b"\0")

    def set(self, name: str, value: int) -> None:
        """Change the field `name`, a number."""
        offset, kind = layout.PAGE_FIELDS[name]
        struct.pack_into(kind, self._memory, offset, value)
