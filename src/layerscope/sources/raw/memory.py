"""Allocations and releases among the agent's records, as rows of `MEMORY`. Used by `decoder`."""

from __future__ import annotations

import numpy as np

from layerscope.model.clocks import Conversion
from layerscope.rawfile import layout
from layerscope.sources.process import MEMORY, joined_rows

_ADDRESS = np.uint64((1 << layout.ADDRESS_BITS) - 1)


class MemoryRecords:
    """Those of one process that have not been given out. They come thread by thread; what all
    threads did is known up to the newest reading of the clocks.
    """

    def __init__(self) -> None:
        self._tracks: list[np.ndarray] = []
        self._records: list[np.ndarray] = []
        self._highest_name = 0

    def add(self, track: np.ndarray, records: np.ndarray) -> None:
        """Records of one ring, with their tracks."""
        self._tracks.append(track)
        self._records.append(records)
        for numbers in (records["name"], records["module"], _lines(records)):
            self._highest_name = max(self._highest_name, int(numbers.max(initial=0)))

    def known(self, clock: Conversion, names: int, last: bool) -> np.ndarray:
        """Those before the newest reading, in the order of time; none as long as one of them has a
        name that has not come, of which there are `names`. With `last`, all.
        """
        if not self._records or (self._highest_name >= names and not last):
            return np.zeros(0, MEMORY)
        track, records = np.concatenate(self._tracks), joined_rows(self._records)
        self._tracks, self._records, self._highest_name = [], [], 0
        if not last:
            is_early = records["start"].astype(np.int64) <= clock.last
            late = np.flatnonzero(~is_early)
            if len(late):
                self.add(track[late], records.take(late))
                track, records = track[is_early], records.compress(is_early)
        order = np.argsort(records["start"], kind="stable")
        return _rows(clock, track[order], records.take(order))


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
