"""Rule `mark`: the program, or the user, says what a step is.

**By name** (`--step-mark NAME`). What the spans of that name are decides what they say.

- A range, a task, a frame, an event or a call of a module is a step from its start to its end, on
  every thread. One inside another one of that name does not count. Where they cross on a thread,
  as those of coroutines do, each one counts, and what runs meanwhile is in none of them: a
  `layerscope.profiler.Request` says what is its own.
- A call of an optimizer ends a step, and everything is as by the rule `optimizer` for the first
  optimizer of that name.
- A wait for a loader begins a step, and everything is as by the rule `loader`, for the thread of
  the first one.
- Any other operator begins a step on the thread that first ran it, which lasts until the next one
  begins, the last one until the last span of the thread (ranges and modules not counted) ends.
  Where for most of that time nothing was recorded, it ends where that begins.

If there is no span of that name the next rule is taken.

**By marks** (`layerscope.step()`). A step ends at each mark on the track of the first one, and
begins where the previous one ended; evaluation is not cut off, because the program has said what a
step is. Step 0 begins as by the rule `optimizer`, of a program without operators at its first task,
frame or event; if nothing ran on the track before the first mark, it begins at that mark.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from layerscope.ingest.lines import (
    Found,
    Lane,
    SpanColumns,
    code_of,
    last_end,
    line_of,
    lines_of,
    make_lane,
)
from layerscope.ingest.phases import (
    BACKWARD,
    FUNCTION,
    LOADER,
    MODULE,
    OPTIMIZER,
    RANGE,
    Bools,
    Int64s,
    Line,
    Positions,
    Scopes,
    find_scopes,
    forward_timeline,
    outermost,
)
from layerscope.ingest.rules import loader, optimizer
from layerscope.model.distinct import distinct


def find(spans: SpanColumns, workers: Bools) -> Found | None:
    """The steps, if something is marked."""
    if spans.step_mark:
        code = code_of(spans, spans.step_mark)
        named = np.flatnonzero(spans.name == code)
        if len(named):
            return _named(spans, workers, named)
    return _marked(spans, workers) if len(spans.marks_ns) else None


def _named(spans: SpanColumns, workers: Bools, named: Positions) -> Found:
    """The steps that spans of the name define."""
    first = named[np.argmin(spans.start_ns[named])]
    kind = int(spans.kind[first])
    named = named[spans.kind[named] == kind]
    if kind == OPTIMIZER:
        return optimizer.steps_of(spans, workers, named, "mark")
    if kind == LOADER:
        return loader.steps_of(spans, workers, named, "mark")
    if kind in (FUNCTION, BACKWARD):
        return _begun(spans, workers, named)
    return _covered(spans, workers, named)


def _covered(spans: SpanColumns, workers: Bools, named: Positions) -> Found:
    """Each of the spans is a step from its start to its end, on every thread."""
    tracks = distinct(spans.track[named])
    workers[tracks] = False
    lines: Iterable[Line] = lines_of(spans, tracks)
    if len(tracks) == 1:
        lines = [line_of(spans, int(tracks[0]), workers)]
    lanes: list[Lane] = []
    for track, line in zip(tracks.tolist(), lines, strict=True):
        of_line = np.flatnonzero(np.isin(line.source, named))
        if _cross(line, of_line):
            lanes += _at_once(line, of_line, -2 - len(lanes))
            continue
        steps = outermost(line, of_line)
        begin = line.start[steps]
        end = line.end[steps]  # before the scopes lengthen spans
        scopes = find_scopes(line)
        lanes.append(make_lane(spans, line, scopes, track, begin, end))
    return Found("mark", lanes)


def _cross(line: Line, at: Positions) -> bool:
    """Whether one of these spans ends inside another that began later."""
    start, end = line.start[at], line.end[at]
    latest_end = np.maximum.accumulate(end)[:-1]
    is_inside = start[1:] < latest_end
    goes_on = end[1:] > latest_end
    return bool((is_inside & goes_on).any())


def _at_once(line: Line, at: Positions, first: int) -> list[Lane]:
    """Lanes for these spans, each on the first one that is free: no track of the process, but
    numbers from `first` down.
    """
    begin, end = line.start[at], line.end[at]
    free_ns: list[int] = []  # by lane, when its last one ends
    lane_of = np.zeros(len(at), np.int32)
    for number, (from_ns, to_ns) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        lane = next((one for one, ns in enumerate(free_ns) if ns <= from_ns), len(free_ns))
        free_ns[lane : lane + 1] = [to_ns]
        lane_of[number] = lane
    lanes = []
    for lane in range(len(free_ns)):
        mine = lane_of == lane
        none = begin[:0]
        timeline, spent_ns = forward_timeline(none, none, begin[mine], end[mine])
        lanes.append(Lane(first - lane, begin[mine], end[mine], timeline, spent_ns))
    return lanes


def _outermost_of(line: Line, named: Positions) -> Positions:
    """Where the outermost of these spans are in the line."""
    is_named = np.isin(line.source, named)
    of_line = np.flatnonzero(is_named)
    return outermost(line, of_line)


def _begun(spans: SpanColumns, workers: Bools, named: Positions) -> Found:
    """Each of the spans on the track of the first one begins a step."""
    first = named[np.argmin(spans.start_ns[named])]
    track = int(spans.track[first])
    workers[track] = False
    line = line_of(spans, track, workers)
    begin = line.start[_outermost_of(line, named)]
    end = np.append(begin[1:], last_end(spans, line))
    end = _before_silence(begin, end, spans.silent)
    scopes = find_scopes(line)
    lane = make_lane(spans, line, scopes, track, begin, end)
    return Found("mark", [lane])


def _before_silence(begin: Int64s, end: Int64s, silent: tuple[tuple[int, int], ...]) -> Int64s:
    """The ends of these steps, where one is not for the most part a time in which nothing was
    recorded.
    """
    if not (silent and len(begin)):
        return end
    stretches = np.array(silent, np.int64)
    at = np.searchsorted(begin, stretches[:, 0], side="right") - 1
    is_long = 2 * (stretches[:, 1] - stretches[:, 0]) > (end - begin)[at]
    is_inside = (at >= 0) & (stretches[:, 0] < end[at])
    ends = end.copy()
    cut = np.flatnonzero(is_long & is_inside)
    np.minimum.at(ends, at[cut], stretches[cut, 0])
    return ends


def _marked(spans: SpanColumns, workers: Bools) -> Found | None:
    """Each mark on the track of the first one ends a step."""
    first = np.argmin(spans.marks_ns)
    track = int(spans.marks_track[first])
    on_track = spans.marks_track == track
    end = distinct(spans.marks_ns[on_track])
    workers[track : track + 1] = False
    line = line_of(spans, track, workers)
    scopes = find_scopes(line)
    first_ns = _start_of_first(spans, line, scopes, end)
    if first_ns is None:  # what came before the first mark is no step
        begin = end[:-1]
        end = end[1:]
    else:
        begin = np.append(np.int64(first_ns), end[:-1])
    if not len(end):
        return None
    lane = make_lane(spans, line, scopes, track, begin, end)
    return Found("mark", [lane])


def _start_of_first(spans: SpanColumns, line: Line, scopes: Scopes, end: Int64s) -> int | None:
    """When the step began that ends with the first mark; None: it did not begin here."""
    window = spans.window
    if window is not None and window.begins_step:
        return window.open_ns
    if window is not None and window.is_cut:
        return None
    is_before = line.start < end[0]
    if is_before[line.kind != RANGE].any():
        begin = optimizer.begin_of_first(line, scopes.loader, end)
        return int(begin[0])
    is_library = spans.kind[line.source] > MODULE
    if (is_library & is_before).any():
        return int(line.start[is_library].min())
    return None
