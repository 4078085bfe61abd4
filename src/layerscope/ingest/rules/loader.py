"""Rule `loader`: a step is one batch of the loader.

Without an optimizer a step is one loader wait, on the track of the first one. It lasts until the
next wait begins, the last one until the last span of the track (ranges and modules not counted)
ends. The empty wait that ends an epoch is no step, but ends one.

A wait is *empty* if no batch was made in it (it has no spans, or only those of a sampler drawing
the next order), and one of these holds; if that were true of all waits, none is empty.

- At least half of the waits of its name do make batches, and it is the last one on the track or a
  new iterator is made after it (which draws its seed). Batches of worker processes that
  arrive out of order leave waits without spans too, but the loop goes on after these.
- Fewer than half as many operators follow it before the next wait as follow a wait in the median.
- Nothing follows a wait in the median, as in a loop that does nothing but load: it is the last one,
  or any operator follows.
"""

from __future__ import annotations

import numpy as np

from layerscope.ingest.lines import Found, SpanColumns, codes_of, last_end, line_of, make_lane
from layerscope.ingest.phases import LOADER, RANGE, Bools, Line, Positions, Scopes, find_scopes
from layerscope.model.frameworks import iterator_seeds, sampler_operators
from layerscope.model.median import median


def find(spans: SpanColumns, workers: Bools) -> Found | None:
    """The steps, if a loader was waited for."""
    waits = np.flatnonzero(spans.kind == LOADER)
    return steps_of(spans, workers, waits) if len(waits) else None


def steps_of(spans: SpanColumns, workers: Bools, waits: Positions, rule: str = "loader") -> Found:
    """The steps that the waits on the track of the first one of these begin."""
    first = waits[np.argmin(spans.start_ns[waits])]
    track = int(spans.track[first])
    workers[track] = False
    line = line_of(spans, track, workers)
    scopes = find_scopes(line)
    is_step = ~empty_waits(spans, line, scopes)
    begin = line.start[scopes.loader]
    end = np.append(begin[1:], last_end(spans, line))
    begin = begin[is_step]
    end = end[is_step]
    lane = make_lane(spans, line, scopes, track, begin, end)
    return Found(rule, [lane])


def iterators_made(spans: SpanColumns, line: Line, scopes: Scopes) -> Positions:
    """Where a loader was iterated anew, outside of all scopes."""
    free = scopes.free
    return free[np.isin(line.name[free], codes_of(spans, iterator_seeds()))]


def empty_waits(spans: SpanColumns, line: Line, scopes: Scopes) -> Bools:
    """Which of the loader waits only found that the epoch is over."""
    waits = scopes.loader
    foreign = _without_samplers(spans, line)
    stop = np.searchsorted(line.start, line.end[waits])
    foreign_before = np.searchsorted(foreign, waits, side="right")
    idle = foreign_before >= np.searchsorted(foreign, stop)

    # How many operators that are not a sampler's follow before the next wait.
    gap_end = np.append(waits[1:], len(line.start))
    work = foreign[line.kind[foreign] != RANGE]
    gap_begin = np.maximum(stop, waits + 1)
    follow = np.searchsorted(work, gap_end) - np.searchsorted(work, gap_begin)
    is_at_end = gap_end == len(line.start)
    is_last = is_at_end & (spans.window is None or not spans.window.is_closed)
    if usual := median(follow):
        seeds = iterators_made(spans, line, scopes)
        ends_epoch = is_last | _has_any(seeds, waits, gap_end)
        over = (2 * follow < usual) | (ends_epoch & _make_batches(line, waits, idle))
    else:
        over = is_last | _has_any(scopes.free, waits, gap_end)
    empty: Bools = idle & over
    return empty if not empty.all() else np.zeros(len(waits), np.bool_)


def _without_samplers(spans: SpanColumns, line: Line) -> Positions:
    """The spans of the line that are no operators of a sampler."""
    names = sampler_operators()
    is_sampler = np.array([name in names for name in spans.names], np.bool_)
    return np.flatnonzero(~is_sampler[line.name])


def _make_batches(line: Line, waits: Positions, idle: Bools) -> Bools:
    """Which waits have a name of whose waits at least half make batches."""
    _, code = np.unique(line.name[waits], return_inverse=True)
    count = np.bincount(code)
    idle_count = np.bincount(code, weights=idle)
    makes_batches: Bools = 2 * idle_count <= count
    return makes_batches[code]


def _has_any(positions: Positions, begin: Positions, end: Positions) -> Bools:
    """Which of the stretches [begin, end) of the line hold one of these positions."""
    return np.searchsorted(positions, begin) < np.searchsorted(positions, end)
