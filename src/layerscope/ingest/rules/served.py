"""Rule `served`: a step is one request that the program answers, from its arrival to its answer.

Where a server that layerscope knows hands a request to the program, or the program says itself that
one begins (`layerscope.profiler.Request`), that is a request, whatever it calls.

- Requests that are answered at the same time lie on tracks of their own, also where one thread
  answers them in coroutines. Each of these tracks is a lane.
- An outermost call of a module in the context of a request belongs to that, on whatever thread it
  runs, with all in it. The time in its calls is forward, all other time other: there the program
  does something else, or waits.
- A call in no request belongs to none where several are under way: a loop that answers several
  requests by one call says so to nobody. With requests one after the other it belongs to the
  request of its moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from layerscope.ingest.lines import Found, Lane, SpanColumns
from layerscope.ingest.phases import MODULE, Bools, Positions, forward_timeline
from layerscope.model.distinct import distinct
from layerscope.model.layers import KINDS

TASK = KINDS.index("task")


def find(spans: SpanColumns, workers: Bools) -> Found | None:
    """The requests, if there are any."""
    on_lane = np.isin(spans.track, spans.request_tracks)
    is_call = on_lane & (spans.kind == MODULE)
    requests = np.flatnonzero(on_lane & (spans.kind == TASK))
    tracks = distinct(spans.track[requests]).tolist()
    if not tracks:
        return None
    if len(tracks) == 1:  # then calls in no request belong to that of their moment
        calls = np.flatnonzero(spans.kind == MODULE)
        return Found("served", [_lane(spans, tracks[0], requests, calls)])
    calls = np.flatnonzero(is_call)
    return Found("served", list(_lanes(spans, tracks, requests, calls)))


def _lanes(
    spans: SpanColumns, tracks: list[int], requests: Positions, calls: Positions
) -> Iterator[Lane]:
    """A lane for each of the tracks."""
    for track in tracks:
        mine = requests[spans.track[requests] == track]
        inside = calls[spans.track[calls] == track]
        yield _lane(spans, track, mine, inside)


def _lane(spans: SpanColumns, track: int, requests: Positions, calls: Positions) -> Lane:
    """The requests of one track, and the calls in them."""
    mine = _by_start(spans, requests)
    begin = spans.start_ns[mine]
    end = begin + np.maximum(spans.dur_ns[mine], 0)
    end[:-1] = np.minimum(end[:-1], begin[1:])
    inner = _by_start(spans, calls)
    start = spans.start_ns[inner]
    stop = start + np.maximum(spans.dur_ns[inner], 0)
    timeline, spent_ns = forward_timeline(start, stop, begin, end)
    return Lane(track, begin, end, timeline, spent_ns)


def _by_start(spans: SpanColumns, rows: Positions) -> Positions:
    order = np.argsort(spans.start_ns[rows], kind="stable")
    by_start: Positions = rows[order]
    return by_start
