"""Clocks: the only place where a time of one clock becomes a time of another.

The run's clock is CLOCK_MONOTONIC of the recording host in integer nanoseconds. A foreign clock is
put on it by readings of both at the same moment; between two readings the way is a straight line,
rounded down, so the order of any two moments is kept.
"""

from __future__ import annotations

import numpy as np


class Conversion:
    """From the ticks of one clock to nanoseconds of the run, along readings that come one by
    one.
    """

    def __init__(self) -> None:
        self._known = np.zeros(
            (2, 64), np.int64
        )  # what that clock read, and the run's; room for more
        self._count = 0

    def add(self, its: int, run_ns: int) -> None:
        """One more reading; one that goes backwards on either clock is left out."""
        at = self._count
        if at and (its <= self._known[0, at - 1] or run_ns <= self._known[1, at - 1]):
            return
        if at == self._known.shape[1]:
            self._known = np.concatenate([self._known, np.zeros_like(self._known)], axis=1)
        self._known[:, at] = its, run_ns
        self._count = at + 1

    @property
    def last(self) -> int:
        """The newest reading of the foreign clock: up to here a conversion is final."""
        return int(self._known[0, self._count - 1]) if self._count else -1

    @property
    def readings(self) -> list[tuple[int, int]]:
        """All readings: (its, run_ns)."""
        its, run_ns = self._known[:, : self._count].tolist()
        return list(zip(its, run_ns, strict=True))

    def to_run(self, ticks: np.ndarray) -> np.ndarray:
        """`ticks` (uint64 or int64) as int64 nanoseconds of the run; beyond the readings by the
        nearest line.
        """
        ticks = ticks.astype(np.int64)
        its, run_ns = self._known[:, : self._count]
        if len(its) < 2 or not len(ticks):
            shift: np.ndarray = ticks + (run_ns[0] - its[0] if len(its) else 0)
            return shift
        # Of a long run only the readings around these moments.
        first = min(max(int(np.searchsorted(its, ticks.min(), side="right")) - 1, 0), len(its) - 2)
        behind = max(int(np.searchsorted(its, ticks.max(), side="right")), first + 1)
        its, run_ns = its[first : behind + 1], run_ns[first : behind + 1]
        line = np.clip(np.searchsorted(its, ticks, side="right") - 1, 0, len(its) - 1)
        # Differences are below 2**53 ticks, so the float product is exact to far less than a
        # nanosecond.
        slope = np.diff(run_ns) / np.diff(its)
        along = np.floor((ticks - its[line]) * np.append(slope, slope[-1])[line]).astype(np.int64)
        # Rounding must not carry a moment past the next reading: order is kept across the border.
        limit = np.append(np.diff(run_ns), np.iinfo(np.int64).max)[line]
        moments: np.ndarray = run_ns[line] + np.minimum(along, limit)
        return moments


class Identity(Conversion):
    """For sources that already use the run's clock."""

    def to_run(self, ticks: np.ndarray) -> np.ndarray:
        """`ticks` unchanged, as int64."""
        return ticks.astype(np.int64)


class Elsewhere(Identity):
    """CLOCK_MONOTONIC of another host, which is a constant away from the run's."""

    def __init__(self, shift_ns: int) -> None:
        super().__init__()
        self._shift_ns = shift_ns

    def add(self, its: int, run_ns: int) -> None:
        """One more reading; `its` is already on the run's clock."""
        super().add(its - self._shift_ns, run_ns)

    def to_run(self, ticks: np.ndarray) -> np.ndarray:
        """`ticks` of that host."""
        return ticks.astype(np.int64) + self._shift_ns
