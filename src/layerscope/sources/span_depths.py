"""The order of spans on their tracks, and how deep they lie in each other, for the sources whose
files do not tell it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from layerscope.model.compiled import compiled


def ordered(track: np.ndarray, columns: dict[str, np.ndarray]) -> np.ndarray:
    """The order of spans by track, then start; of two that start together the longer one comes
    first. Of `columns`, `time_ns` and `duration_ns` are looked at.

    Most files have the spans of each track in this order already.
    """
    order = np.argsort(_narrow(track), kind="stable").astype(np.int32)
    track = track.take(order)
    start_ns = columns["time_ns"].take(order)
    dur_ns = columns["duration_ns"].take(order)
    is_later = start_ns[1:] > start_ns[:-1]
    is_same = start_ns[1:] == start_ns[:-1]
    is_in_order = is_later | (is_same & (dur_ns[1:] <= dur_ns[:-1]))
    is_border = track[1:] != track[:-1]
    borders = np.flatnonzero(is_border) + 1
    out_of_order = np.flatnonzero(~(is_in_order | is_border))
    wrong = np.searchsorted(borders, out_of_order, side="right")
    bounds = [0, *borders.tolist(), len(track)]
    for number in set(wrong.tolist()):
        of_track = slice(bounds[number], bounds[number + 1])
        by_start = np.lexsort((-dur_ns[of_track], start_ns[of_track]))
        order[of_track] = order[of_track].take(by_start)
    return order


def _narrow(track: np.ndarray) -> np.ndarray:
    """The same numbers in two bytes if they fit, which are put in order several times as quick."""
    kind = np.int16
    fits = track.max(initial=0) <= np.iinfo(kind).max
    return track.astype(kind) if fits else track


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
