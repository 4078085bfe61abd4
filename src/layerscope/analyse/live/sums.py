"""Exact sums by key that grow: of all that came, and of the last buckets of time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerscope.model.live import BUCKET_NS, KeyedSums, buckets_of

Int64s = NDArray[Any]


class WindowSums:
    """Sums of `columns` by key. `window_ns`: how long what came stays in the window."""

    def __init__(self, columns: int, window_ns: int) -> None:
        nothing = np.zeros((0, columns), np.int64)
        self._whole = nothing
        self._recent = nothing
        self._rows = 0
        self._buckets: dict[int, list[tuple[Int64s, Int64s]]] = {}
        self._window = buckets_of(window_ns)
        # The first bucket that is in the window, and the first behind it: not all of that has come.
        self._oldest = self._next = 0

    @property
    def whole(self) -> Int64s:
        """By key what came since the start, or since `reset`."""
        return self._whole[: self._rows]

    @property
    def begin_ns(self) -> int:
        """When the window begins."""
        return self._oldest * BUCKET_NS

    @property
    def end_ns(self) -> int:
        """When it ends."""
        return self._next * BUCKET_NS

    @property
    def recent(self) -> Int64s:
        """The same of the window."""
        return self._recent[: self._rows]

    def add(self, counted: KeyedSums) -> None:
        """Take in sums; several may be of one key."""
        if not len(counted.key):
            return
        self._make_room(int(counted.key.max()) + 1)
        np.add.at(self._whole, counted.key, counted.sums)
        for bucket in np.unique(counted.bucket).tolist():
            if bucket < self._oldest:
                continue
            mine = np.flatnonzero(counted.bucket == bucket)
            key, sums = counted.key[mine], counted.sums[mine]
            if bucket < self._next:
                np.add.at(self._recent, key, sums)
            self._buckets.setdefault(bucket, []).append((key, sums))

    def advance(self, now_ns: int) -> None:
        """Time goes on: all before `now_ns` is there. Whole buckets come into the window, and what
        is older than it leaves it.
        """
        before, self._next = self._next, max(now_ns // BUCKET_NS, self._next)
        self._oldest = max(self._next - self._window, self._oldest)
        for bucket in [one for one in self._buckets if before <= one < self._next]:
            for key, sums in self._buckets[bucket]:
                np.add.at(self._recent, key, sums)
        over = [bucket for bucket in self._buckets if bucket < self._oldest]
        for bucket in over:
            parts = self._buckets.pop(bucket)
            for key, sums in parts:
                np.subtract.at(self._recent, key, sums)

    def reset(self) -> None:
        """Begin anew with nothing."""
        self._whole[:] = 0
        self._recent[:] = 0
        self._buckets.clear()
        self._oldest = self._next

    def _make_room(self, rows: int) -> None:
        self._rows = max(self._rows, rows)
        if self._rows <= len(self._whole):
            return
        more = 2 * self._rows - len(self._whole)
        room = ((0, more), (0, 0))
        self._whole = np.pad(self._whole, room)
        self._recent = np.pad(self._recent, room)
