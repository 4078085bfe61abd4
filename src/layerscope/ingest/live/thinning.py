"""A part of the records stands for all, where a program calls more operators than a watcher may
read: how many are read, and what the spans that are read stand for.
"""

from __future__ import annotations

import numpy as np

from layerscope.model.live import KeyedSums
from layerscope.sources.raw.growing import KeptSpoolReader
from layerscope.sources.raw.process import RawProcess
from layerscope.sources.raw.thinned_records import LONG_TICKS, is_of_step

# Reading records may take this part of a core. It is looked at over some seconds.
_MOST_SHARE = 0.014
_LOOKED_AT_NS = 2_000_000_000
# Twice as much is read where that would take less than this part of what it may.
_SURELY = 0.7
_MOST_EVERY = 64


class Pace:
    """Finds `every`: of so many records one is read."""

    def __init__(self) -> None:
        self.every = 1
        self._cpu_ns = self._elapsed_ns = 0

    def spent(self, cpu_ns: int, elapsed_ns: int) -> None:
        """Reading took this CPU time, of so much time."""
        self._cpu_ns += cpu_ns
        self._elapsed_ns += elapsed_ns
        if self._elapsed_ns < _LOOKED_AT_NS:
            return
        share = self._cpu_ns / self._elapsed_ns
        self._cpu_ns = 0
        self._elapsed_ns = 0
        if share > _MOST_SHARE:
            while share > _MOST_SHARE and self.every < _MOST_EVERY:
                self.every *= 2
                share /= 2
        elif 2 * share < _SURELY * _MOST_SHARE:
            self.every = max(self.every // 2, 1)


class StandIns:
    """What the spans of one process stand for. `kept`, of all its spans those that are read in any
    case, stand for themselves; each of the others for `weight`.
    """

    def __init__(self, source: RawProcess, reader: KeptSpoolReader) -> None:
        self._source, self._reader = source, reader
        self.weight = 1.0
        self._began = self._ended = np.zeros(0, np.int64)  # stretches that were read whole
        self._self_of: dict[int, list[float]] = {}  # by code: self time, of so much

    @property
    def is_thinned(self) -> bool:
        """Whether a part was left out since `settle`, or will be."""
        will_be = self._reader.every > 1
        was = self._reader.left_out > 0
        return will_be or was

    def kept(self, rows: np.ndarray, dur_ns: np.ndarray) -> np.ndarray:
        """Which of these spans are read in any case."""
        is_kept = dur_ns >= self._long_ns()
        is_kept |= is_of_step(rows["kind"], rows["seq"], rows["name"], self._reader.steps)
        return is_kept

    def _long_ns(self) -> int:
        """How long a span is that is long."""
        readings = self._source.events.readings
        if self._source.events.about.get("clock") != "tsc" or len(readings) < 2:
            return LONG_TICKS
        (first, begun_ns, *_), (last, now_ns, *_) = readings[0], readings[-1]
        return LONG_TICKS * (now_ns - begun_ns) // max(last - first, 1)

    def settle(self, others: int) -> None:
        """So many spans have come that are not read in any case: they stand for those too that were
        left out since the last time.
        """
        stretches = np.array(self._reader.whole_ns, np.int64)
        spans = stretches.reshape(-1, 2)
        self._began, self._ended = spans.T
        del self._reader.whole_ns[:-1]
        if others:
            self.weight = 1 + self._reader.left_out / others
            self._reader.left_out = 0

    def self_ns(
        self, code: np.ndarray, span: np.ndarray, all_ns: np.ndarray, kept_ns: np.ndarray
    ) -> np.ndarray:
        """The self time of spans that are read in any case, by their codes and rows of start and
        end; `all_ns`: it less what was read, `kept_ns`: less what is read in any case. What is true
        of those of a stretch that was read whole holds for all of the same code.
        """
        start, end = span.T
        stretch = np.searchsorted(self._began, start, side="right") - 1
        is_known = stretch >= 0
        if len(self._ended):
            is_known &= end <= self._ended[stretch]
        found = all_ns.copy()
        for one in np.unique(code).tolist():
            mine = code == one
            known = mine & is_known
            sums = self._self_of.setdefault(one, [0.0, 0.0])
            sums[0] += float(all_ns[known].sum())
            sums[1] += float(kept_ns[known].sum())
            if sums[1]:
                found[mine] = np.rint(kept_ns[mine] * (sums[0] / sums[1]))
            else:  # longer than any stretch
                seen = (kept_ns[mine] - all_ns[mine]) * self._reader.every
                found[mine] = np.maximum(kept_ns[mine] - seen, 0)
        return found


def scaled(sums: KeyedSums, weight: float) -> KeyedSums:
    """Sums that stand for so many times as much."""
    return KeyedSums(sums.bucket, sums.key, np.rint(sums.sums * weight).astype(np.int64))


def joined(parts: list[KeyedSums | None]) -> KeyedSums | None:
    """The same as one; None: there are none."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    bucket = np.concatenate([part.bucket for part in found])
    key = np.concatenate([part.key for part in found])
    return KeyedSums(bucket, key, np.concatenate([part.sums for part in found]))
