"""The shared memory of a recorded process as the drainer reads it: rings and names.

The drainer imports this file, and NumPy with it, when the first memory arrives.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.rawfile import dtypes, layout, raw_file
from layerscope.rawfile.sums import RawTotals


def totals_of(spool: Path) -> tuple[RawTotals, dict[int, int]]:
    """The sums over the spans in a raw file, and by ring the ordinal up to which its records are
    there.
    """
    totals, sealed = RawTotals(), {}
    for chunk in raw_file.SpoolReader(spool).chunks():
        if chunk.kind == raw_file.RECORDS:
            totals.add(np.frombuffer(chunk.payload, dtypes.RECORD))
        elif chunk.kind == raw_file.TOTALS:
            totals.restore(chunk.payload)
        if chunk.kind in (raw_file.RECORDS, raw_file.STRIPPED):
            sealed[chunk.key] = chunk.first + chunk.count
    return totals, sealed


class Ring:
    """One shared ring, seen from outside."""

    def __init__(self, fd: int) -> None:
        size_bytes = os.fstat(fd).st_size
        self.memory = mmap.mmap(fd, size_bytes)
        self.header: Any = np.frombuffer(self.memory, dtypes.RING, 1)[0]
        header_bytes, record_bytes = layout.RING_HEADER, layout.RECORD_BYTES
        self.capacity = (size_bytes - header_bytes) // record_bytes
        self.records = np.frombuffer(self.memory, dtypes.RECORD, self.capacity, header_bytes)
        # Scalars of these views are single aligned 8-byte loads and stores.
        self.published = np.frombuffer(self.memory, "<u8", 1, 64)
        self.consumed = np.frombuffer(self.memory, "<u8", 1, 128)
        self.index = int(self.header["index"])
        self._published_before = int(self.published[0])

    def waiting(self) -> int:
        """Number of records that wait to be taken."""
        return int(self.published[0]) - int(self.consumed[0])

    def share_since_last(self) -> float:
        """How many records came since the last call, as a share of what the ring holds."""
        published = int(self.published[0])
        fresh, self._published_before = published - self._published_before, published
        return fresh / self.capacity

    def abandoned(self) -> tuple[int, int, int]:
        """What the ring holds and nobody will take: spans, and the losses that it counts (ring
        full, too deep).
        """
        records = self.take(int(self.published[0]))
        is_span = records["kind"] < layout.FIRST_SPECIAL
        losses = records[records["kind"] == layout.LOST]
        full = int(self.header["lost_full"]) + int(losses["name"].sum())
        deep = int(self.header["lost_deep"]) + int(losses["module"].sum())
        return int(is_span.sum()), full, deep

    def take(self, until: int) -> np.ndarray:
        """A copy of the records from `consumed` up to ordinal `until`."""
        first = int(self.consumed[0]) % self.capacity
        last = until % self.capacity
        if until == int(self.consumed[0]):
            return np.zeros(0, dtypes.RECORD)
        if last > first:
            return self.records[first:last].copy()
        return np.concatenate([self.records[first:], self.records[:last]])


class NamesSegment:
    """One shared segment of names."""

    def __init__(self, fd: int) -> None:
        size_bytes = os.fstat(fd).st_size
        self.memory = mmap.mmap(fd, size_bytes)
        segment = np.frombuffer(self.memory, "<u4", 1, 8)
        self.segment = int(segment[0])
        self._used = np.frombuffer(self.memory, "<u8", 1, 16)
        self.taken = 0

    def fresh(self) -> bytes:
        """The bytes that were published since the last call; `accept` says that they are safe."""
        start = layout.NAMES_HEADER + self.taken
        return self.memory[start : layout.NAMES_HEADER + int(self._used[0])]
