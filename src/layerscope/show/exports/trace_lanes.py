"""Which spans of a thread can share one track of a viewer, and which need another one beside it.

A viewer draws a track as a stack: of two spans that overlap, one must lie in the other. Ranges that
end out of order, or on another thread, cross others; Perfetto drops such a span. Here they get a
lane of their own: lane 0 holds all that nest, lane 1 those that cross a span of lane 0, and so on.

A recording comes in pieces, newest first, because a span lies in the piece in which it ended: what
is open over the border between two pieces is met before what lies in it, and is kept here until no
older span can meet it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

# Spans: their columns fit into the cache of a core.
_AT_ONCE = 1 << 15


class TrackLanes(Struct):
    """The lanes of one track."""

    _open: list[np.ndarray] = field(default_factory=list)  # by lane: rows of (start, end)

    def assign(
        self,
        start_ns: np.ndarray,
        end_ns: np.ndarray,
        older_end_ns: int,
        depth: np.ndarray | None = None,
    ) -> np.ndarray:
        """The lanes of the spans of one piece, which are sorted by start, outer spans first.

        `older_end_ns`: when the last span of the older pieces of this track ends. `depth`: in how
        many spans each lies, as far as is known; where it is right, and nothing crosses, this takes
        a third of the time.
        """
        lanes = np.zeros(len(start_ns), np.int32)
        rows: np.ndarray | None = None  # None: all of them
        lane = 0
        while rows is None or len(rows) or lane < len(self._open):
            if lane == len(self._open):
                self._open.append(np.zeros((0, 2), np.int64))
            start, end = (start_ns, end_ns) if rows is None else (start_ns[rows], end_ns[rows])
            crossing = _crossing(start, end, self._open[lane], depth if rows is None else None)
            self._keep_open(lane, start, end, crossing, older_end_ns)
            rows = crossing if rows is None else rows[crossing]
            lane += 1
            lanes[rows] = lane
        return lanes

    def _keep_open(
        self, lane: int, start: np.ndarray, end: np.ndarray, crossing: np.ndarray, older_end_ns: int
    ) -> None:
        """Remember what older spans of this lane can meet: they are at the front, by start."""
        early = int(np.searchsorted(start, older_end_ns))
        in_front = np.arange(early)
        rows = np.setdiff1d(in_front, crossing, assume_unique=True)
        spans = np.column_stack([start[rows], end[rows]])
        spans = np.concatenate([self._open[lane], spans])
        starts_before = spans[:, 0] < older_end_ns
        self._open[lane] = spans[starts_before]


def _crossing(
    start: np.ndarray, end: np.ndarray, others: np.ndarray, depth: np.ndarray | None
) -> np.ndarray:
    """The rows of the spans that cross one of `others` (rows of start and end), or an earlier span
    that stays.

    Some rows at a time, after those of the earlier rows that stay and are still open.
    """
    found = [np.zeros(0, np.intp)]
    columns = (start, end) if depth is None else (start, end, depth)
    still_open = [column[:0] for column in columns]
    for first in range(0, len(start), _AT_ONCE):
        behind, before = first + _AT_ONCE, len(still_open[0])
        block = [column[first:behind] for column in columns]
        if before:
            block = [np.concatenate(both) for both in zip(still_open, block, strict=True)]
        crossing = _crossing_others(block[0], block[1], others)
        if len(crossing) or depth is None or not _nest(*block):
            crossing = _crossing_within(block[0], block[1], crossing)
        found.append(crossing + (first - before))
        if behind < len(start):
            reaching = np.setdiff1d(
                np.flatnonzero(block[1] > start[behind]), crossing, assume_unique=True
            )
            still_open = [column[reaching] for column in block]
    return np.concatenate(found)


def _nest(start: np.ndarray, end: np.ndarray, depth: np.ndarray) -> bool:
    """Whether the spans nest, and just as `depth` says. No: they may nest all the same.

    They do if the spans of a level lie one behind the other, and each in its parent: that is the
    span right before it, one level up, or else the parent of the one before it on its own level.
    """
    if (start[1:] >= end[:-1]).all():
        return True
    level = depth.astype(np.uint16)
    by_level = np.argsort(level, kind="stable")
    starts, ends, levels = (column.take(by_level) for column in (start, end, level))
    new_level = levels[1:] != levels[:-1]
    if not ((starts[1:] >= ends[:-1]) | new_level).all():
        return False
    first_child = np.append(False, level[1:] == level[:-1] + 1).take(by_level)
    # Without a parent for the first span of a level, or of a step over levels: the parent lies in
    # another piece.
    if not first_child[1:][new_level].all() or (level[1:] > level[:-1] + 1).any():
        return False
    # All but the outermost level.
    inner = int(np.argmax(new_level)) + 1
    first_child = first_child[inner:]
    parent_end = end[by_level[inner:][first_child] - 1]
    return bool((ends[inner:] <= parent_end.take(np.cumsum(first_child) - 1)).all())


def _crossing_within(start: np.ndarray, end: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Level by level from the outermost: the spans of a level lie one behind the other. `left_out`
    cross others.
    """
    found = [left_out]
    rows: np.ndarray | None = None
    if len(left_out):
        rows = np.setdiff1d(np.arange(len(start)), left_out, assume_unique=True)
        start, end = start[rows], end[rows]
    while (start[1:] < end[:-1]).any():
        reached = _reached(end[:-1])
        inside = np.flatnonzero(start[1:] < reached)
        sticks_out = inside[end[1:][inside] > reached[inside]] + 1
        if len(sticks_out):
            # What only seemed to lie inside one of these is looked at again without them.
            found.append(sticks_out if rows is None else rows[sticks_out])
            inside = np.setdiff1d(np.arange(len(start)), sticks_out, assume_unique=True)
        else:
            inside += 1
        rows = inside if rows is None else rows[inside]
        start, end = start.take(inside), end.take(inside)
    return np.sort(np.concatenate(found))


def _crossing_others(start: np.ndarray, end: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The rows of the spans that cross one of `others`."""
    last_end = int(end.max())
    starts_before = others[:, 0] < last_end
    ends_after = others[:, 1] > start[0]
    others = others[starts_before & ends_after]
    if not len(others):
        return np.zeros(0, np.intp)
    crosses = np.zeros(len(start), bool)
    for other_start, other_end in others.tolist():
        places = np.searchsorted(start, (other_start, other_end))
        first, behind = places.tolist()
        if last_end > other_end:
            crosses[first:behind] |= end[first:behind] > other_end
        if first:
            earlier_end = end[:first]
            crosses[:first] |= (earlier_end > other_start) & (earlier_end < other_end)
    return np.flatnonzero(crosses)


def _reached(end: np.ndarray) -> np.ndarray:
    """For each span, the latest end of those up to it. In Arrow, which takes two thirds of the time
    of NumPy.
    """
    reached: np.ndarray = pc.cumulative_max(pa.array(end)).to_numpy()
    return reached
