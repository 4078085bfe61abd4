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


def find(spans: SpanColumns, workers: Bools) -> Found | None:
    """The steps, if a loader was waited for."""
    waits = np.flatnonzero(spans.kind == LOADER)
    return steps_of(spans, workers, waits) if len(waits) else None


def steps_of(spans: SpanColumns, workers: Bools, waits: Positions, rule: str = "loader") -> Found:
    """The steps that the waits on the track of the first one of these begin."""
    track = int(spans.track[waits[np.argmin(spans.start_ns[waits])]])
    workers[track] = False
    line = line_of(spans, track, workers)
    scopes = find_scopes(line)
    begin = line.start[scopes.loader]
    end = np.append(begin[1:], last_end(spans, line))
    full = ~empty_waits(spans, line, scopes)
    return Found(rule, [make_lane(spans, line, scopes, track, begin[full], end[full])])


def iterators_made(spans: SpanColumns, line: Line, scopes: Scopes) -> Positions:
    """Where a loader was iterated anew, outside of all scopes."""
    free = scopes.free
    return free[np.isin(line.name[free], codes_of(spans, iterator_seeds()))]


def empty_waits(spans: SpanColumns, line: Line, scopes: Scopes) -> Bools:
    """Which of the loader waits only found that the epoch is over."""
    waits = scopes.loader
    own = np.array([name in sampler_operators() for name in spans.names], np.bool_)
    foreign = np.flatnonzero(~own[line.name])
    stop = np.searchsorted(line.start, line.end[waits])
    idle = np.searchsorted(foreign, waits, side="right") >= np.searchsorted(foreign, stop)

    _, code = np.unique(line.name[waits], return_inverse=True)
    makes_batches = 2 * np.bincount(code, weights=idle) <= np.bincount(code)

    # How many operators that are not a sampler's follow before the next wait.
    gap_end = np.append(waits[1:], len(line.start))
    work = foreign[line.kind[foreign] != RANGE]
    follow = np.searchsorted(work, gap_end) - np.searchsorted(work, np.maximum(stop, waits + 1))
    is_last = (gap_end == len(line.start)) & (spans.window is None or not spans.window.is_closed)
    if usual := np.median(follow):
        seeds = iterators_made(spans, line, scopes)
        is_renewed = np.searchsorted(seeds, waits) < np.searchsorted(seeds, gap_end)
        over = (2 * follow < usual) | ((is_last | is_renewed) & makes_batches[code])
    else:
        over = is_last | (
            np.searchsorted(scopes.free, waits) < np.searchsorted(scopes.free, gap_end)
        )
    empty: Bools = idle & over
    return empty if not empty.all() else np.zeros(len(waits), np.bool_)
