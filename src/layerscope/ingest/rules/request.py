"""Rule `request`: a step is one pass through the modules that the program calls.

Without an optimizer and a loader the outermost calls of modules are taken for requests: `model(x)`
in a loop, in a server, in the loop of a generator of text (then each token is one). Calls inside
other calls and on threads of the autograd engine do not count.

- A program may call several modules for one request: an encoder, a decoder twenty times, a loss. So
  requests begin with the calls of one module, the *leader*: the first one seen that is called more
  than once (the first one seen, if none is). A request belongs to one thread and lasts from a call
  of the leader to the end of the last call, before the next one of the leader on that thread, of a
  module that belongs to it. A module belongs to the requests of all threads if it follows in at
  least nine of ten cases on all of them together. In a server whose threads have a head of their
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

import numpy as np

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

FOLLOWS = 0.9  # of the leader's calls are followed by a module that belongs to the request
MOSTLY = 0.5  # of them on a thread where the module may belong to the requests of this thread
FEWEST_ON_A_THREAD = 2  # calls of the leader that tell what follows on a thread
SMALLEST_SHARE = 0.05  # of the time in all calls; requests with less are none
MOST_LEADERS = 64


def find(spans: SpanColumns, workers: Bools) -> Found | None:
    """The requests, if a module was called."""
    calls = np.flatnonzero(spans.kind == MODULE)
    calls = calls[~workers[spans.track[calls]]]
    if not len(calls):
        return None
    calls = calls[np.lexsort((spans.depth[calls], spans.start_ns[calls], spans.track[calls]))]
    calls = _outermost(spans, calls)
    track, start = spans.track[calls], spans.start_ns[calls]
    end = start + np.maximum(spans.dur_ns[calls], 0)
    if spans.window is not None and (spans.window.begins_step or spans.window.steps == 1):
        leader = int(spans.name[calls[np.argmin(start)]])
        first, last = _of_leader(leader, np.arange(len(calls)), track, spans.name[calls], 1)
    else:
        fewest = 1 if spans.window else FEWEST_ON_A_THREAD
        first, last = _requests(track, spans.name[calls], start, end, fewest)
    lanes = _lanes(track, start, end, first, last)
    if (spans.kind == BACKWARD).any():
        tracks = np.array([lane.track for lane in lanes])
        is_alone = len(lanes) == 1
        lines = [line_of(spans, lanes[0].track, workers)] if is_alone else lines_of(spans, tracks)
        lanes = [_with_training(spans, line, lane) for line, lane in zip(lines, lanes, strict=True)]
    return Found("request", lanes)


def _lanes(
    track: Int32s, start: Int64s, end: Int64s, first: Positions, last: Positions
) -> list[Lane]:
    """A lane for each track with requests, which go from the call `first` to the call `last`."""
    tracks, bounds = np.unique(track[first], return_index=True)
    lanes = []
    stops = np.append(bounds[1:], len(first))
    for number, begin, stop in zip(tracks.tolist(), bounds, stops, strict=True):
        calls = slice(first[begin], last[stop - 1] + 1)
        begins, ends = start[first[begin:stop]], end[last[begin:stop]]
        timeline, spent_ns = forward_timeline(start[calls], end[calls], begins, ends)
        lanes.append(Lane(number, begins, ends, timeline, spent_ns))
    return lanes


def _outermost(spans: SpanColumns, calls: Positions) -> Positions:
    """The calls, sorted by track and start, that do not begin inside an earlier one of their
    track.
    """
    start, track = spans.start_ns[calls], spans.track[calls]
    end = start + np.maximum(spans.dur_ns[calls], 0)
    overlaps = (track[1:] == track[:-1]) & (start[1:] < end[:-1])
    if not overlaps.any():
        return calls
    is_outer = np.ones(len(calls), np.bool_)
    bounds = np.flatnonzero(np.diff(track)) + 1
    for mine in np.split(np.arange(len(calls)), bounds):
        is_outer[mine[1:]] = start[mine[1:]] >= np.maximum.accumulate(end[mine])[:-1]
    return calls[is_outer]


def _requests(
    track: Int32s, name: Int32s, start: Int64s, end: Int64s, fewest: int
) -> tuple[Positions, Positions]:
    """The first and the last call of each request, by track and start; `fewest`: see
    `_of_leader`.
    """
    until = np.append(0, np.cumsum(end - start))
    left = np.arange(len(track))
    kinds: list[tuple[int, Positions, Positions]] = []
    while len(left) and len(kinds) < MOST_LEADERS:
        first, last = _of_leader(_leader(name[left], start[left]), left, track, name, fewest)
        kinds.append((int((until[last + 1] - until[first]).sum()), first, last))
        covered = np.zeros(len(track) + 1, np.int64)
        covered[first] += 1
        covered[last + 1] -= 1
        left = left[np.cumsum(covered)[left] == 0]
    least = min(SMALLEST_SHARE * int(until[-1]), max(busy_ns for busy_ns, _, _ in kinds))
    kept = [(first, last) for busy_ns, first, last in kinds if busy_ns >= least]
    firsts, lasts = (np.sort(np.concatenate(column)) for column in zip(*kept, strict=True))
    return firsts, lasts


def _leader(name: Int32s, start: Int64s) -> int:
    """The first one seen that is called more than once, or the first one of all."""
    _, inverse, counts = np.unique(name, return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(counts[inverse] > min(1, counts.max() - 1))
    return int(name[candidates[np.argmin(start[candidates])]])


def _of_leader(
    leader: int, left: Positions, track: Int32s, name: Int32s, fewest: int
) -> tuple[Positions, Positions]:
    """The first and the last call of the requests of the leader among the calls that are left over.

    A thread with less than `fewest` calls of the leader does not tell what follows there.
    """
    codes, inverse = np.unique(name[left], return_inverse=True)
    leads = name[left] == leader

    # Calls belong together when nothing was taken out between them, and they are on one track.
    begins = leads | np.append(True, (np.diff(left) != 1) | (np.diff(track[left]) != 0))
    group = np.cumsum(begins) - 1
    in_request = leads[begins][group]
    pairs = np.unique(group[in_request] * len(codes) + inverse[in_request])
    threads, thread = np.unique(track[left], return_inverse=True)
    thread_of = thread[begins]
    counts_by_thread = np.bincount(
        thread_of[pairs // len(codes)] * len(codes) + pairs % len(codes),
        minlength=len(threads) * len(codes),
    ).reshape(len(threads), len(codes))
    led = np.bincount(thread[leads], minlength=len(threads))[:, None]
    follows = counts_by_thread.sum(axis=0) >= FOLLOWS * led.sum()
    mostly = counts_by_thread >= MOSTLY * led
    telling = mostly | (led < fewest)
    follows_there = (counts_by_thread * telling).sum(axis=0) >= FOLLOWS * (led * telling).sum(
        axis=0
    )
    members = np.flatnonzero(in_request & (follows | (mostly & follows_there))[thread, inverse])
    changes = np.diff(group[members]) != 0
    return left[members[np.append(True, changes)]], left[members[np.append(changes, True)]]


def _with_training(spans: SpanColumns, line: Line, lane: Lane) -> Lane:
    """The lane with longer steps, if a backward pass follows most of its requests."""
    scopes = find_scopes(line)
    end = np.append(lane.begin[1:], max(int(lane.end[-1]), last_end(spans, line)))
    before = np.searchsorted(scopes.backward, np.searchsorted(line.start, lane.begin))
    after = np.searchsorted(scopes.backward, np.searchsorted(line.start, end))
    if 2 * np.count_nonzero(after > before) < len(end):
        return lane
    return make_lane(spans, line, scopes, lane.track, lane.begin, end)
