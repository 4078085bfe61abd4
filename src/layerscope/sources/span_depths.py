"""The order of spans on their tracks, and how deep they lie in each other, for the sources whose
files do not tell it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from layerscope.model.compiled import compiled
from layerscope.model.distinct import distinct
from layerscope.sources.foreign_spans import narrow

# Rows that are looked at together: what is made of them stays in the caches.
_BLOCK_ROWS = 1 << 17


def ordered(track: np.ndarray, columns: dict[str, np.ndarray]) -> np.ndarray:
    """The order of spans by track, then start; of two that start together the longer one comes
    first. Of `columns`, `time_ns` and `duration_ns` are looked at.

    Most files have the spans of each track in this order already.
    """
    # Short integers are put in order several times as quick.
    order = np.argsort(narrow(track), kind="stable").astype(np.int32)
    wrong = set()
    for first in range(0, len(order), _BLOCK_ROWS):
        block = order[first : first + _BLOCK_ROWS + 1]
        wrong.update(_out_of_order(block, track, columns))
    if wrong:
        in_order = track.take(order)
    for number in wrong:
        bounds = (number, number + 1)
        first, behind = np.searchsorted(in_order, bounds)
        rows = order[first:behind]
        start_ns, dur_ns = columns["time_ns"].take(rows), columns["duration_ns"].take(rows)
        order[first:behind] = rows.take(np.lexsort((-dur_ns, start_ns)))
    return order


def _out_of_order(rows: np.ndarray, track: np.ndarray, columns: dict[str, np.ndarray]) -> list[int]:
    """The tracks on which one of these rows, which come by track, is before the one before it."""
    track = track.take(rows)
    start_ns = columns["time_ns"].take(rows)
    dur_ns = columns["duration_ns"].take(rows)
    after_ns = np.diff(start_ns)
    is_tied = after_ns == 0
    is_longer = np.diff(dur_ns) > 0
    is_wrong = (after_ns < 0) | (is_tied & is_longer)
    is_wrong &= np.diff(track) == 0
    wrong = track[1:].compress(is_wrong)
    found: list[int] = distinct(wrong).tolist()
    return found


def put_in_order(columns: dict[str, np.ndarray], order: np.ndarray) -> None:
    """Put the rows of all columns in this order; their arrays are used up.

    Each is put into the memory of one before it, which the system need not fill with zeros first.
    """
    free: dict[np.dtype[Any], np.ndarray] = {}
    for name, values in columns.items():
        into = free.get(values.dtype)
        columns[name] = _taken(values, order, np.empty_like(values) if into is None else into)
        free[values.dtype] = values


def _taken(values: np.ndarray, order: np.ndarray, into: np.ndarray) -> np.ndarray:
    for first in range(0, len(order), _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        values.take(order[rows], out=into[rows], mode="clip")  # another mode would need a buffer
    return into


def depths(tid: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many spans of the thread come before each one and have not ended. Spans are in the order
    of threads, then starts; of two that start together the outer one comes first.
    """
    depth = np.zeros(len(tid), np.int32)
    library = compiled()
    if library is not None:
        moments = (np.ascontiguousarray(values, np.int64) for values in (start, end))
        threads = np.ascontiguousarray(tid, np.int32)
        open_ = np.empty(len(tid), np.int64)
        if library.call("depths", threads, *moments, len(tid), open_, depth) >= 0:
            return depth
    is_border = tid[1:] != tid[:-1]
    borders = np.flatnonzero(is_border) + 1
    for first, last in pairwise([0, *borders.tolist(), len(tid)]):
        of_thread = slice(first, last)
        depth[of_thread] = _depths_of_thread(start[of_thread], end[of_thread])
    return depth


def _depths_of_thread(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    before = np.arange(len(start))
    ended = np.searchsorted(np.sort(end), start, side="right")
    # Spans without a duration, which end where they start, count there even if they come
    # behind.
    empty = np.append(0, np.cumsum(start == end))
    behind_start = np.searchsorted(start, start, side="right")
    empty_behind = empty[behind_start] - empty[:-1]
    depth: np.ndarray = before - ended + empty_behind
    return depth
