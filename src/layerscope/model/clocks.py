"""Clocks: the only place where a time of one clock becomes a time of another.

The run's clock is CLOCK_MONOTONIC of the recording host in integer nanoseconds. A foreign clock is put on
it by readings of both at the same moment; between two readings the way is a straight line, rounded down,
so the order of any two moments is kept.
"""

from __future__ import annotations

import numpy as np


class Conversion:
    """From the ticks of one clock to nanoseconds of the run, along readings that come one by one."""

    def __init__(self) -> None:
        self._its: list[int] = []
        self._run_ns: list[int] = []
        self._arrays: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, its: int, run_ns: int) -> None:
        """One more reading; one that goes backwards on either clock is left out."""
        if self._its and (its <= self._its[-1] or run_ns <= self._run_ns[-1]):
            return
        self._its.append(its)
        self._run_ns.append(run_ns)
        self._arrays = None

    @property
    def last(self) -> int:
        """The newest reading of the foreign clock: up to here a conversion is final."""
        return self._its[-1] if self._its else -1

    @property
    def readings(self) -> list[tuple[int, int]]:
        """All readings: (its, run_ns)."""
        return list(zip(self._its, self._run_ns, strict=True))

    def to_run(self, ticks: np.ndarray) -> np.ndarray:
        """`ticks` (uint64 or int64) as int64 nanoseconds of the run; beyond the readings by the nearest line."""
        ticks = ticks.astype(np.int64)
        if len(self._its) < 2:
            shift = self._run_ns[0] - self._its[0] if self._its else 0
            return ticks + shift
        if self._arrays is None:
            self._arrays = (np.array(self._its, np.int64), np.array(self._run_ns, np.int64))
        its, run_ns = self._arrays
        line = np.clip(np.searchsorted(its, ticks, side="right") - 1, 0, len(its) - 1)
        # Differences are below 2**53 ticks, so the float product is exact to far less than a nanosecond.
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
