"""What the timeline draws of a lane in a stretch of time: of each pixel the spans that can be seen
in it.

The page's painter (web/src/timeline/painter.ts) goes from what it has painted to the first span
that reaches the next pixel. Those spans alone, with the same times, make the same picture. They are
found by one binary search a pixel.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from layerscope.analyse.timeline.columns import TimelineColumns
from layerscope.analyse.timeline.lanes import Lanes
from layerscope.analyse.timeline.selection import SpanFilter, chunks

# How far the page's own arithmetic may be from a moment, in ns.
_INEXACT_NS = 0.05
# At most so many spans of a lane in which spans cover each other.
_MOST_COVERED = 20_000
# What is kept of the answers which spans of a lane a filter keeps; one takes a little even where
# it keeps none.
_MOST_KEPT_BYTES, _ANSWER_BYTES = 100_000_000, 500


class PictureStretch(NamedTuple):
    """A stretch of time on so many pixels, of which `margin` more are wanted on both sides."""

    from_ns: float
    to_ns: float
    width: int
    margin: int = 0

    @property
    def a_ns(self) -> float:
        """How much of a pixel a nanosecond is."""
        return self.width / (self.to_ns - self.from_ns)

    def edges(self) -> np.ndarray:
        """The moments at which pixels begin, as the painter works them out, and the last end."""
        places = np.arange(-self.margin, self.width + self.margin + 1)
        return np.asarray(self.from_ns + places / self.a_ns)


class DrawnSpans(Struct, frozen=True):
    """What is drawn of a lane: the rows of spans with start and end, and where spans overlap the
    latest end up to each.
    """

    rows: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    reach_ns: np.ndarray


class Pictures:
    """Draws lanes, and keeps which of their spans the filters of the last pictures have kept."""

    def __init__(
        self,
        columns: TimelineColumns,
        lanes: Lanes,
    ) -> None:
        self._columns = columns
        self._lanes = lanes
        self._kept: OrderedDict[tuple[object, int], np.ndarray] = OrderedDict()
        self._kept_bytes = 0

    def drawn(self, lane: int, stretch: PictureStretch, of: SpanFilter) -> DrawnSpans:
        """What is drawn of the spans of a lane that a filter keeps."""
        first, last = self._lanes.bounds(lane)
        places = None if of.is_empty else self.places(lane, of)
        end_ns = self._lanes.end[first:last]
        if self._lanes.overlaps(lane):
            return self._covered(first, end_ns, places, stretch)
        if places is None:
            seen = _seen(end_ns, stretch)
        else:
            seen = places[_seen(_Taken(end_ns, places), stretch)]
        drawn = self._taken(first, seen)
        limit = np.searchsorted(drawn.start_ns, stretch.edges()[-1])
        return DrawnSpans(
            *(part[:limit] for part in (drawn.rows, drawn.start_ns, *[drawn.end_ns] * 2))
        )

    def places(
        self,
        lane: int,
        of: SpanFilter,
    ) -> np.ndarray:
        """The places in a lane of the spans that a filter keeps."""
        key = (of.key, lane)
        known = self._kept.pop(key, None)
        if known is None:
            known = self._found(lane, of)
            self._kept_bytes += known.nbytes + _ANSWER_BYTES
        self._kept[key] = known
        while self._kept_bytes > _MOST_KEPT_BYTES and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self._kept_bytes -= gone.nbytes + _ANSWER_BYTES
        return known

    def _found(self, lane: int, of: SpanFilter) -> np.ndarray:
        if not of.has_track(self._lanes.track(lane)):
            return np.zeros(0, np.uint32)
        first, last = self._lanes.bounds(lane)
        found = [np.zeros(0, np.int64)]
        for part in chunks(first, last):
            kept = of.keeps(self._columns, self._lanes.rows[part])
            found.append(np.flatnonzero(kept) + (part.start - first))
        return np.concatenate(found).astype(np.uint32)

    def _taken(
        self,
        first: int,
        seen: np.ndarray,
    ) -> DrawnSpans:
        places = first + seen.astype(np.int64)
        rows = self._lanes.rows[places]
        end_ns = self._lanes.end[places]
        return DrawnSpans(rows, self._columns.start[rows], end_ns, end_ns)

    def _covered(
        self, first: int, end_ns: np.ndarray, places: np.ndarray | None, stretch: PictureStretch
    ) -> DrawnSpans:
        """Where spans cover each other: the way that the painter goes, span by span."""
        every = np.arange(len(end_ns)) if places is None else places.astype(np.int64)
        of = self._taken(first, every)
        reach_ns: np.ndarray = np.maximum.accumulate(of.end_ns)
        seen = _walked(of.start_ns, of.end_ns, reach_ns, stretch)
        return DrawnSpans(of.rows[seen], of.start_ns[seen], of.end_ns[seen], reach_ns[seen])


class _Taken:
    """Values at some places, in which can be searched without taking them all."""

    def __init__(
        self,
        values: np.ndarray,
        places: np.ndarray,
    ) -> None:
        self._values, self._places = values, places

    def __len__(self) -> int:
        return len(self._places)

    def searchsorted(self, wanted: np.ndarray) -> np.ndarray:
        """As NumPy's."""
        low: np.ndarray = np.zeros(len(wanted), np.int64)
        high = np.full(len(wanted), len(self))
        while (is_open := low < high).any():
            middle = (low + high) // 2
            at = self._places[np.minimum(middle, len(self) - 1)]
            is_below = is_open & (self._values[at] < wanted)
            low = np.where(is_below, middle + 1, low)
            high = np.where(is_open & ~is_below, middle, high)
        return low


def _seen(
    end_ns: np.ndarray | _Taken,
    stretch: PictureStretch,
) -> np.ndarray:
    """The places that the painter may come to, in order; its arithmetic may be a little off at the
    edge of a pixel, so that what ends there is taken either way.
    """
    edges = stretch.edges()
    exact, early, late = (
        end_ns.searchsorted(_whole(edges + off)) for off in (0.0, -_INEXACT_NS, _INEXACT_NS)
    )
    is_off = early != late
    off_early, off_late = early[is_off], late[is_off]
    seen = np.concatenate(
        [exact, exact + 1, off_early, off_early + 1, off_late - 1, off_late, off_late + 1]
    )
    seen = np.unique(seen)
    return seen[(seen >= 0) & (seen < len(end_ns))]


def _whole(edges: np.ndarray) -> np.ndarray:
    """The first whole nanosecond from each moment on."""
    return np.asarray(np.ceil(np.clip(edges, -(2.0**62), 2.0**62)), np.int64)


def _walked(
    start_ns: np.ndarray, end_ns: np.ndarray, reach_ns: np.ndarray, stretch: PictureStretch
) -> list[int]:
    from_ns, to_ns, width, _ = stretch
    at = int(np.searchsorted(reach_ns, math.ceil(from_ns)))
    seen: list[int] = []
    while at < len(start_ns) and start_ns[at] < to_ns and len(seen) < _MOST_COVERED:
        seen.append(at)
        begin, end = start_ns[at] - from_ns, end_ns[at] - from_ns
        left = max(0, math.floor(begin * stretch.a_ns))
        right = min(width, math.floor(end * stretch.a_ns))
        at += 1
        if right <= left:
            edge_ns = from_ns + (left + 1) / stretch.a_ns
            found = np.searchsorted(reach_ns, math.ceil(edge_ns))
            at = max(at, int(found))
    return seen
