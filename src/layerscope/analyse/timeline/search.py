"""The next span that somebody looks for, and the spans of a stretch as a table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layerscope.analyse.timeline.columns import TimelineColumns
from layerscope.analyse.timeline.selection import SpanFilter, chunks

# How many rows the table of a stretch has.
MOST_SHOWN = 500
# Hits are mostly near.
_FIRST_CHUNK, _LAST_CHUNK = 1 << 12, 1 << 20


def next_hit(
    columns: TimelineColumns, of: SpanFilter, start_ns: int | None, row: int, direction: int
) -> int:
    """The next span by time, then by row, behind (`start_ns`, `row`) or before it; after the last
    one comes the first. `start_ns` None: from the beginning, or from the end. -1: there is none.
    """
    found = _beyond(columns, of, start_ns, row, direction)
    if found < 0 and start_ns is not None:
        return _beyond(columns, of, None, -1, direction)
    return found


def _beyond(
    columns: TimelineColumns, of: SpanFilter, start_ns: int | None, row: int, direction: int
) -> int:
    best: tuple[int, int] | None = None
    for track in of.all_tracks(columns):
        first, last = columns.range(track)
        at = first if direction > 0 else last
        if start_ns is not None:
            at = _behind(columns, first, last, start_ns, row, direction)
        found = _first_kept(columns, of, at, last if direction > 0 else first, direction)
        if found < 0:
            continue
        place = (int(columns.start[found]), found)
        if best is None or (place < best if direction > 0 else place > best):
            best = place
    return -1 if best is None else best[1]


def _behind(
    columns: TimelineColumns, first: int, last: int, start_ns: int, row: int, direction: int
) -> int:
    """Where the rows of a track begin that are behind a place; or end, that are before it."""
    found = np.searchsorted(columns.start[first:last], [start_ns, start_ns + 1])
    begin, end = first + int(found[0]), first + int(found[1])
    limit = row + 1 if direction > 0 else row
    return min(max(limit, begin), end)


def _first_kept(
    columns: TimelineColumns, of: SpanFilter, at: int, limit: int, direction: int
) -> int:
    for part in _growing(at, limit, direction):
        kept = np.flatnonzero(of.keeps(columns, part))
        if len(kept):
            return int(part.start) + int(kept[0 if direction > 0 else -1])
    return -1


def _growing(at: int, limit: int, direction: int) -> Iterator[slice]:
    size = _FIRST_CHUNK
    while at != limit:
        if direction > 0:
            other = min(at + size, limit)
            yield slice(at, other)
        else:
            other = max(at - size, limit)
            yield slice(other, at)
        at = other
        size = min(2 * size, _LAST_CHUNK)


def next_of_same_name(
    columns: TimelineColumns,
    of: SpanFilter,
    row: int,
    direction: int,
) -> int:
    """The next span by row that a filter keeps; -1: it was the last."""
    at, limit = (row + 1, columns.count) if direction > 0 else (row, 0)
    return _first_kept(columns, of, at, limit, direction)


def shown(
    columns: TimelineColumns, of: SpanFilter, from_ns: int, to_ns: int
) -> tuple[int, list[int]]:
    """Of how many spans any part lies in a stretch, and the rows of those with most self time."""
    count = 0
    rows, selves = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for track in of.all_tracks(columns):
        first, last = columns.rows_in(track, None, to_ns)
        for part in chunks(first, last):
            end_ns = columns.start[part] + columns.dur[part]
            kept = np.flatnonzero((end_ns >= from_ns) & of.keeps(columns, part))
            count += len(kept)
            found = kept + part.start
            self_ns = columns.self_ns[found].astype(np.int64)
            best = _most(found, self_ns)
            rows.append(found[best])
            selves.append(self_ns[best])
    every, self_ns = np.concatenate(rows), np.concatenate(selves)
    best_rows: list[int] = every[_most(every, self_ns)].tolist()
    return count, best_rows


def _most(rows: np.ndarray, self_ns: np.ndarray) -> np.ndarray:
    """The places of those with most self time; of equals, of the first rows."""
    if len(rows) > MOST_SHOWN:
        least = np.partition(self_ns, len(rows) - MOST_SHOWN)[len(rows) - MOST_SHOWN]
        places = np.flatnonzero(self_ns >= least)
    else:
        places = np.arange(len(rows))
    return places[np.lexsort((rows[places], -self_ns[places]))][:MOST_SHOWN]
