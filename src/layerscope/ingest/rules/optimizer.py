"""Rule `optimizer`: a step is one call of the first optimizer.

A step is one call of the first optimizer instance seen (of the first name, if
no instance is known); a GAN with two optimizers has as many steps as its first one makes. A call
inside a call of the same optimizer does not count. The track it runs on is the step track; if that
is an autograd worker track, the step track is the one with the most spans that is not.

- A step ends where the call ends, or, if the call runs inside the backward pass, where that
  backward pass ends. It begins where the previous one ended.
- Step 0 begins at the first loader wait before its end. Without a loader it has as many outermost
  spans (operators, optimizer) as the other steps have in the median, so that making the parameters
  is not part of it; an only step without a loader begins at the first span.
- What a loader feeds without a backward pass is evaluation and in no step. The stretch between two
  ends is cut at the loader waits into segments, waits without an operator between them being one. A
  segment with operators but without a backward pass, other than the one that ends the step, is
  evaluation, and the step begins after the last of them. The end of an epoch is cut off in this way
  too, because a new iterator of a loader draws its seed with operators. Where at least half
  of the steps call modules, only calls of modules outside of the waits and the seed count as
  operators here: a loop that loads ahead moves batches to a device between two waits. Where most
  steps have such a segment without a later empty wait, the loop has several loaders, and only what
  comes before an empty wait is cut off.

So gradient accumulation is one step, a step that mixed precision skipped is part of the next one,
and time may belong to no step. Evaluation without a loader cannot be told from training and counts
as forward.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.ingest.lines import (
    Found,
    SpanColumns,
    are_optimizer_steps,
    line_of,
    make_lane,
)
from layerscope.ingest.phases import (
    MODULE,
    OPTIMIZER,
    RANGE,
    Bools,
    Int64s,
    Line,
    Positions,
    Scopes,
    find_scopes,
    inside,
    last_before,
    outermost,
)
from layerscope.ingest.rules.loader import empty_waits, iterators_made
from layerscope.model.distinct import among, distinct
from layerscope.model.median import median


def find(spans: SpanColumns, workers: Bools) -> Found | None:
    """The steps, if an optimizer stepped."""
    calls = np.flatnonzero(spans.kind == OPTIMIZER)
    calls = calls[are_optimizer_steps(spans, calls)]
    if not len(calls):
        return None
    is_ending = spans.optimizer[calls] == spans.ending
    if spans.ending >= 0 and not is_ending.any():
        return None
    return steps_of(spans, workers, calls)


def steps_of(
    spans: SpanColumns, workers: Bools, calls: Positions, rule: str = "optimizer"
) -> Found:
    """The steps that these calls of optimizers end."""
    leading = _of_first_optimizer(spans, calls)
    track = _step_track(spans, workers, int(spans.track[leading.first]))
    line = line_of(spans, track, workers)
    scopes = find_scopes(line)
    is_leading = among(line.source[scopes.optimizer], leading.calls)
    end = _ends(line, scopes, scopes.optimizer[is_leading])
    waits = _waits_before(line, scopes, int(end[-1]))
    window = spans.window
    if window is not None and window.begins_step:
        first_begin = np.array([window.open_ns], np.int64)
    else:
        first_begin = begin_of_first(line, waits, end)
    begin = np.concatenate((first_begin, end[:-1]))
    if len(waits):
        begin = _without_evaluation(spans, line, scopes, waits, begin, end)
    if window is not None and window.is_cut:
        begin = begin[1:]
        end = end[1:]
        if not len(end):
            return Found(rule, [])
    lane = make_lane(spans, line, scopes, track, begin, end)
    return Found(rule, [lane], leading.instance)


def _waits_before(line: Line, scopes: Scopes, end_ns: int) -> Positions:
    """The loader waits that begin before this time, outside of closures."""
    closures = outermost(line, scopes.optimizer[scopes.optimizer_around])
    is_before = line.start[scopes.loader] < end_ns
    waits = scopes.loader[is_before]
    return waits[~inside(line, waits, closures)]


class _Leading(Struct, frozen=True):
    """The calls of the first optimizer, and the `first` of them; `instance`: None if no call says
    of which it is.
    """

    calls: Positions
    first: int
    instance: int | None


def _of_first_optimizer(spans: SpanColumns, calls: Positions) -> _Leading:
    """The calls of the optimizer whose call comes first."""
    known = calls[spans.optimizer[calls] >= 0]
    if not len(known):
        first = _earliest(spans, calls)
        same_name = spans.name[calls] == spans.name[first]
        return _Leading(calls[same_name], first, None)
    # The instance that ends the steps, as an earlier part of the run has shown.
    ending = known[spans.optimizer[known] == spans.ending]
    is_shown = spans.ending >= 0 and len(ending) > 0
    first = _earliest(spans, ending if is_shown else known)
    instance = int(spans.optimizer[first])
    same_instance = spans.optimizer[known] == instance
    return _Leading(known[same_instance], first, instance)


def _earliest(spans: SpanColumns, calls: Positions) -> int:
    """The call that starts first."""
    start_ns = spans.start_ns[calls]
    first = np.argmin(start_ns)
    return int(calls[first])


def _step_track(spans: SpanColumns, workers: Bools, track: int) -> int:
    """The track of the steps whose optimizer runs on `track`: another one, if that is a worker of
    autograd; it is no worker then.
    """
    if not workers[track]:
        return track
    others = np.bincount(spans.track[~workers[spans.track]])
    if others.any():
        track = int(np.argmax(others))
    workers[track] = False
    return track


def _ends(line: Line, scopes: Scopes, calls: Positions) -> Int64s:
    """Where the steps end: with the calls, or with the backward pass that a call runs in."""
    calls = outermost(line, calls)
    end = line.end[calls]
    nested = inside(line, calls, scopes.backward)
    group = np.searchsorted(scopes.group_first, calls[nested]) - 1
    end[nested] = scopes.group_end[group]
    return distinct(end)


def begin_of_first(line: Line, waits: Positions, end: Int64s) -> Int64s:
    """Where step 0 begins, for steps that end at these times; some span starts before the first
    end.
    """
    stops = np.searchsorted(line.start, end)
    if len(waits) and waits[0] < stops[0]:
        return line.start[waits[:1]]
    top = outermost(line, np.flatnonzero(line.kind != RANGE))
    until = np.searchsorted(top, stops)
    usual = len(top)
    if len(end) > 1:
        usual = int(median(np.diff(until)))
    first = max(0, int(until[0]) - max(usual, 1))
    return line.start[top[[first]]]


def _without_evaluation(
    spans: SpanColumns, line: Line, scopes: Scopes, waits: Positions, begin: Int64s, end: Int64s
) -> Int64s:
    """The begins of the steps moved behind the last evaluation in them."""
    stops = np.searchsorted(line.start, end)
    segments = _segments(scopes, waits, stops)
    signs = _evaluation(spans, line, scopes, stops)
    has_operators = segments.hold(signs)
    has_backward = segments.hold(scopes.backward)
    evaluation = np.flatnonzero(has_operators & ~has_backward & ~segments.is_last)
    if not len(evaluation):
        return begin
    is_empty = empty_waits(spans, line, scopes)
    empty = waits[is_empty[np.searchsorted(scopes.loader, waits)]]
    step = segments.step[evaluation]
    last_empty = last_before(empty, stops[step])
    before_empty = segments.begin[evaluation] <= last_empty
    if 2 * len(distinct(step[~before_empty])) > len(end):
        evaluation = evaluation[before_empty]
        step = step[before_empty]
    next_wait = segments.begin[evaluation + 1]
    # Of several in a step the last one wins.
    begin[step] = line.start[next_wait]
    return begin


class _Segments(Struct, frozen=True):
    """Positions [begin, stop) in the line between loader waits with work between them, by start."""

    step: Positions
    begin: Positions
    stop: Positions
    is_last: Bools  # of its step

    def hold(self, positions: Positions) -> Bools:
        """Which of the segments hold one of these positions."""
        before = np.searchsorted(positions, self.begin)
        until = np.searchsorted(positions, self.stop)
        return until > before


def _segments(scopes: Scopes, waits: Positions, stops: Positions) -> _Segments:
    """The segments that the waits cut the steps into, which end at these positions."""
    step = np.searchsorted(stops, waits, side="right")
    work_before = np.zeros(len(waits), np.intp)
    plain_optimizer = scopes.optimizer[~scopes.optimizer_in_backward]
    for work in (scopes.free, scopes.backward, plain_optimizer):
        work_before += np.searchsorted(work, waits)
    differs = (np.diff(step) != 0) | (np.diff(work_before) != 0)
    opens = np.append(True, differs)
    begin = waits[opens]
    step = step[opens]
    is_last = np.append(np.diff(step) != 0, True)
    next_begin = np.append(begin[1:], 0)
    stop = np.where(is_last, stops[step], next_begin)
    return _Segments(step, begin, stop, is_last)


def _evaluation(spans: SpanColumns, line: Line, scopes: Scopes, stops: Positions) -> Positions:
    """What shows, where no backward pass follows, that a segment is evaluation or the end of an
    epoch.
    """
    modules = np.flatnonzero(spans.kind[line.source] == MODULE)
    modules = modules[~inside(line, modules, scopes.loader)]
    step = distinct(np.searchsorted(stops, modules, side="right"))
    steps_with_modules = np.count_nonzero(step < len(stops))
    if 2 * steps_with_modules < len(stops):
        return scopes.free
    seeds = iterators_made(spans, line, scopes)
    return np.sort(np.concatenate((modules, seeds)))
