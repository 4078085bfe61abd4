"""What a step does at each moment: loading, forward, backward, optimizer or other.

The phase of a moment is that of the innermost phase scope open then on the step track. The scopes:

- **loading**: the waits for the loader (spans of kind loader).
- **optimizer**: steps of optimizers, and what sets their gradients to zero.
- **backward**: the hull of a group of outermost autograd spans (spans of kind backward, and
  what the engine itself opens around it, of any kind). A group ends where an operator, a loader
  wait or an optimizer span begins outside the autograd spans.
- **forward**: from the first operator after the previous backward group, loader wait or optimizer
  step (and in the same step) up to the start of the backward group, Python between the operators
  included; a `zero_grad` in between stays optimizer. Operators between two loader waits of a step,
  with no backward pass between them, are forward too, from the first to the last. In a step without
  a backward pass forward is the hull of all its operators.
- **other**: the rest, for example operators after the optimizer step or between backward pass and
  optimizer step.

With `opt.step(closure)` forward and backward lie inside the optimizer span and are taken out of it;
there the forward pass begins after the last `zero_grad` before its backward pass, because what
comes before belongs to the optimizer, unless nothing but the seed of the gradient
follows that `zero_grad`. With an optimizer that runs inside the backward pass
its spans are taken out of the backward pass.

Where operators tell by themselves what they belong to, as those that a compiler makes of a whole
step do, forward and backward are when such operators are executed, on whatever thread: backward
where both are.

Autograd may run on threads of its own (it does for GPUs). Autograd and optimizer spans of such
worker tracks count as if they ran on the step track, which waits for them.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.model.compiled import compiled
from layerscope.model.layers import KINDS, PHASES

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Int8s = NDArray[np.int8]
Bools = NDArray[np.bool_]
# Positions in the arrays of a Line.
Positions = NDArray[np.intp]

FUNCTION, BACKWARD, RANGE, OPTIMIZER, LOADER, MODULE = (
    KINDS.index(kind) for kind in ("function", "backward", "range", "optimizer", "loader", "module")
)
LOADING_PHASE, FORWARD_PHASE, BACKWARD_PHASE, OPTIMIZER_PHASE, OTHER_PHASE = (
    PHASES.index(phase) for phase in ("loading", "forward", "backward", "optimizer", "other")
)
EARLIEST = np.iinfo(np.int64).min

# The scopes from the outermost to the innermost: the last one that covers a moment gives its phase.
# An optimizer span around a backward group (a closure) comes first, every other optimizer span lies
# inside whatever else is open.
_PAINT = (OPTIMIZER_PHASE, FORWARD_PHASE, BACKWARD_PHASE, OPTIMIZER_PHASE, LOADING_PHASE)
_BITS = 12  # of one scope's count in the packed sum: up to 4095 scopes of one sort open at a time


class Line(Struct):
    """The spans of the step track in the order of their starts, a parent before its children."""

    start: Int64s
    end: Int64s
    kind: NDArray[np.uint8]
    name: Int32s
    source: Positions  # where each span was in the caller's arrays


class Scopes(Struct):
    """Positions in the line of what phases and steps are made of, each array ascending."""

    backward: Positions  # outermost autograd spans
    group_first: Positions  # the first autograd span of each backward group
    group_last: Positions  # and the last
    group_end: Int64s  # end of each group's hull
    optimizer: Positions
    optimizer_in_backward: Bools  # which of them run inside the backward pass
    optimizer_around: Bools  # and which lie around a backward group
    loader: Positions  # outermost loader waits
    free: Positions  # operators outside autograd, loader and optimizer spans without closure
    free_in_optimizer: Bools  # which of them lie inside an optimizer span around a backward group


class Timeline(Struct):
    """Consecutive pieces of time with their step and phase; the first piece begins at the beginning
    of time.
    """

    start: Int64s
    step: Int32s
    phase: Int8s

    def at(self, time_ns: Int64s) -> tuple[Int32s, Int8s]:
        """Step and phase at each of the times, -1 outside the steps."""
        piece = last_starts(self.start, time_ns)
        step = self.step.take(piece)
        phase = self.phase.take(piece)
        return step, phase


def last_starts(starts: Int64s, time_ns: Int64s) -> Int32s:
    """The place of the last of these starts, which ascend, that is not behind each time; -1: all
    are.
    """
    library = compiled()
    if library is None:
        behind = np.searchsorted(starts, time_ns, side="right")
        return behind.astype(np.int32) - 1
    places = np.empty(len(time_ns), np.int32)
    moments = np.ascontiguousarray(time_ns)
    known = np.ascontiguousarray(starts)
    library.call("last_starts", moments, len(moments), known, len(known), places)
    return places


def outermost(line: Line, at: Positions) -> Positions:
    """Which of the spans at these positions lie in no other of them."""
    start = line.start[at]
    latest_end = np.maximum.accumulate(line.end[at])
    is_outer = np.ones(len(at), np.bool_)
    is_outer[1:] = start[1:] >= latest_end[:-1]
    return at[is_outer]


def inside(line: Line, at: Positions, enclosing: Positions) -> Bools:
    """Which of the spans at these positions start inside one of the spans `enclosing`, which are
    outermost ones.
    """
    if not len(enclosing):
        return np.zeros(len(at), np.bool_)
    last = np.searchsorted(enclosing, at) - 1
    end = line.end[enclosing[last]]
    is_open = line.start[at] < end
    is_behind_one = last >= 0
    return is_behind_one & is_open


def find_scopes(line: Line) -> Scopes:
    """Find what phases are made of."""
    backward = _merge_overlapping(line, np.flatnonzero(line.kind == BACKWARD))
    loader = outermost(line, np.flatnonzero(line.kind == LOADER))
    optimizer = np.flatnonzero(line.kind == OPTIMIZER)
    in_backward = inside(line, optimizer, backward)
    around = _next_start(line, backward, optimizer) < line.end[optimizer]

    shield = np.full(len(line.start), EARLIEST)
    for opaque in (backward, loader, optimizer[~around]):
        shield[opaque] = line.end[opaque]
    np.maximum.accumulate(shield, out=shield)
    free = np.flatnonzero((line.kind == FUNCTION) & (line.start >= shield))

    closures = outermost(line, optimizer[around])
    breaks = np.zeros(len(line.start), np.int32)
    breaks[free] = breaks[loader] = breaks[optimizer[~in_backward]] = 1
    first = _first_of_groups(backward, np.cumsum(breaks, dtype=np.int32))
    return Scopes(
        backward=backward,
        group_first=backward[first],
        group_last=backward[np.append(first[1:], len(backward)) - 1] if len(first) else backward,
        group_end=np.maximum.reduceat(line.end[backward], first) if len(first) else line.end[:0],
        optimizer=optimizer,
        optimizer_in_backward=in_backward,
        optimizer_around=around,
        loader=loader,
        free=free,
        free_in_optimizer=inside(line, free, closures),
    )


def _merge_overlapping(line: Line, at: Positions) -> Positions:
    """The outermost of these spans, each lengthened to the end of those that overlap it (on other
    worker tracks).
    """
    outer = outermost(line, at)
    if len(outer):
        line.end[outer] = np.maximum.reduceat(line.end[at], np.searchsorted(at, outer))
    return outer


def _next_start(line: Line, spans: Positions, at: Positions) -> Int64s:
    """The start of the first of `spans` that comes after each position."""
    latest = np.iinfo(np.int64).max
    starts = np.append(line.start[spans], latest)
    following = np.searchsorted(spans, at)
    return starts[following]


def _first_of_groups(backward: Positions, breaks: Int32s) -> Positions:
    """Which outermost autograd spans begin a backward group (as indices into `backward`).

    `breaks` counts, up to each position in the line, the spans that end a group.
    """
    if not len(backward):
        return backward
    begins = np.ones(len(backward), np.bool_)
    begins[1:] = np.diff(breaks[backward]) != 0
    return np.flatnonzero(begins)


def _forwards(
    line: Line, scopes: Scopes, is_step: Bools, seed_names: list[int], first: Positions
) -> tuple[Int64s, Int64s]:
    """Start and end of the forward pass before each backward group that has one.

    `is_step` says which of the optimizer spans are steps, `seed_names` are the codes of what makes
    the first gradient, `first` are the first spans of the steps.
    """
    outside = ~scopes.optimizer_in_backward
    limits = np.concatenate(
        (scopes.group_last, scopes.loader, scopes.optimizer[is_step & outside], first - 1)
    )
    limits.sort()
    zero_grads = scopes.optimizer[~is_step & outside]
    closures = outermost(line, scopes.optimizer[scopes.optimizer_around])
    in_closure = inside(line, scopes.group_first, closures)
    starts, ends = [], []
    for nested in (False, True):
        group = scopes.group_first[in_closure == nested]
        free = scopes.free[scopes.free_in_optimizer == nested]
        limit = last_before(limits, group)
        begin = _first_after(free, limit)
        if nested:
            later = _first_after(free, np.maximum(limit, last_before(zero_grads, group)))
            name = line.name[np.minimum(later, len(line.name) - 1)]
            is_forward = (later < group) & ~np.isin(name, seed_names)
            begin = np.where(is_forward, later, begin)
        found = begin < group
        starts.append(line.start[begin[found]])
        ends.append(line.start[group[found]])
    return np.concatenate(starts), np.concatenate(ends)


def last_before(positions: Positions, at: Positions) -> Positions:
    """The last of `positions` before each one of `at`, -1 where there is none."""
    following = np.searchsorted(positions, at)
    last = following - 1
    or_none = np.append(positions, -1)
    return or_none[last]


def _first_after(positions: Positions, at: Positions) -> Positions:
    """The first of `positions` after each one of `at`, a huge number where there is none."""
    first = np.searchsorted(positions, at, side="right")
    none = np.iinfo(np.intp).max
    or_none = np.append(positions, none)
    return or_none[first]


def _hulls(
    line: Line, free: Positions, first: Positions, stop: Positions, limit: Int64s
) -> tuple[Int64s, Int64s]:
    """Hulls of the operators between positions `first` and `stop`, cut at `limit`; empty stretches
    give nothing.
    """
    begin = np.searchsorted(free, first)
    end = np.searchsorted(free, stop)
    has_operators = begin < end
    if not has_operators.any():
        return line.start[:0], line.end[:0]
    begin = begin[has_operators]
    end = end[has_operators]
    ends = np.append(line.end[free], EARLIEST)
    # `reduceat` also reduces what lies between two stretches: every second result.
    bounds = np.column_stack((begin, end)).ravel()
    last_end = np.maximum.reduceat(ends, bounds)[::2]
    hull_start = line.start[free[begin]]
    return hull_start, np.minimum(last_end, limit[has_operators])


def _between_loaders(line: Line, scopes: Scopes) -> tuple[Int64s, Int64s]:
    """Hulls of the operators between two loader waits with no backward pass between them."""
    waits = scopes.loader
    groups_before = np.searchsorted(scopes.group_first, waits)
    is_direct = np.diff(groups_before) == 0
    wait = waits[:-1][is_direct]
    next_wait = waits[1:][is_direct]
    limit = line.start[next_wait]
    return _hulls(line, scopes.free, wait, next_wait, limit)


def make_timeline(
    line: Line, scopes: Scopes, is_step: Bools, seed_names: list[int], begin: Int64s, end: Int64s
) -> tuple[Timeline, Int64s]:
    """The pieces of time of the steps [begin, end), and a table of the time in each phase (rows)
    and step (columns).
    """
    first, stop = np.searchsorted(line.start, begin), np.searchsorted(line.start, end)
    bare = np.searchsorted(scopes.backward, first) == np.searchsorted(scopes.backward, stop)
    forwards = (
        _forwards(line, scopes, is_step, seed_names, first),
        _between_loaders(line, scopes),
        _hulls(line, scopes.free, first[bare], stop[bare], end[bare]),
    )
    closures, plain = (
        scopes.optimizer[scopes.optimizer_around],
        scopes.optimizer[~scopes.optimizer_around],
    )
    layers = (
        (line.start[closures], line.end[closures]),
        (
            np.concatenate([one[0] for one in forwards]),
            np.concatenate([one[1] for one in forwards]),
        ),
        (line.start[scopes.group_first], scopes.group_end),
        (line.start[plain], line.end[plain]),
        (line.start[scopes.loader], line.end[scopes.loader]),
    )
    return _paint(layers, begin, end)


def forward_timeline(
    start: Int64s, end: Int64s, begin: Int64s, stop: Int64s
) -> tuple[Timeline, Int64s]:
    """What `make_timeline` gives, of steps [begin, stop) in which only the calls [start, end) are a
    phase: forward.
    """
    none = (start[:0], end[:0])
    return _paint((none, (start, end), none, none, none), begin, stop)


def told_timeline(
    forward: tuple[Int64s, Int64s],
    backward: tuple[Int64s, Int64s],
    waits: tuple[Int64s, Int64s],
    begin: Int64s,
    end: Int64s,
) -> tuple[Timeline, Int64s]:
    """What `make_timeline` gives, of steps [begin, end) whose operators tell their phases: from
    when to when those of each are executed, and waits for loaders.
    """
    none = (begin[:0], begin[:0])
    return _paint((none, forward, backward, none, waits), begin, end)


def _paint(
    layers: tuple[tuple[Int64s, Int64s], ...], begin: Int64s, end: Int64s
) -> tuple[Timeline, Int64s]:
    """The step and the phase from each moment on at which one of them changes, and the time that
    each step spent in each phase.
    """
    time, phase = _innermost(layers, (begin, end))
    step = np.searchsorted(begin, time, side="right") - 1
    step_end = np.append(end, EARLIEST)[step]
    in_no_step = (step < 0) | (time >= step_end)
    step[in_no_step] = -1
    phase[in_no_step] = -1
    passed_ns = np.diff(time)
    spent = np.zeros((len(PHASES), len(begin)), np.int64)
    within = np.flatnonzero(step[:-1] >= 0)
    cell = (phase[within], step[within])
    np.add.at(spent, cell, passed_ns[within])
    # Of what happens at one time the last counts.
    last = np.flatnonzero(np.append(passed_ns != 0, True))
    timeline = Timeline(time[last], step[last].astype(np.int32), phase[last])
    return _without_repeats(timeline), spent


def _without_repeats(timeline: Timeline) -> Timeline:
    """The timeline with neighbours of one step and one phase joined."""
    step_changes = np.diff(timeline.step) != 0
    phase_changes = np.diff(timeline.phase) != 0
    changes = np.append(True, step_changes | phase_changes)
    return Timeline(
        start=timeline.start[changes],
        step=timeline.step[changes],
        phase=timeline.phase[changes],
    )


def _innermost(
    layers: tuple[tuple[Int64s, Int64s], ...], edges: tuple[Int64s, Int64s]
) -> tuple[Int64s, Int8s]:
    """All times at which a scope begins or ends, and the phase of the innermost one that is open
    then. The times of `edges` change nothing.
    """
    times: list[Int64s] = [np.array([EARLIEST]), *edges]
    edge_count = sum(map(len, times))
    weights: list[Int64s] = [np.zeros(edge_count, np.int64)]
    for layer, (start, stop) in enumerate(layers):
        one = 1 << (_BITS * layer)
        times += [start, stop]
        weights.append(np.full(len(start), one, np.int64))
        weights.append(np.full(len(stop), -one, np.int64))
    time = np.concatenate(times)
    order = np.argsort(time, kind="stable")
    # How many scopes of each layer are open, packed in one number: its highest field tells the
    # innermost.
    weight = np.concatenate(weights)
    is_open = np.cumsum(weight[order])
    fields = 1 << (_BITS * np.arange(len(layers)))
    innermost = np.searchsorted(fields, is_open, side="right")
    phase_of = np.array((OTHER_PHASE, *_PAINT), np.int8)
    return time[order], phase_of[innermost]
