"""The wire format of protocol buffers, without their library: what a message holds, field by field.
Used by `xplane`.

Nothing in a file is trusted: a length may lead behind the end, a number may be too long. `Wire`
says whether that was so, and gives out what there is.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1
_MOST_VARINT_BITS = 70

# Number of a field, and its value: a number, or where its bytes begin and end.
Field = tuple[int, int | tuple[int, int]]


class Wire:
    """The bytes `data`. `is_cut`: a field leads behind the end; `is_damaged`: what cannot be was
    met.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.is_cut = False
        self.is_damaged = False

    def fields(self, begin: int, end: int) -> Iterator[Field]:
        """The fields of the message between these places; a last one that is cut as far as it
        goes.
        """
        data, at = self.data, begin
        while at < end:
            key = data[at]
            at += 1
            if key > 127:
                key, at = self.varint(at - 1, end)
                if at < 0:
                    return
            kind = key & 7
            if kind == _VARINT:
                value, at = self.varint(at, end)
                if at < 0:
                    return
                yield key >> 3, value
            elif kind == _BYTES:
                length, at = self.varint(at, end)
                if at < 0:
                    return
                stop = min(at + length, end)
                self.is_cut |= at + length > end
                yield key >> 3, (at, stop)
                at = stop
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
                if at + size > end:
                    self.is_cut = True
                    return
                yield key >> 3, int.from_bytes(data[at : at + size], "little")
                at += size
            else:
                self.is_damaged = True
                return

    def message(self, begin: int, end: int) -> dict[int, int | tuple[int, int]]:
        """The last field of each number of the message between these places."""
        return dict(self.fields(begin, end))

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """A number of variable length, and where the next field begins; -1: there is none."""
        data = self.data
        value = shift = 0
        while at < end and shift < _MOST_VARINT_BITS:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & _MASK, at
            shift += 7
        self.is_damaged |= at < end
        self.is_cut |= at >= end
        return 0, -1

    def text(self, value: object) -> str:
        """A field of bytes as text; "" where it is something else."""
        if not isinstance(value, tuple):
            return ""
        return self.data[value[0] : value[1]].decode("utf-8", "replace")


def signed(value: int) -> int:
    """A number of 64 bits that may be below 0."""
    return value - (1 << 64) if value >> 63 else value


def number(value: object) -> int:
    """A field that is a number; 0 where it is something else."""
    return signed(value) if isinstance(value, int) else 0
