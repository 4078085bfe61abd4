"""How deep spans lie in each other on their threads, for the sources whose files do not tell it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from layerscope.model.compiled import compiled


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
