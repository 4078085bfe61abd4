"""What a process of the program shares with us, field by field: the page that says what it is and
what it is answered, and the header of a ring.

Read and written without NumPy: session and drainer start sooner.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping

from layerscope.rawfile import layout


class SharedFields:
    """A structure at the beginning of `memory`. Numbers are aligned, so each is read and written
    whole.

    `fields`: by name its offset and its type, as `struct` has it.
    """

    def __init__(self, memory: mmap.mmap, fields: Mapping[str, tuple[int, str]]) -> None:
        self.memory = memory
        self._fields = fields

    def number(self, name: str) -> int:
        """The field `name`, a number."""
        offset, kind = self._fields[name]
        value: int
        (value,) = struct.unpack_from(kind, self.memory, offset)
        return value

    def content(self, name: str) -> bytes:
        """The field `name`, as bytes."""
        offset, kind = self._fields[name]
        value: bytes
        (value,) = struct.unpack_from(kind, self.memory, offset)
        return value

    def text(self, name: str) -> bytes:
        """The field `name`, characters, without the zeros behind them."""
        return self.content(name).rstrip(b"\0")

    def set(self, name: str, value: int) -> None:
        """Change the field `name`, a number."""
        offset, kind = self._fields[name]
        struct.pack_into(kind, self.memory, offset, value)


class ProcessPage(SharedFields):
    """The page in the memory `fd`."""

    def __init__(self, fd: int) -> None:
        super().__init__(mmap.mmap(fd, layout.PAGE_BYTES), layout.PAGE_FIELDS)
