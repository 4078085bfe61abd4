"""Numbers and texts of DWARF, one after the other; Damaged where the bytes end before them."""

from __future__ import annotations

from layerscope.symbols.elf_file import Damaged

_NUMBER_BYTES = 10  # of 64 bits, seven a byte


class Cursor:
    """Reads `data` from `at` on. `offset_bytes`: size of places in other sections, 4 or 8 (64-bit
    DWARF).
    """

    def __init__(self, data: bytes, at: int = 0, offset_bytes: int = 4) -> None:
        self.data = data
        self.at = at
        self.offset_bytes = offset_bytes

    def take(self, length: int) -> bytes:
        """So many bytes."""
        if length < 0 or self.at + length > len(self.data):
            raise Damaged(f"DWARF ends within {length} bytes")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, length: int) -> int:
        """An unsigned number of so many bytes."""
        return int.from_bytes(self.take(length), "little")

    def offset(self) -> int:
        """A place in another section."""
        return self.number(self.offset_bytes)

    def length(self) -> int:
        """The length of a unit, which says how large offsets are in it."""
        found = self.number(4)
        self.offset_bytes = 8 if found == 0xFFFFFFFF else 4
        return self.number(8) if found == 0xFFFFFFFF else found

    def uleb(self) -> int:
        """An unsigned number, seven bits a byte."""
        if self.at < len(self.data) and self.data[self.at] < 128:  # nearly all are so small
            self.at += 1
            return self.data[self.at - 1]
        found = shift = 0
        for _ in range(_NUMBER_BYTES):
            byte = self.number(1)
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return found
        raise Damaged("a number of more than 64 bits")

    def sleb(self) -> int:
        """A signed number, seven bits a byte."""
        start = self.at
        found = self.uleb()
        bits = 7 * (self.at - start)
        if found >> (bits - 1):
            found -= 1 << bits
        return found

    def text(self) -> bytes:
        """A text that ends with a zero."""
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise Damaged("DWARF ends within a text")
        found = self.data[self.at : end]
        self.at = end + 1
        return found
