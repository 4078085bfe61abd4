"""Allocations and releases of one process of a foreign file, some at a time, so that a file with
many millions of them is never there as rows at once. Used by `foreign`.
"""

from __future__ import annotations

import numpy as np

from layerscope.sources.imported import ImportedMemory
from layerscope.sources.process import MEMORY

# Rows that are given out at a time.
PIECE_ROWS = 500_000
_TEXTS = ("operator", "line", "device")


class ForeignMemory:
    """What the process `number` allocated and released; `owner`: the process of each track."""

    def __init__(self, memory: ImportedMemory, owner: np.ndarray, number: int) -> None:
        self._memory = memory
        self._owner = owner
        self._number = number
        self._given = 0
        self._ready = 0

    @classmethod
    def nothing(cls) -> ForeignMemory:
        """Of a process that has none."""
        return cls(ImportedMemory(), np.zeros(0, np.int64), 0)

    def advance(self) -> int:
        """Make more ready for `take`; returns how many, of all processes."""
        before = self._ready
        self._ready = min(before + PIECE_ROWS, len(self._memory))
        return self._ready - before

    def take(self, last: bool) -> np.ndarray:
        """Rows of `MEMORY` that are ready, with `last` all that are left."""
        if last:
            self._ready = len(self._memory)
        piece = slice(self._given, self._ready)
        self._given = self._ready
        rows = self._rows(piece)
        if not len(rows):
            return rows
        owner = self._owner[rows["track"]]
        is_own = owner == self._number
        if is_own.all():
            return rows
        return rows.compress(is_own)

    def _rows(self, piece: slice) -> np.ndarray:
        memory = self._memory
        rows = np.zeros(piece.stop - piece.start, MEMORY)
        rows["at_ns"] = memory.at_ns[piece]
        rows["address"] = memory.column("block")[piece]
        for name in ("bytes", "is_release", "track", "phase", "allocator"):
            rows[name] = memory.column(name)[piece]
        for name in _TEXTS:
            # The name 0 is that of names which are left out (`foreign`).
            rows[name] = memory.column(name)[piece] + 1
        return rows
