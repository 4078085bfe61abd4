"""Allocations and releases among the agent's records, as rows of `MEMORY`. Used by `decoder`."""

from __future__ import annotations

import numpy as np

from layerscope.model.clocks import Conversion
from layerscope.rawfile import layout
from layerscope.sources.process import MEMORY, STOP, joined_rows

# A name may arrive a little after the first record that has it; beyond so many it never will.
_WAIT_FOR_NAMES = 2_000_000
_ADDRESS = np.uint64((1 << layout.ADDRESS_BITS) - 1)


class MemoryRecords:
    """Those of one process that have not been given out. They come thread by thread; what all
    threads did is known up to the newest reading of the clocks.
    """

    def __init__(self) -> None:
        self._tracks: list[np.ndarray] = []
        self._records: list[np.ndarray] = []
        self._stops: list[int] = []
        self._highest_name = self._count = 0
        self._until = -1

    def add(self, track: np.ndarray, records: np.ndarray) -> None:
        """Records of one ring, with their tracks."""
        self._tracks.append(track)
        self._records.append(records)
        self._count += len(records)
        for numbers in (records["name"], records["module"], _lines(records)):
            self._highest_name = max(self._highest_name, int(numbers.max(initial=0)))

    def stop(self, ticks: int) -> None:
        """Recording stopped here: a window closed, the program paused it, or there was no room."""
        self._stops.append(ticks)

    def known(self, clock: Conversion, names: int, last: bool) -> np.ndarray:
        """What all threads did, in the order of time; none as long as one of them has a name that
        has not come, of which there are `names`. With `last`, all.

        Known is what lies before the reading of the time before: a thread may take a time and come
        to write it down a little later.
        """
        until, self._until = self._until, clock.last
        is_late = self._highest_name >= names and self._count < _WAIT_FOR_NAMES
        if is_late and not last:
            return np.zeros(0, MEMORY)
        stops = self._known_stops(clock, until, last)
        if not self._records:
            return stops
        track, records = self._known_records(until, last)
        rows = np.concatenate([_rows(clock, track, records), stops])
        order = np.argsort(rows["at_ns"], kind="stable")
        return rows.take(order)

    def _known_records(self, until: int, last: bool) -> tuple[np.ndarray, np.ndarray]:
        """The tracks and the records that are not later than `until`; the others stay."""
        track, records = np.concatenate(self._tracks), joined_rows(self._records)
        self._tracks, self._records = [], []
        self._highest_name = self._count = 0
        is_early = (records["start"].astype(np.int64) <= until) | last
        late = np.flatnonzero(~is_early)
        if len(late):
            self.add(track[late], records.take(late))
        return track[is_early], records.compress(is_early)

    def _known_stops(self, clock: Conversion, until: int, last: bool) -> np.ndarray:
        """A row for each that is not later than `until`."""
        known = [ticks for ticks in self._stops if last or ticks <= until]
        self._stops = self._stops[len(known) :]
        rows = np.zeros(len(known), MEMORY)
        rows["at_ns"] = clock.to_run(np.array(known, np.int64))
        rows["is_release"] = STOP
        return rows


def _lines(records: np.ndarray) -> np.ndarray:
    """The numbers of their lines, in two fields."""
    high = records["flags"].astype(np.uint32) & layout.LINE_BITS_IN_FLAGS
    numbers: np.ndarray = high << 16 | records["depth"]
    return numbers


def _rows(clock: Conversion, track: np.ndarray, records: np.ndarray) -> np.ndarray:
    """The fields as native/layout.h packs them."""
    rows = np.zeros(len(records), MEMORY)
    end = records["end"]
    size_high = (end >> np.uint64(layout.ADDRESS_BITS)).astype(np.int64)
    rows["at_ns"] = clock.to_run(records["start"])
    rows["address"] = end & _ADDRESS
    rows["bytes"] = size_high << 32 | records["seq"].view(np.uint32)
    rows["operator"] = records["name"]
    rows["module"] = records["module"]
    rows["line"] = _lines(records)
    rows["track"] = track
    flags = records["flags"]
    rows["allocator"] = flags >= layout.BY_NUMPY
    rows["phase"] = (flags & (layout.BY_NUMPY - 1)) >> layout.PHASE_SHIFT
    rows["is_release"] = records["kind"] == layout.RELEASE
    return rows
