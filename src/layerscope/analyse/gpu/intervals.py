"""Intervals of time that are sorted and do not overlap: sets of moments."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.gpu.sweep import Int64s


class Intervals(Struct, frozen=True):
    """Sorted, and none overlaps another: each from `start_ns` up to `end_ns`."""

    start_ns: Int64s
    end_ns: Int64s

    @property
    def total_ns(self) -> int:
        """How long they are together."""
        lasted_ns = self.end_ns - self.start_ns
        return int(lasted_ns.sum())

    def in_windows(self, from_ns: Int64s, until_ns: Int64s) -> Int64s:
        """How much of the time between each two moments they cover; nothing where the second is
        not later.
        """
        covered = self._before(np.maximum(from_ns, until_ns)) - self._before(from_ns)
        return covered

    def _before(self, at_ns: Int64s) -> Int64s:
        """How much of the time before each of these moments they cover."""
        if not len(self.start_ns):
            return np.zeros_like(at_ns)
        lasted_ns = self.end_ns - self.start_ns
        sums_ns = np.concatenate(([0], np.cumsum(lasted_ns)))
        begun = np.searchsorted(self.start_ns, at_ns, side="right")
        # Of the one that has begun last some may be still to come.
        ends_ns = self.end_ns[np.maximum(begun - 1, 0)]
        left_ns = np.maximum(ends_ns - at_ns, 0)
        found: Int64s = sums_ns[begun] - np.where(begun > 0, left_ns, 0)
        return found


def merged(start_ns: Int64s, end_ns: Int64s) -> Intervals:
    """What any intervals cover; those that touch become one."""
    if not len(start_ns):
        return Intervals(start_ns, end_ns)
    order = np.argsort(start_ns, kind="stable")
    starts_ns = start_ns[order]
    latest_ns = np.maximum.accumulate(end_ns[order])
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = starts_ns[1:] > latest_ns[:-1]
    first = np.flatnonzero(is_new)
    last = np.append(first[1:], len(order)) - 1
    return Intervals(starts_ns[first], latest_ns[last])


def difference(whole: Intervals, without: Intervals) -> Intervals:
    """The moments of the first that are not in the second."""
    bounds = (whole.start_ns, whole.end_ns, without.start_ns, without.end_ns)
    lengths = [len(one) for one in bounds]
    at_ns = np.concatenate(bounds)
    order = np.argsort(at_ns, kind="stable")
    of_whole = np.repeat([1, -1, 0, 0], lengths)[order]
    of_other = np.repeat([0, 0, 1, -1], lengths)[order]
    is_in = np.cumsum(of_whole) > 0
    is_in &= np.cumsum(of_other) == 0
    moments_ns = at_ns[order]
    lasts = np.diff(moments_ns) > 0
    kept = np.flatnonzero(is_in[:-1] & lasts)
    return merged(moments_ns[kept], moments_ns[kept + 1])
