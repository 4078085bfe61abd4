"""The spans of one process of a foreign file, as narrow columns: they all are in memory, and become
rows only while they are looked at. Used by `foreign`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layerscope.model.compiled import compiled
from layerscope.sources.imported import Imported
from layerscope.sources.process import SPAN

# Spans that are given out at a time, or a few more.
PIECE_SPANS = 100_000
EVER = np.iinfo(np.int64).max
_TYPES: tuple[type[Any], ...] = (np.uint8, np.int16, np.int32, np.uint32)
# By column, what it is of rows of `SPAN`; what a file does not tell is missing.
_USUAL: dict[str, tuple[type[Any], int]] = {
    "origin": (np.int64, 0),
    "seq": (np.int32, -1),
    "submitter": (np.int32, 0),
    "unfinished": (np.uint8, 0),
}
_COLUMNS = ("start_ns", "dur_ns", "track", "depth", "kind", "name", "args")

Columns = dict[str, np.ndarray]


def columns_of(content: Imported) -> Columns:
    """The spans of a file as columns, by track, then start, then depth; they are taken out of
    `content`.
    """
    columns = {name: _taken(content, name) for name in _COLUMNS}
    content.more, more = {}, content.more
    while more:
        name, values = more.popitem()
        columns[name] = narrow(values)
    if not _is_in_order(columns):
        order = np.lexsort((columns["depth"], columns["start_ns"], columns["track"]))
        for name in list(columns):
            columns[name] = columns[name].take(order)
    return columns


def _taken(content: Imported, name: str) -> np.ndarray:
    values = getattr(content, name)
    setattr(content, name, np.zeros(0, np.int64))
    return narrow(values)


def narrow(values: np.ndarray) -> np.ndarray:
    """The same whole numbers in as few bytes as all of them fit into."""
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    for kind in _TYPES:
        about = np.iinfo(kind)
        if np.dtype(kind).itemsize >= values.dtype.itemsize:
            break
        if about.min <= least and most <= about.max:
            return values.astype(kind)
    return values


def _is_in_order(columns: Columns) -> bool:
    """Whether spans come by track, then start, then depth."""
    later = np.zeros(max(len(columns["track"]) - 1, 0), np.bool_)
    same = np.ones(len(later), np.bool_)
    for name in ("track", "start_ns", "depth"):
        values = columns[name]
        later |= same & (values[1:] > values[:-1])
        same &= values[1:] == values[:-1]
    later |= same
    return bool(later.all())


class ForeignSpans:
    """An outermost span is given out together with all that lies in it, in the order of their ends.

    `pieces`: how many there are, of some spans each. `first_args`: the number of the first text of
    arguments among the names of the process.
    """

    def __init__(self, columns: Columns, first_args: int) -> None:
        self._columns = columns
        self._first_args = first_args
        first, lengths = _groups(columns)
        self._first, self._lengths = first, lengths
        behind = np.cumsum(lengths, dtype=np.int64)
        self._bounds = _bounds(behind)  # of the groups of each piece
        self._rows = [0, *behind[np.array(self._bounds[1:], np.intp) - 1].tolist()]
        self.pieces = len(self._bounds) - 1
        self._earliest_ns = self._earliest()

    def rows_until(self, piece: int) -> int:
        """How many spans there are before a piece."""
        return int(self._rows[piece])

    def earliest_ns(self, piece: int) -> int:
        """The start of the first span of this piece and all behind it."""
        return self._earliest_ns[piece]

    def rows(self, piece: int, behind: int) -> Iterator[tuple[int, np.ndarray]]:
        """By track, the spans of pieces as rows of `SPAN`; `behind`: the piece behind the last."""
        groups = slice(self._bounds[piece], self._bounds[behind])
        lengths = self._lengths[groups].astype(np.int64)
        before = np.cumsum(lengths) - lengths
        shift = np.repeat(self._first[groups] - before, lengths)
        places = shift + np.arange(len(shift))
        track = self._columns["track"].take(places)
        order = np.argsort(track, kind="stable")
        rows = self._as_rows(places.take(order))
        is_border = np.diff(rows["track"]) != 0
        borders = np.flatnonzero(is_border) + 1
        for of_track in np.split(rows, borders):
            if len(of_track):
                yield int(of_track["track"][0]), of_track

    def _earliest(self) -> list[int]:
        """By piece the start of the first span from there on."""
        found = [EVER]
        starts_ns = self._columns["start_ns"]
        for piece in reversed(range(self.pieces)):
            groups = slice(self._bounds[piece], self._bounds[piece + 1])
            first_ns = int(starts_ns.take(self._first[groups]).min())
            found.append(min(first_ns, found[-1]))
        return found[::-1]

    def _as_rows(self, places: np.ndarray) -> np.ndarray:
        """These spans as rows of `SPAN`."""
        # The name 0 is that of names which are left out; texts of arguments come behind the names.
        columns = {name: values.take(places) for name, values in self._columns.items()}
        count = len(places)
        for name, (kind, usual) in _USUAL.items():
            columns.setdefault(name, np.full(count, usual, kind))
        library = compiled()
        rows = np.empty(count, SPAN)
        if library is None:
            _join(rows, columns, self._first_args)
            return rows
        moments = (_as(np.int64, columns.pop(name)) for name in ("start_ns", "dur_ns"))
        texts = (_as(np.int32, columns.pop(name)) for name in ("name", "args"))
        where = (_as(np.int32, columns.pop(name)) for name in ("track", "depth"))
        kind_ = _as(np.uint8, columns.pop("kind"))
        rare = (_as(kind, columns.pop(name)) for name, (kind, _) in _USUAL.items())
        library.call("join", rows, count, *moments, *texts, self._first_args, *where, kind_, *rare)
        for name, values in columns.items():
            rows[name] = values
        return rows


def _groups(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """The row of each outermost span, and how many rows it and what lies in it have; by end."""
    depth = columns["depth"]
    first = np.flatnonzero(depth == 0)
    if len(depth) and (not len(first) or first[0] != 0):
        first = np.insert(first, 0, 0)
    lengths = np.diff(first, append=len(depth))
    starts_ns = columns["start_ns"].take(first).astype(np.int64)
    ends_ns = starts_ns + columns["dur_ns"].take(first)
    by_end = np.argsort(ends_ns, kind="stable")
    return first.take(by_end).astype(np.int32), lengths.take(by_end).astype(np.int32)


def _bounds(behind: np.ndarray) -> list[int]:
    """The first group of each piece, and the one behind the last; `behind`: by group, how many rows
    there are up to its end.
    """
    found = [0]
    while found[-1] < len(behind):
        given = int(behind[found[-1] - 1]) if found[-1] else 0
        wanted = min(given + PIECE_SPANS, int(behind[-1]))
        found.append(int(np.searchsorted(behind, wanted)) + 1)
    return found


def _join(rows: np.ndarray, columns: Columns, first_args: int) -> None:
    """What lc_join does, with NumPy."""
    rows[:] = 0
    args = columns.pop("args").astype(np.int64)
    start_ns = columns.pop("start_ns").astype(np.int64)
    rows["start"] = start_ns
    rows["end"] = start_ns + columns.pop("dur_ns")
    rows["name"] = columns.pop("name").astype(np.int64) + 1
    rows["args"] = np.where(args >= 0, args + first_args, 0)
    for name, values in columns.items():
        rows[name] = values


def _as(kind: type[Any], values: np.ndarray) -> np.ndarray:
    """A column of numbers of this type in one piece."""
    return np.ascontiguousarray(values, kind)
