"""Moments that a program marked, by when they were read; their times are put on the run's clock
once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.clocks import Conversion
from layerscope.rawfile import dtypes
from layerscope.sources.process import Marks, ProcessEvents


def mark_outside(events: ProcessEvents, shift_ns: int, about: dict[str, Any]) -> None:
    """Somebody outside of the program has marked a moment; of two drainers both may tell it."""
    mark = int(about["at_ns"]) + shift_ns, str(about["name"])
    if mark not in events.outside:
        events.outside.append(mark)


class MarkList(Struct):
    """Grows by doubling, so that looking at it often costs little however many there are."""

    _count: int = 0
    _track: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    _records: np.ndarray = field(default_factory=lambda: np.zeros(0, dtypes.RECORD))
    _waiting: list[Marks] = field(
        default_factory=list
    )  # ticks, which a later reading of the clock may place better

    def __bool__(self) -> bool:
        return bool(self._count or self._waiting)

    def add(self, track: np.ndarray, records: np.ndarray) -> None:
        """Take in marks with their tracks; their times are ticks."""
        if len(records):
            self._waiting.append((track, records))

    def known(self, clock: Conversion, last: bool) -> Marks:
        """Tracks and records, with times in ns of the run, up to the newest reading of the clock;
        with `last`, all.
        """
        if self._waiting:
            tracks, parts = zip(*self._waiting, strict=True)
            track = np.concatenate(tracks)
            records = np.concatenate(parts)
            ticks = records["start"].astype(np.int64)
            is_final = (ticks <= clock.last) | last
            self._waiting = []
            self.add(track[~is_final], records[~is_final])
            final = records[is_final]
            final["start"] = clock.to_run(final["start"])
            self._append(track[is_final], final)
        return self._track[: self._count], self._records[: self._count]

    def _append(self, track: np.ndarray, records: np.ndarray) -> None:
        first = self._count
        count = first + len(records)
        if count > len(self._records):
            self._track = np.resize(self._track, 2 * count)
            self._records = np.resize(self._records, 2 * count)
        self._track[first:count] = track
        self._records[first:count] = records
        self._count = count
