"""Clocks: the only place where a time of one clock becomes a time of another.

The run's clock is CLOCK_MONOTONIC of the recording host in integer nanoseconds. A foreign clock is
put on it by readings of both at the same moment; between two readings the way is a straight line,
rounded down, so the order of any two moments is kept.
"""

from __future__ import annotations

import numpy as np

from layerscope.model.compiled import compiled


class Conversion:
    """From the ticks of one clock to nanoseconds of the run, along readings that come one by
    one.
    """

    def __init__(self) -> None:
        # What the foreign clock read, and the run's; with room for more.
        self._known = np.zeros((2, 64), np.int64)
        self._count = 0

    def add(self, ticks: int, run_ns: int) -> None:
        """One more reading; one that goes backwards on either clock is left out."""
        count = self._count
        if count:
            last_ticks, last_run_ns = self._known[:, count - 1]
            if ticks <= last_ticks or run_ns <= last_run_ns:
                return
        if count == self._known.shape[1]:
            room = np.zeros_like(self._known)
            self._known = np.concatenate([self._known, room], axis=1)
        self._known[:, count] = ticks, run_ns
        self._count = count + 1

    @property
    def last(self) -> int:
        """The newest reading of the foreign clock: up to here a conversion is final."""
        if not self._count:
            return -1
        newest = self._count - 1
        return int(self._known[0, newest])

    @property
    def readings(self) -> list[tuple[int, int]]:
        """All readings: (ticks of the foreign clock, run_ns)."""
        known = self._known[:, : self._count]
        ticks, run_ns = known.tolist()
        return list(zip(ticks, run_ns, strict=True))

    def put_on_run(self, ticks: np.ndarray) -> None:
        """`to_run` in place; `ticks` are int64, and may be a column of rows."""
        library = compiled()
        if library is None or self._count < 2:
            ticks[:] = self.to_run(ticks)
            return
        assert ticks.dtype == np.int64
        address, _ = ticks.__array_interface__["data"]
        known = (self._known[0], self._known[1], self._count)
        library.call("to_run", address, ticks.strides[0], len(ticks), *known)

    def to_run(self, ticks: np.ndarray) -> np.ndarray:
        """`ticks` (uint64 or int64) as int64 nanoseconds of the run; beyond the readings by the
        nearest line.
        """
        ticks = ticks.astype(np.int64)
        read_ticks, read_ns = self._known[:, : self._count]
        if len(read_ticks) < 2 or not len(ticks):
            shift_ns = read_ns[0] - read_ticks[0] if len(read_ticks) else 0
            shifted: np.ndarray = ticks + shift_ns
            return shifted
        # Of a long run only the readings around these moments.
        extremes = [ticks.min(), ticks.max()]
        first, after = np.searchsorted(read_ticks, extremes, side="right")
        first = min(max(first - 1, 0), len(read_ticks) - 2)
        after = max(after, first + 1)
        near = slice(first, after + 1)
        read_ticks, read_ns = read_ticks[near], read_ns[near]
        before = np.searchsorted(read_ticks, ticks, side="right") - 1
        line = np.clip(before, 0, len(read_ticks) - 1)
        # Differences are below 2**53 ticks, so the float product is exact to far less than a
        # nanosecond.
        length_ns = np.diff(read_ns)
        slope = length_ns / np.diff(read_ticks)
        slope_at = np.append(slope, slope[-1])[line]
        since_reading = ticks - read_ticks[line]
        along_ns = np.floor(since_reading * slope_at).astype(np.int64)
        # Rounding must not carry a moment past the next reading: order is kept across the border.
        unlimited = np.iinfo(np.int64).max
        limit_ns = np.append(length_ns, unlimited)[line]
        moments: np.ndarray = read_ns[line] + np.minimum(along_ns, limit_ns)
        return moments


class Identity(Conversion):
    """For sources that already use the run's clock."""

    def put_on_run(self, ticks: np.ndarray) -> None:
        """They stay as they are."""

    def to_run(self, ticks: np.ndarray) -> np.ndarray:
        """`ticks` unchanged, as int64."""
        return ticks.astype(np.int64)


class Elsewhere(Identity):
    """CLOCK_MONOTONIC of another host, which is a constant away from the run's."""

    def __init__(self, shift_ns: int) -> None:
        super().__init__()
        self._shift_ns = shift_ns

    def add(self, ticks: int, run_ns: int) -> None:
        """One more reading; `ticks` is already on the run's clock."""
        own_ticks = ticks - self._shift_ns
        super().add(own_ticks, run_ns)

    def put_on_run(self, ticks: np.ndarray) -> None:
        """`ticks` of that host, in place."""
        ticks += self._shift_ns

    def to_run(self, ticks: np.ndarray) -> np.ndarray:
        """`ticks` of that host."""
        return ticks.astype(np.int64) + self._shift_ns
