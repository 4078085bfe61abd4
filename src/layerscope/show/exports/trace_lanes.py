"""Which spans of a thread can share one track of a viewer, and which need another one beside it.

A viewer draws a track as a stack: of two spans that overlap, one must lie in the other. Ranges that end out of
order, or on another thread, cross others; Perfetto drops such a span. Here they get a lane of their own: lane 0
holds all that nest, lane 1 those that cross a span of lane 0, and so on.

A recording comes in pieces, newest first, because a span lies in the piece in which it ended: what is open over
the border between two pieces is met before what lies in it, and is kept here until no older span can meet it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# Spans: their columns fit into the cache of a core.
_AT_ONCE = 1 << 14
_LONG_AGO = np.iinfo(np.int64).min


@dataclass(slots=True)
class TrackLanes:
    """The lanes of one track."""

    _open: list[np.ndarray] = field(default_factory=list)  # by lane: rows of (start, end)

    def assign(self, start_ns: np.ndarray, end_ns: np.ndarray, older_end_ns: int) -> np.ndarray:
        """The lanes of the spans of one piece, which are sorted by start, outer spans first.

        `older_end_ns`: when the last span of the older pieces of this track ends.
        """
        lanes = np.zeros(len(start_ns), np.int32)
        rows: np.ndarray | None = None  # None: all of them
        lane = 0
        while rows is None or len(rows) or lane < len(self._open):
            if lane == len(self._open):
                self._open.append(np.zeros((0, 2), np.int64))
            start, end = (start_ns, end_ns) if rows is None else (start_ns[rows], end_ns[rows])
            crossing = _crossing(start, end, self._open[lane])
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
        kept = np.setdiff1d(np.arange(early), crossing, assume_unique=True)
        met = np.concatenate([self._open[lane], np.column_stack([start[kept], end[kept]])])
        self._open[lane] = met[met[:, 0] < older_end_ns]


def _crossing(start: np.ndarray, end: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The rows of the spans that cross one of `others` (rows of start and end), or an earlier span that stays."""
    if not len(start):
        return np.zeros(0, np.intp)
    borders = _borders(start, end)
    found = [first + _crossing_within(start[first:behind], end[first:behind], others) for first, behind in borders]
    return np.concatenate(found)


def _borders(start: np.ndarray, end: np.ndarray) -> list[tuple[int, int]]:
    """Cuts where nothing is open, not too many of them: what lies between two is looked at in the cache."""
    alone = np.flatnonzero(start >= _reached_before(end))
    places = np.searchsorted(alone, np.arange(0, len(start), _AT_ONCE))
    chosen = np.unique(alone[places[places < len(alone)]]).tolist()
    return list(zip(chosen, [*chosen[1:], len(start)], strict=True))


def _crossing_within(start: np.ndarray, end: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Level by level from the outermost: the spans of a level lie one behind the other."""
    found = [_crossing_others(start, end, others)] if len(others) else []
    rows: np.ndarray | None = None
    if found and len(found[0]):
        rows = np.setdiff1d(np.arange(len(start)), found[0], assume_unique=True)
        start, end = start[rows], end[rows]
    while len(start):
        reached = _reached_before(end)
        inside = np.flatnonzero(start < reached)
        sticks_out = inside[end[inside] > reached[inside]]
        if len(sticks_out):
            # What only seemed to lie inside one of these is looked at again without them.
            found.append(sticks_out if rows is None else rows[sticks_out])
            inside = np.setdiff1d(np.arange(len(start)), sticks_out, assume_unique=True)
        rows = inside if rows is None else rows[inside]
        start, end = start[inside], end[inside]
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.intp)


def _crossing_others(start: np.ndarray, end: np.ndarray, others: np.ndarray) -> np.ndarray:
    kept = np.ones(len(start), bool)
    last_end = int(end.max())
    for other_start, other_end in others.tolist():
        first, behind = np.searchsorted(start, (other_start, other_end)).tolist()
        if last_end > other_end:
            kept[first:behind] &= end[first:behind] <= other_end
        if first:
            kept[:first] &= (end[:first] <= other_start) | (end[:first] >= other_end)
    return np.flatnonzero(~kept)


def _reached_before(end: np.ndarray) -> np.ndarray:
    """For each span, the latest end of those before it."""
    reached = np.empty_like(end)
    reached[0] = _LONG_AGO
    np.maximum.accumulate(end[:-1], out=reached[1:])
    return reached
