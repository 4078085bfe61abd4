"""A time stamp counter that goes wrong: set back, as when a virtual machine moves, it goes on where
it was.

Used by `operators.Decoder`. What was recorded since the last good reading is put right when a
reading shows that the counter was set back; what comes later, as it comes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from layerscope.model.median import median
from layerscope.rawfile import layout

# Records whose `start` is a moment; in that of LF_EXTRA is a value.
_WITH_START = (
    layout.ALLOCATION,
    layout.RELEASE,
    layout.COUNTER,
    layout.MARK,
    layout.THREAD_BEGIN,
    layout.THREAD_END,
    layout.LOST,
)
# Closer readings say too little about the rate.
_FROM_NS = 10_000_000
# Crystals wander by some 1e-5, and CLOCK_MONOTONIC is steered by at most 5e-4.
_RATE_TOLERANCE = 2e-3


class Ticks:
    """The counter of one process, by the readings that come one by one."""

    def __init__(self) -> None:
        self.set_backs = 0
        self._missing = 0  # ticks that lie between what the counter says and what it would say
        self._first = self._last = (0, 0)

    def read(self, tsc: int, run_ns: int, since_last: Iterable[np.ndarray]) -> int:
        """A reading with the ticks that the counter would have; `since_last`: spans that came since
        the last one.
        """
        tsc += self._missing
        if self._last == (0, 0):
            self._first = self._last = (tsc, run_ns)
            return tsc
        before, before_ns = self._last
        if tsc < before and run_ns > before_ns:
            ran_ns = before_ns - self._first[1]
            rate = (before - self._first[0]) / ran_ns if ran_ns > 0 else 1.0
            missing = before + round((run_ns - before_ns) * rate) - tsc
            self.set_backs += 1
            self._missing += missing
            tsc += missing
            for spans in since_last:
                # What ended before the last reading has been taken before it.
                _add(spans, missing, spans["end"] < before)
        self._last = (max(tsc, before), run_ns)
        return tsc

    def mended(self, records: np.ndarray) -> np.ndarray:
        """Records as they would be if the counter had never been set back."""
        if not self._missing:
            return records
        records = records.copy()
        kinds = records["kind"]
        _add(records, self._missing, kinds < layout.FIRST_SPECIAL)
        told = np.isin(kinds, _WITH_START)
        records["start"][told] += np.uint64(self._missing)
        records["end"][kinds == layout.LOST] += np.uint64(self._missing)
        return records

    def moment(self, start: int) -> int:
        """The ticks of a span that is still open: they may be from before the counter was set
        back.
        """
        return start + self._missing if start + self._missing <= self._last[0] else start


def _add(spans: np.ndarray, ticks: int, chosen: np.ndarray) -> None:
    """Move the `chosen` spans; one that seems to begin after its end began before the counter was
    set back.
    """
    start, end = spans["start"], spans["end"]
    moment = end.dtype.type
    shift = moment(ticks)
    is_possible = chosen & (start <= end)
    start[is_possible] += shift
    end[chosen] += shift


def uneven(ticks: np.ndarray, run_ns: np.ndarray, error_ns: np.ndarray) -> int:
    """Between how many pairs of readings a clock did not keep its usual rate."""
    all_took_ns = np.diff(run_ns)
    far = np.flatnonzero(all_took_ns >= _FROM_NS)
    if len(far) < 3:
        return 0
    took_ns = all_took_ns[far]
    rate = np.diff(ticks)[far] / took_ns
    usual = median(rate)
    error_of_pair_ns = error_ns[far] + error_ns[far + 1]
    tolerance = _RATE_TOLERANCE + error_of_pair_ns / took_ns
    deviation = np.abs(rate / usual - 1)
    return int(np.count_nonzero(deviation > tolerance))
