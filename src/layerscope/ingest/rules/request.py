"""Rule `request`: a step is one pass through the modules that the program calls.

Without an optimizer and a loader the outermost calls of modules are taken for requests: `model(x)`
in a loop, in a server, in the loop of a generator of text (then each token is one). Calls inside
other calls and on threads of the autograd engine do not count.

- A program may call several modules for one request: an encoder, a decoder twenty times, a loss. So
  requests begin with the calls of one module, the *leader*: the first one called more
  than once (the first one called, if none is). A request belongs to one thread and lasts from a
  call of the leader to the end of the last call, before the next one of the leader on that thread,
  of a module that belongs to it. A module belongs to the requests of all threads if it follows in
  at least nine of ten cases on all of them together. In a server whose threads have a head of their
  own each it belongs to those of the threads on which it follows in at least half of the cases, if
  it is nine of ten on these together; threads with a single call of the leader, of which half would
  say nothing, all count there.
- What is left over, because it follows no leader or follows one only now and then (a metric, a
  second model that the program serves), is looked at again in the same way, and so on. Requests
  that take less than a twentieth of the time in all calls are none. A request that begins inside
  another one of its thread is part of it.
- Several threads may make requests at the same time, each on a lane of its own. A span then belongs
  to the request of its own thread; with requests on one thread only, to the request of its moment.
- The time in the calls is forward, the time between them other.
- A window of steps opens with a call of the leader, and holds the requests of that one alone, as
  they were counted when the program ran. What other threads had under way when it opened is in no
  request. It closes when a request begins behind its last one, and no call of the leader in it goes
  on: what then follows that call on another thread is missing in its request. Of a window of step 0
  alone the first module is the leader, of others from step 0 on the one that it would be in the
  whole run. In windows a thread with a single call of the leader is judged by this one: there may
  be no more.

Where a backward pass follows at least half of the requests the program trains without an optimizer
of a framework: each lasts until the next one on its thread begins, the last one until the last span
of the thread (ranges and modules not counted) ends, and their phases are those of any step.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from layerscope.ingest.lines import Found, Lane, SpanColumns, last_end, line_of, lines_of, make_lane
from layerscope.ingest.phases import (
    BACKWARD,
    MODULE,
    Bools,
    Int32s,
    Int64s,
    Line,
    Positions,
    find_scopes,
    forward_timeline,
)
from layerscope.model.distinct import distinct

FOLLOWS = 0.9  # of the leader's calls are followed by a module that belongs to the request
MOSTLY = 0.5  # of them on a thread where the module may belong to the requests of this thread
FEWEST_ON_A_THREAD = 2  # calls of the leader that tell what follows on a thread
SMALLEST_SHARE = 0.05  # of the time in all calls; requests with less are none
MOST_LEADERS = 64


class _ModuleCalls(Struct, frozen=True):
    """The outermost calls of modules, sorted by track and start."""

    track: Int32s
    name: Int32s
    start: Int64s
    end: Int64s


class _Requests(Struct, frozen=True):
    """The first and the last call of each request."""

    first: Positions
    last: Positions


def find(spans: SpanColumns, workers: Bools) -> Found | None:
    """The requests, if a module was called."""
    rows = np.flatnonzero(spans.kind == MODULE)
    rows = rows[~workers[spans.track[rows]]]
    if not len(rows):
        return None
    sort_keys = (spans.depth[rows], spans.start_ns[rows], spans.track[rows])
    rows = _outermost(spans, rows[np.lexsort(sort_keys)])
    start = spans.start_ns[rows]
    calls = _ModuleCalls(
        track=spans.track[rows],
        name=spans.name[rows],
        start=start,
        end=start + np.maximum(spans.dur_ns[rows], 0),
    )
    lanes = _lanes(calls, _requests_of(spans, calls))
    if (spans.kind == BACKWARD).any():
        lines = _lines_of_lanes(spans, workers, lanes)
        pairs = zip(lines, lanes, strict=True)
        lanes = [_with_training(spans, line, lane) for line, lane in pairs]
    return Found("request", lanes)


def _requests_of(spans: SpanColumns, calls: _ModuleCalls) -> _Requests:
    """The requests among the calls: in a window that opens with a call of the leader, its own."""
    window = spans.window
    if window is not None and (window.begins_step or window.steps == 1):
        leader = int(calls.name[np.argmin(calls.start)])
        every_call = np.arange(len(calls.track))
        return _of_leader(leader, every_call, calls, 1)
    fewest = 1 if window else FEWEST_ON_A_THREAD
    return _requests(calls, fewest)


def _lines_of_lanes(spans: SpanColumns, workers: Bools, lanes: list[Lane]) -> Iterable[Line]:
    """The line of each lane; autograd worker tracks belong to a lane that is alone."""
    if len(lanes) == 1:
        return [line_of(spans, lanes[0].track, workers)]
    tracks = np.array([lane.track for lane in lanes])
    return lines_of(spans, tracks)


def _lanes(calls: _ModuleCalls, requests: _Requests) -> list[Lane]:
    """A lane for each track with requests."""
    tracks, bounds = np.unique(calls.track[requests.first], return_index=True)
    stops = np.append(bounds[1:], len(requests.first))
    lanes = []
    for track, begin, stop in zip(tracks.tolist(), bounds, stops, strict=True):
        first = requests.first[begin:stop]
        last = requests.last[begin:stop]
        covered = slice(first[0], last[-1] + 1)
        begin_ns = calls.start[first]
        end_ns = calls.end[last]
        timeline, spent_ns = forward_timeline(
            calls.start[covered], calls.end[covered], begin_ns, end_ns
        )
        lanes.append(Lane(track, begin_ns, end_ns, timeline, spent_ns))
    return lanes


def _outermost(spans: SpanColumns, calls: Positions) -> Positions:
    """The calls, sorted by track and start, that do not begin inside an earlier one of their
    track.
    """
    start = spans.start_ns[calls]
    track = spans.track[calls]
    end = start + np.maximum(spans.dur_ns[calls], 0)
    is_same_track = track[1:] == track[:-1]
    overlaps = is_same_track & (start[1:] < end[:-1])
    if not overlaps.any():
        return calls
    is_outer = np.ones(len(calls), np.bool_)
    bounds = np.flatnonzero(~is_same_track) + 1
    for mine in np.split(np.arange(len(calls)), bounds):
        latest_end = np.maximum.accumulate(end[mine])
        is_outer[mine[1:]] = start[mine[1:]] >= latest_end[:-1]
    return calls[is_outer]


def _requests(calls: _ModuleCalls, fewest: int) -> _Requests:
    """The requests of every leader, by track and start; `fewest`: see `_of_leader`."""
    busy_until = np.append(0, np.cumsum(calls.end - calls.start))
    left = np.arange(len(calls.track))
    found: list[_Requests] = []
    busy: list[int] = []
    while len(left) and len(found) < MOST_LEADERS:
        leader = _leader(calls.name[left], calls.start[left])
        requests = _of_leader(leader, left, calls, fewest)
        found.append(requests)
        busy_ns = busy_until[requests.last + 1] - busy_until[requests.first]
        busy.append(int(busy_ns.sum()))
        left = _uncovered(left, requests, len(calls.track))
    least = min(SMALLEST_SHARE * int(busy_until[-1]), max(busy))
    large = [one for one, busy_ns in zip(found, busy, strict=True) if busy_ns >= least]
    return _Requests(
        first=np.sort(np.concatenate([one.first for one in large])),
        last=np.sort(np.concatenate([one.last for one in large])),
    )


def _uncovered(left: Positions, requests: _Requests, count: int) -> Positions:
    """Those of the calls `left`, of `count` in all, that lie in none of the requests."""
    changes = np.zeros(count + 1, np.int64)
    changes[requests.first] += 1
    changes[requests.last + 1] -= 1
    covering = np.cumsum(changes)
    uncovered: Positions = left[covering[left] == 0]
    return uncovered


def _leader(name: Int32s, start: Int64s) -> int:
    """The first one called that is called more than once, or the first one of all."""
    _, inverse, counts = np.unique(name, return_inverse=True, return_counts=True)
    fewest = min(2, counts.max())
    candidates = np.flatnonzero(counts[inverse] >= fewest)
    first = candidates[np.argmin(start[candidates])]
    return int(name[first])


def _of_leader(leader: int, left: Positions, calls: _ModuleCalls, fewest: int) -> _Requests:
    """The requests of the leader among the calls that are left over.

    A thread with less than `fewest` calls of the leader does not tell what follows there.
    """
    name = calls.name[left]
    track = calls.track[left]
    codes, code = np.unique(name, return_inverse=True)
    threads, thread = np.unique(track, return_inverse=True)
    leads = name == leader

    # Calls belong together when nothing was taken out between them, and they are on one track.
    is_gap = (np.diff(left) != 1) | (np.diff(track) != 0)
    begins = leads | np.append(True, is_gap)
    group = np.cumsum(begins) - 1
    in_request = leads[begins][group]
    pairs = distinct(group[in_request] * len(codes) + code[in_request])
    group_of_pair, code_of_pair = np.divmod(pairs, len(codes))
    thread_of_pair = thread[begins][group_of_pair]
    cells = np.bincount(
        thread_of_pair * len(codes) + code_of_pair, minlength=len(threads) * len(codes)
    )
    followed = cells.reshape(len(threads), len(codes))
    led = np.bincount(thread[leads], minlength=len(threads))
    belongs = _belonging(followed, led[:, None], fewest)
    members = np.flatnonzero(in_request & belongs[thread, code])
    changes = np.diff(group[members]) != 0
    is_first = np.append(True, changes)
    is_last = np.append(changes, True)
    return _Requests(left[members[is_first]], left[members[is_last]])


def _belonging(followed: Int64s, led: Int64s, fewest: int) -> Bools:
    """Which modules (columns) belong to the requests of which threads (rows).

    `followed`: how many calls of the leader the module follows; `led`: how many there are.
    """
    everywhere = followed.sum(axis=0) >= FOLLOWS * led.sum()
    mostly = followed >= MOSTLY * led
    has_few = led < fewest
    counts = mostly | has_few
    followed_there = (followed * counts).sum(axis=0)
    led_there = (led * counts).sum(axis=0)
    follows_there = followed_there >= FOLLOWS * led_there
    belongs: Bools = everywhere | (mostly & follows_there)
    return belongs


def _with_training(spans: SpanColumns, line: Line, lane: Lane) -> Lane:
    """The lane with longer steps, if a backward pass follows most of its requests."""
    scopes = find_scopes(line)
    last_ns = max(int(lane.end[-1]), last_end(spans, line))
    end = np.append(lane.begin[1:], last_ns)
    first = np.searchsorted(line.start, lane.begin)
    stop = np.searchsorted(line.start, end)
    before = np.searchsorted(scopes.backward, first)
    after = np.searchsorted(scopes.backward, stop)
    if 2 * np.count_nonzero(after > before) < len(end):
        return lane
    return make_lane(spans, line, scopes, lane.track, lane.begin, end)
