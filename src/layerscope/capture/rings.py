"""The shared memory of a recorded process as the drainer reads it: rings and names.

What passes over records is compiled (native/draining). Where it is not, the agent is not either,
and nobody hands a ring over.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

from layerscope.capture.agent import DRAINING, draining
from layerscope.rawfile import layout, raw_file
from layerscope.rawfile.page import SharedFields

_POLL_MS = 10
# A row of sums: kind, name, count, ticks.
_ROW_BYTES = 32


class _RingInC(ctypes.Structure):
    """`ld_ring` of native/draining/draining.h."""

    _fields_ = (
        ("ring", ctypes.c_void_p),
        ("capacity", ctypes.c_uint64),
        ("seen", ctypes.c_uint64),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    library = draining()
    if library is None:
        raise OSError(f"{DRAINING.name} does not load")
    library.ld_sums_new.restype = ctypes.c_void_p
    library.ld_sums_rows.restype = ctypes.c_uint64
    library.ld_take.restype = ctypes.c_uint64
    return library


class SpanSums:
    """Exact sums over the spans of a process, by kind and name."""

    def __init__(self) -> None:
        self._library = _library()
        self.as_c = ctypes.c_void_p(self._library.ld_sums_new())
        if not self.as_c:
            raise MemoryError

    def __del__(self) -> None:
        self._library.ld_sums_free(self.as_c)

    def add(self, records: bytes) -> None:
        """Count the finished spans among `records`."""
        size_bytes = len(records)
        count = ctypes.c_uint64(size_bytes // layout.RECORD_BYTES)
        add = self._library.ld_sums_add
        add(self.as_c, records, count)

    def restore(self, packed: bytes) -> None:
        """Go on from the sums that `packed` gave, where nothing was counted yet."""
        size_bytes = len(packed)
        count = ctypes.c_uint64(size_bytes // _ROW_BYTES)
        go_on = self._library.ld_sums_go_on
        go_on(self.as_c, packed, count)

    def packed(self) -> bytes:
        """Rows of int64: kind, name, count, ticks."""
        read = self._library.ld_sums_rows
        count = read(self.as_c, None, ctypes.c_uint64(0))
        rows = ctypes.create_string_buffer(count * _ROW_BYTES)
        room = ctypes.c_uint64(count)
        read(self.as_c, rows, room)
        return rows.raw


def sums_of(spool: Path) -> tuple[SpanSums, dict[int, int]]:
    """The sums over the spans in a raw file, and by ring the ordinal up to which its records are
    there.
    """
    sums, sealed = SpanSums(), {}
    for chunk in raw_file.SpoolReader(spool).chunks():
        if chunk.kind == raw_file.RECORDS:
            sums.add(chunk.payload)
        elif chunk.kind == raw_file.TOTALS:
            sums = SpanSums()
            sums.restore(chunk.payload)
        if chunk.kind in (raw_file.RECORDS, raw_file.STRIPPED):
            sealed[chunk.key] = chunk.first + chunk.count
    return sums, sealed


class Columns:
    """Memory for records that are taken, byte by byte of all of them: so they compress best."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, layout.RING_BYTES)

    def address(self, records: int) -> ctypes.c_void_p:
        """Of the memory, with room for so many records."""
        size_bytes = records * layout.RECORD_BYTES
        if size_bytes > len(self._memory):
            self._memory = mmap.mmap(-1, size_bytes)
        address = _address(self._memory)
        return ctypes.c_void_p(address)

    def taken(self, records: int) -> memoryview:
        """What `Ring.take` has put there."""
        size_bytes = records * layout.RECORD_BYTES
        whole = memoryview(self._memory)
        return whole[:size_bytes]


def _address(memory: mmap.mmap) -> int:
    """Where it begins."""
    first = ctypes.c_char.from_buffer(memory)
    return ctypes.addressof(first)


class Ring(SharedFields):
    """One shared ring, seen from outside."""

    def __init__(self, fd: int) -> None:
        size_bytes = os.fstat(fd).st_size
        super().__init__(mmap.mmap(fd, size_bytes), layout.RING_FIELDS)
        self._library = _library()
        self.capacity = (size_bytes - layout.RING_HEADER) // layout.RECORD_BYTES
        self.index = self.number("index")
        self.as_c = _RingInC(_address(self.memory), self.capacity, self.published)

    @property
    def published(self) -> int:
        """How many records were ever written."""
        return self.number("published")

    @property
    def consumed(self) -> int:
        """How many records were ever taken."""
        return self.number("consumed")

    def waiting(self) -> int:
        """Number of records that wait to be taken."""
        return self.published - self.consumed

    def open_spans(self) -> tuple[int, bytes]:
        """How many spans of its thread are open, and their slots; behind these where they come
        from.
        """
        said = self.number("depth")
        depth = min(said, layout.OPEN_SLOTS)
        slots = _first(self.content("open"), layout.OPEN_SLOTS, depth)
        origins = _first(self.content("origins"), layout.ORIGINS, min(depth, layout.ORIGINS))
        return depth, slots + origins

    def abandoned(self) -> tuple[int, int, int]:
        """What the ring holds and nobody will take: spans, and the losses that it counts (ring
        full, too deep).
        """
        left = (ctypes.c_uint64 * 3)()
        rest = self._until(self.published)
        self._library.ld_left(*rest, left)
        spans, full, deep = left
        full += self.number("lost_full")
        deep += self.number("lost_deep")
        return spans, full, deep

    def take(self, until: int, columns: Columns) -> int:
        """Copy the records from `consumed` up to ordinal `until` into `columns`; how many there
        are.
        """
        memory = columns.address(self.capacity)
        taken: int = self._library.ld_take(*self._until(until), memory)
        return taken

    def count(self, until: int, sums: SpanSums) -> None:
        """Add the spans among the same records to `sums`."""
        span = self._until(until)
        add = self._library.ld_count
        add(*span, sums.as_c)

    def rows(self, until: int) -> bytes:
        """The same records one after the other."""
        first, last = map(self._offset, (self.consumed, until))
        if until == self.consumed or first < last:
            return self.memory[first:last]
        return self.memory[first:] + self.memory[layout.RING_HEADER : last]

    def _offset(self, ordinal: int) -> int:
        return layout.RING_HEADER + layout.RECORD_BYTES * (ordinal % self.capacity)

    def _until(self, until: int) -> tuple[object, ctypes.c_uint64, ctypes.c_uint64]:
        """What functions of the library take."""
        first = ctypes.c_uint64(self.consumed)
        return ctypes.byref(self.as_c), first, ctypes.c_uint64(until)


def _first(rows: bytes, count: int, most: int) -> bytes:
    """The first rows of `count` of the same size."""
    row_bytes = len(rows) // count
    return rows[: most * row_bytes]


class RingWatch:
    """Waits for messages of the session, and for rings that fill up."""

    def __init__(self) -> None:
        self._rings = (_RingInC * 0)()
        self._poll_ms = ctypes.c_int32(_POLL_MS)

    def follow(self, rings: Sequence[Ring]) -> None:
        """Watch these from now on."""
        self._rings = (_RingInC * len(rings))(*(ring.as_c for ring in rings))

    def wait(self, descriptor: int, until_ns: int) -> bool:
        """Until `until_ns` at most, but for one look at least. Whether the socket with this
        `descriptor` has something; -1: there is none.
        """
        count = ctypes.c_int64(len(self._rings))
        until = ctypes.c_int64(until_ns)
        poll_ms = ctypes.byref(self._poll_ms)
        wait = _library().ld_wait
        came = wait(descriptor, self._rings, count, until, poll_ms)
        return bool(came)


class NamesSegment:
    """One shared segment of names."""

    def __init__(self, fd: int) -> None:
        size_bytes = os.fstat(fd).st_size
        self.memory = mmap.mmap(fd, size_bytes)
        self._fields = SharedFields(self.memory, layout.NAMES_FIELDS)
        self.segment = self._fields.number("segment")
        self.taken = 0

    def fresh(self) -> bytes:
        """The bytes that were published since the last call; `accept` says that they are safe."""
        start = layout.NAMES_HEADER + self.taken
        return self.memory[start : layout.NAMES_HEADER + self._fields.number("used")]
