"""Lanes: the spans that lie one after the other in a row of the timeline, with their ends in one
piece, so that a picture costs one binary search a pixel.

What overlaps at one depth is laid into lanes of its own, as web/src/timeline/strips.ts does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from layerscope.analyse.timeline.mapped import MappedFiles

if TYPE_CHECKING:
    from layerscope.analyse.timeline.columns import TimelineColumns

# More overlapping spans than this share the last lane.
MOST_OVERLAPS = 16
# What is known of a lane: its track, the depth or layer, where its rows begin, and whether some of
# them overlap nevertheless.
_FIELDS = ("track", "level", "begin", "overlaps")
_MOST_RADIX = 1 << 16


class Lanes(Struct, frozen=True):
    """All lanes: `rows` and `end` of one lane after the other; `about` has `_FIELDS` of each."""

    about: np.ndarray
    rows: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return len(self.about[0])

    def save(
        self,
        folder: Path,
        name: str,
    ) -> None:
        """Write them into files that begin with `name`."""
        for part in ("about", "rows", "end"):
            np.save(folder / f"{name}_{part}.npy", getattr(self, part), allow_pickle=False)

    @staticmethod
    def opened(
        files: MappedFiles,
        name: str,
    ) -> Lanes:
        """What `save` has written."""
        parts = ("about", "rows", "end")
        found = [files.opened(f"{name}_{part}", is_searched=True) for part in parts]
        return Lanes(*found)

    def track(self, lane: int) -> int:
        """The track of a lane."""
        return int(self.about[0, lane])

    def level(self, lane: int) -> int:
        """The depth of a lane, or its layer."""
        return int(self.about[1, lane])

    def bounds(self, lane: int) -> tuple[int, int]:
        """Where the rows of a lane are."""
        begin = self.about[2]
        last = int(begin[lane + 1]) if lane + 1 < len(self) else len(self.rows)
        return int(begin[lane]), last

    def overlaps(self, lane: int) -> bool:
        """Whether spans of a lane overlap, because there are too many that do."""
        return bool(self.about[3, lane])

    def of_track(
        self,
        track: int,
    ) -> range:
        """The lanes of a track."""
        found = np.searchsorted(self.about[0], [track, track + 1])
        return range(int(found[0]), int(found[1]))

    def place(self, row: int, track: int) -> tuple[int, int]:
        """The lane of a span, and its place in it."""
        for lane in self.of_track(track):
            first, last = self.bounds(lane)
            at = first + int(np.searchsorted(self.rows[first:last], row))
            if at < last and self.rows[at] == row:
                return lane, at - first
        return -1, -1


def lanes_by_depth(
    track: np.ndarray, depth: np.ndarray, start_ns: np.ndarray, dur_ns: np.ndarray
) -> Lanes:
    """The lanes of spans that are in the order of the page."""
    lane = depth.astype(np.int64)
    return _laid_out(track, lane, depth, start_ns, dur_ns)


def lanes_by_layer(columns: TimelineColumns) -> Lanes:
    """The lanes with the layers of each track apart: of each layer by the depth in that layer."""
    layer = columns.classes[:, 2][columns.cls]
    depth = _depths_in_layer(columns.parent, columns.depth, layer)
    track = np.repeat(columns.tracks, np.diff(columns.bounds))
    deepest = int(depth.max(initial=0)) + 1
    return _laid_out(track, layer * deepest + depth, layer, columns.start, columns.dur)


def _depths_in_layer(parent: np.ndarray, depth: np.ndarray, layer: np.ndarray) -> np.ndarray:
    """How many spans of its own layer each span lies in."""
    found = np.zeros(len(parent), np.int64)
    for level in range(1, int(depth.max(initial=0)) + 1):
        rows = np.flatnonzero(depth == level)
        around = parent[rows]
        waiting = np.flatnonzero(around >= 0)
        while len(waiting):
            above = around[waiting]
            is_same = layer[above] == layer[rows[waiting]]
            found[rows[waiting[is_same]]] = found[above[is_same]] + 1
            waiting, above = waiting[~is_same], parent[above[~is_same]]
            around[waiting] = above
            waiting = waiting[above >= 0]
    return found


def _laid_out(
    track: np.ndarray,
    lane: np.ndarray,
    level: np.ndarray,
    start_ns: np.ndarray,
    dur_ns: np.ndarray,
) -> Lanes:
    """The lanes of spans by their tracks and by `lane`, which orders those of a track; `level` is
    what is noted of each.
    """
    if not len(track):
        nothing = np.zeros(0, np.int64)
        return Lanes(np.zeros((len(_FIELDS), 0), np.int64), nothing.astype(np.uint32), nothing)
    rows, begins = _sorted(track, lane)
    end_ns = start_ns[rows]
    is_early = end_ns[1:] < (end_ns[:-1] + dur_ns[rows[:-1]])
    end_ns += dur_ns[rows]
    is_early[begins[1:] - 1] = False
    crowded = np.unique(np.searchsorted(begins, np.flatnonzero(is_early) + 1, "right") - 1)
    bounds = np.append(begins, len(rows))
    overlapping: list[int] = []
    extra = []
    for one in crowded.tolist():
        part = slice(int(bounds[one]), int(bounds[one + 1]))
        sizes = _apart(rows[part], start_ns, end_ns[part])
        places = part.start + np.cumsum(sizes)[:-1]
        extra.append(places)
        if len(sizes) == MOST_OVERLAPS:
            overlapping.append(part.start + sum(sizes[:-1]))
    begins = np.sort(np.concatenate([begins, *extra]))
    first = rows[begins]
    about = np.stack([track[first], level[first], begins, np.isin(begins, overlapping)])
    return Lanes(about.astype(np.int64), rows, end_ns)


def _sorted(track: np.ndarray, lane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows by track and lane, and where each lane begins."""
    is_next_track = np.diff(track, prepend=track[0]) != 0
    places = np.cumsum(is_next_track)
    lanes = int(lane.max()) + 1
    key = places * lanes + lane
    most = int(key.max())
    if most < _MOST_RADIX:
        key = key.astype(np.uint16)  # NumPy sorts these in one pass
    order = np.argsort(key, kind="stable")
    key = key[order]
    is_first = np.ones(len(key), np.bool_)
    is_first[1:] = key[1:] != key[:-1]
    return order.astype(np.uint32), np.flatnonzero(is_first)


def _apart(rows: np.ndarray, start_ns: np.ndarray, end_ns: np.ndarray) -> list[int]:
    """Put the spans of a lane in the order of lanes in which nothing overlaps; how many spans each
    of these has. A span goes into the first lane that is free when it starts.
    """
    given_rows, given_end_ns = rows.copy(), end_ns.copy()
    left = np.arange(len(rows))
    order: list[np.ndarray] = []
    sizes: list[int] = []
    while len(left):
        is_last = len(order) == MOST_OVERLAPS - 1
        taken = left if is_last else left[_chain(start_ns[given_rows[left]], given_end_ns[left])]
        order.append(taken)
        sizes.append(len(taken))
        left = np.setdiff1d(left, taken, assume_unique=True)
    every = np.concatenate(order)
    rows[:] = given_rows[every]
    end_ns[:] = given_end_ns[every]
    return sizes


def _chain(
    start_ns: np.ndarray,
    end_ns: np.ndarray,
) -> np.ndarray:
    """The places of the first span, of the first one that starts when that has ended, and so on;
    in as many passes as their number has binary digits.
    """
    count = len(start_ns)
    following = np.maximum(np.searchsorted(start_ns, end_ns), np.arange(1, count + 1))
    following = np.append(following, count)
    is_in = np.zeros(count + 1, np.bool_)
    is_in[0] = True
    for jump in _doubled(following):
        is_in[jump[np.flatnonzero(is_in)]] = True
    return np.flatnonzero(is_in[:-1])


def _doubled(following: np.ndarray) -> Iterator[np.ndarray]:
    """What follows after 1, 2, 4, ... spans, until nothing does."""
    end = len(following) - 1
    while True:
        yield following
        if following[0] == end:
            return
        following = following[following]
