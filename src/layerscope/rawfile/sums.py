"""Exact sums over the spans of a process, by name and kind: what the drainer counts, whatever
becomes of the spans.
"""

from __future__ import annotations

import numpy as np

from layerscope.rawfile import layout

# Kinds of a span are small numbers (model/layers.py KINDS).
KINDS_LIMIT = 16
# A place for each name and kind is quicker than sorting, as long as there are not many times more
# of them than spans.
_SPARSE = 8


class RawTotals:
    """The count and the ticks of spans by name and kind, in memory for those that occur."""

    def __init__(self) -> None:
        self._row = np.zeros(0, np.int32)  # by code (name and kind): 1 + its place in the sums
        self._codes = np.zeros(0, np.int64)
        self._sums = np.zeros((0, 2), np.int64)
        self._used = 0

    def add(self, records: np.ndarray) -> None:
        """Count the finished spans among `records`."""
        spans = records[records["kind"] < layout.FIRST_SPECIAL]
        if not len(spans):
            return
        code = spans["name"].astype(np.int64) * KINDS_LIMIT + spans["kind"]
        # A clock that was set back makes an end before its start.
        ticks = np.maximum((spans["end"] - spans["start"]).astype(np.int64), 0)
        most = int(code.max()) + 1
        if most > _SPARSE * len(code):
            codes, place = np.unique(code, return_inverse=True)
            counts, sums = np.bincount(place), np.bincount(place, ticks)
        else:
            counts, sums = np.bincount(code), np.bincount(code, ticks)
            codes = np.flatnonzero(counts)
            counts, sums = counts[codes], sums[codes]
        # Float sums of integers are exact below 2**53 ticks: a month in one chunk.
        self._add(codes, counts, sums.astype(np.int64))

    def restore(self, packed: bytes) -> None:
        """Go on from the sums that `packed` gave."""
        kind, name, count, ticks = rows_of(packed).T
        self._sums[:] = 0
        self._add(name * KINDS_LIMIT + kind, count, ticks)

    def packed(self) -> bytes:
        """Rows of int64: kind, name, count, ticks."""
        order = np.argsort(self._codes[: self._used])
        codes, sums = self._codes[: self._used][order], self._sums[: self._used][order]
        return (
            np.column_stack([codes % KINDS_LIMIT, codes // KINDS_LIMIT, sums])
            .astype(np.int64)
            .tobytes()
        )

    def missing_from(self, packed: bytes) -> np.ndarray:
        """What the sums that `packed` gave know more than these: rows of kind, name, count,
        ticks.
        """
        rows = rows_of(packed).copy()
        code = rows[:, 1] * KINDS_LIMIT + rows[:, 0]
        known = np.append(self._row, np.int32(0))[np.minimum(code, len(self._row))]
        seen = np.flatnonzero(known)
        rows[seen, 2:] -= self._sums[known[seen] - 1]
        return rows[rows[:, 2] > 0]

    def _add(self, codes: np.ndarray, counts: np.ndarray, ticks: np.ndarray) -> None:
        """`codes`: each once."""
        most = int(codes.max(initial=-1)) + 1
        if most > len(self._row):
            self._row = _grown(self._row, 2 * most)
        fresh = codes[self._row[codes] == 0]
        if len(fresh):
            used = self._used + len(fresh)
            if used > len(self._codes):
                self._codes, self._sums = (
                    _grown(self._codes, 2 * used),
                    _grown(self._sums, 2 * used),
                )
            self._row[fresh] = np.arange(self._used + 1, used + 1)
            self._codes[self._used : used] = fresh
            self._used = used
        at = self._row[codes] - 1
        self._sums[at, 0] += counts
        self._sums[at, 1] += ticks


def rows_of(packed: bytes) -> np.ndarray:
    """The rows that `RawTotals.packed` made."""
    return np.frombuffer(packed, "<i8").reshape(-1, 4)


def _grown(values: np.ndarray, length: int) -> np.ndarray:
    """The same with zeros behind; memory for these is taken when they are written."""
    grown = np.zeros((length, *values.shape[1:]), values.dtype)
    grown[: len(values)] = values
    return grown
