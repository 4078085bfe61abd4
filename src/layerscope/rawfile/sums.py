"""Exact sums over the spans of a process, by name and kind: what the drainer counts, whatever
becomes of the spans.
"""

from __future__ import annotations

import numpy as np

from layerscope.model.compiled import Compiled, compiled
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
        library = compiled()
        if library is not None:
            self._add_compiled(library, np.ascontiguousarray(records))
            return
        spans = records.compress(records["kind"] < layout.FIRST_SPECIAL)
        if not len(spans):
            return
        code = spans["name"].astype(np.int64) * KINDS_LIMIT + spans["kind"]
        ticks = (spans["end"] - spans["start"]).view(np.int64)
        # A clock that was set back makes an end before its start.
        ticks = np.maximum(ticks, 0)
        most = int(code.max()) + 1
        if most > _SPARSE * len(code):
            codes, place = np.unique(code, return_inverse=True)
            counts = np.bincount(place)
            sums = np.bincount(place, ticks)
        else:
            of_all_codes = np.bincount(code)
            codes = np.flatnonzero(of_all_codes)
            counts = of_all_codes[codes]
            sums = np.bincount(code, ticks)[codes]
        # Float sums of integers are exact below 2**53 ticks: a month in one chunk.
        self._add(codes, counts, sums.astype(np.int64))

    def _add_compiled(self, library: Compiled, records: np.ndarray) -> None:
        used = np.array([self._used], np.int64)
        while len(records):
            known, room = len(self._row), len(self._codes)
            sums = (self._row, known, self._codes, self._sums, room, used)
            done = library.call("sums", records, len(records), KINDS_LIMIT, *sums)
            self._used = int(used[0])
            records = records[done:]
            if len(records):  # there is no room for the first of these
                code = int(records["name"][0]) * KINDS_LIMIT + int(records["kind"][0])
                self._make_room(code, 1)

    def restore(self, packed: bytes) -> None:
        """Go on from the sums that `packed` gave."""
        self._sums[:] = 0
        self.add_sums(packed)

    def add_sums(self, packed: bytes) -> None:
        """Add the sums that `packed` gave of other spans."""
        rows = rows_of(packed)
        kind, name, count, ticks = rows.T
        codes = name * KINDS_LIMIT + kind
        self._add(codes, count, ticks)

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
        kind, name, *_ = rows.T
        code = name * KINDS_LIMIT + kind
        # Codes beyond the table are at its end, which stands for unknown ones.
        table = np.append(self._row, np.int32(0))
        places = table[np.minimum(code, len(self._row))]
        known = np.flatnonzero(places)
        rows[known, 2:] -= self._sums[places[known] - 1]
        is_more = rows[:, 2] > 0
        return rows[is_more]

    def _add(self, codes: np.ndarray, counts: np.ndarray, ticks: np.ndarray) -> None:
        """`codes`: each once."""
        self._make_room(int(codes.max(initial=-1)), 0)
        is_fresh = self._row[codes] == 0
        fresh = codes[is_fresh]
        if len(fresh):
            self._add_rows(fresh)
        at = self._row[codes] - 1
        self._sums[at, 0] += counts
        self._sums[at, 1] += ticks

    def _make_room(self, code: int, more: int) -> None:
        """Make room for this code, and for so many more rows of sums."""
        if code >= len(self._row):
            self._row = _grown(self._row, 2 * (code + 1))
        used = self._used + more
        if used > len(self._codes):
            self._codes = _grown(self._codes, 2 * used)
            self._sums = _grown(self._sums, 2 * used)

    def _add_rows(self, codes: np.ndarray) -> None:
        """A row of sums for each of these codes, which have none yet."""
        first = self._used
        used = first + len(codes)
        self._make_room(-1, len(codes))
        self._row[codes] = np.arange(first + 1, used + 1)
        self._codes[first:used] = codes
        self._used = used


def rows_of(packed: bytes) -> np.ndarray:
    """The rows that `RawTotals.packed` made."""
    return np.frombuffer(packed, "<i8").reshape(-1, 4)


def _grown(values: np.ndarray, length: int) -> np.ndarray:
    """The same with zeros behind; memory for these is taken when they are written."""
    grown = np.zeros((length, *values.shape[1:]), values.dtype)
    grown[: len(values)] = values
    return grown
