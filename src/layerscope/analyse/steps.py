"""The steps of a process: which stretches of time are the iterations of its loop.

**Rule `optimizer`.** A step is one call of `Optimizer.step#` of the first optimizer instance seen (of the first name,
if no instance is known); a GAN with two optimizers has as many steps as its first one makes. A call inside a call of
the same optimizer does not count. The track it runs on is the step track; if that is an autograd worker track, the
step track is the one with the most spans that is not.

- A step ends where the call ends, or, if the call runs inside the backward pass, where that backward pass ends. It
  begins where the previous one ended.
- Step 0 begins at the first loader wait before its end. Without a loader it has as many outermost spans (operators,
  optimizer) as the other steps have in the median, so that making the parameters is not part of it; an only step
  without a loader begins at the first span.
- What a loader feeds without a backward pass is evaluation and in no step. The stretch between two ends is cut at the
  loader waits into segments, waits without an operator between them being one. A segment with operators but without a
  backward pass, other than the one that ends the step, is evaluation, and the step begins after the last of them. The
  end of an epoch is cut off in this way too, because a new iterator of a `DataLoader` draws its seed with operators.
  Where most steps have such a segment without a later empty wait, the loop has several loaders, and only what comes
  before an empty wait is cut off.

So gradient accumulation is one step, a step that mixed precision skipped is part of the next one, and time may belong
to no step. Evaluation without a loader cannot be told from training and counts as forward.

**Rule `loader`.** Without an optimizer a step is one loader wait, on the track of the first one. It lasts until the
next wait begins, the last one until the last span of the track (ranges not counted) ends. The empty wait that ends an
epoch is no step, but ends one.

A wait is *empty* if no batch was made in it (it has no spans, or only those of a sampler drawing the next order), and
one of these holds; if that were true of all waits, none is empty.

- At least half of the waits of its name do make batches, and it is the last one on the track or a new iterator is made
  after it (`aten::random_` draws its seed). Batches of worker processes that arrive out of order leave waits without
  spans too, but the loop goes on after these.
- Fewer than half as many operators follow it before the next wait as follow a wait in the median.
- Nothing follows a wait in the median, as in a loop that does nothing but load: it is the last one, or any operator
  follows.

**Rule `none`.** Neither optimizer nor loader: no steps.

**Warm-up.** The first k steps, k being the smallest number from 1 on for which the median of the steps k..k+4 is
within 20 % of the median of all steps; at most a tenth of the steps, but at least one; none if there are fewer than
three steps.

What the phases are is written in `layerscope.analyse.phases`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from layerscope.analyse.phases import (
    BACKWARD,
    BACKWARD_PHASE,
    EARLIEST,
    FORWARD_PHASE,
    FUNCTION,
    LOADER,
    LOADING_PHASE,
    OPTIMIZER,
    OPTIMIZER_PHASE,
    OTHER_PHASE,
    RANGE,
    Bools,
    Int8s,
    Int32s,
    Int64s,
    Line,
    Positions,
    Scopes,
    Timeline,
    find_scopes,
    inside,
    last_before,
    make_timeline,
    outermost,
)

# The engine's own span around each backward function; to torch it is an operator, only what is in it is autograd.
ENGINE_PREFIX = "autograd::engine::evaluate_function"
STEP_PREFIX = "Optimizer.step#"
GRADIENT_SEED = "aten::ones_like"
ITERATOR_SEED = "aten::random_"
# What samplers and the iterator of a DataLoader run to draw an order or a seed: it makes no batch.
SAMPLER_OPERATORS = frozenset(
    (
        "aten::_local_scalar_dense",
        "aten::empty",
        "aten::item",
        "aten::multinomial",
        "aten::randint",
        "aten::random_",
        "aten::randperm",
        "aten::resize_",
        "aten::resolve_conj",
        "aten::resolve_neg",
        "aten::scalar_tensor",
    )
)
WORKER_SHARE = 0.9  # of the spans at depth 0 of an autograd worker track are autograd spans
WARMUP_WINDOW = 5
WARMUP_TOLERANCE = 0.2


@dataclass(slots=True)
class SpanColumns:
    """The spans of one process in any order, as arrays of equal length."""

    track: Int32s
    depth: Int32s
    start_ns: Int64s
    dur_ns: Int64s
    kind: NDArray[np.uint8]  # index into model.layers.KINDS
    name: Int32s  # index into names
    names: list[str]
    optimizer: Int32s  # instance of the optimizer of an `Optimizer.step#` span, -1 elsewhere and where unknown


@dataclass(slots=True)
class Steps:
    """The steps of one process: the columns of the table `steps` but `process`, and the lookup of step and phase."""

    rule: str
    optimizer: int | None
    track: int  # the step track, -1 if there is none
    start_ns: Int64s
    dur_ns: Int64s
    load_ns: Int64s
    forward_ns: Int64s
    backward_ns: Int64s
    optimizer_ns: Int64s
    other_ns: Int64s
    warmup: Bools
    timeline: Timeline

    def __len__(self) -> int:
        return len(self.start_ns)

    def assign(self, start_ns: Int64s) -> tuple[Int32s, Int8s]:
        """Step and phase (index into `model.layers.PHASES`) at each of these times, -1 outside the steps."""
        return self.timeline.at(start_ns)


def find_steps(spans: SpanColumns) -> Steps:
    """Find the steps of a process and the time they spend in each phase."""
    engine = np.array([name.startswith(ENGINE_PREFIX) for name in spans.names], np.bool_)
    if engine.any():
        spans = replace(spans, kind=np.where(engine[spans.name], np.uint8(BACKWARD), spans.kind))
    workers = _worker_tracks(spans)
    calls = np.flatnonzero(spans.kind == OPTIMIZER)
    calls = calls[_matches(spans, calls, STEP_PREFIX)]
    if len(calls):
        return _steps_of_optimizer(spans, workers, calls)
    waits = np.flatnonzero(spans.kind == LOADER)
    if len(waits):
        return _steps_of_loader(spans, int(spans.track[waits[np.argmin(spans.start_ns[waits])]]), workers)
    nothing = _line(spans, -1, np.zeros(1, np.bool_))
    empty = spans.start_ns[:0]
    return _measure(spans, nothing, find_scopes(nothing), "none", None, -1, empty, empty)


def _matches(spans: SpanColumns, at: Positions, part: str) -> Bools:
    """Which of the spans `at` have `part` in their name. Only their names are looked at: there may be a million."""
    codes, inverse = np.unique(spans.name[at], return_inverse=True)
    return np.array([part in spans.names[code] for code in codes.tolist()], np.bool_)[inverse]


def _code(spans: SpanColumns, name: str) -> int:
    return spans.names.index(name) if name in spans.names else -1


def _worker_tracks(spans: SpanColumns) -> Bools:
    """Which tracks (as index) are threads of the autograd engine: at depth 0 they run next to nothing else."""
    bottom = np.flatnonzero(spans.depth == 0)
    track, kind = spans.track[bottom], spans.kind[bottom]
    size = int(spans.track.max(initial=0)) + 1
    autograd = np.bincount(track[kind == BACKWARD], minlength=size)
    others = np.bincount(track[(kind != BACKWARD) & (kind != FUNCTION)], minlength=size)
    workers: Bools = (others == 0) & (autograd > 0) & (autograd >= WORKER_SHARE * np.bincount(track, minlength=size))
    return workers


def _line(spans: SpanColumns, track: int, workers: Bools) -> Line:
    """The spans of the step track, with the autograd and optimizer spans of the worker tracks."""
    mine = spans.track == track
    if workers.any():
        mine |= workers[spans.track] & ((spans.kind == BACKWARD) | (spans.kind == OPTIMIZER))
    picked = np.flatnonzero(mine)
    start, depth = spans.start_ns[picked], spans.depth[picked]
    if len(start) and int(start.max()) - int(start.min()) < 1 << 46:
        # One sort by start and depth: with equal starts a parent comes before its children.
        order = np.argsort(((start - start.min()) << 16) | np.clip(depth, 0, 0xFFFF), kind="stable")
    else:
        order = np.lexsort((depth, start))
    source = picked[order]
    start = start[order]
    return Line(start, start + np.maximum(spans.dur_ns[source], 0), spans.kind[source], spans.name[source], source)


def _steps_of_optimizer(spans: SpanColumns, workers: Bools, calls: Positions) -> Steps:
    known = calls[spans.optimizer[calls] >= 0]
    calls = known if len(known) else calls
    first = calls[np.argmin(spans.start_ns[calls])]
    if len(known):
        calls = calls[spans.optimizer[calls] == spans.optimizer[first]]
    else:
        calls = calls[spans.name[calls] == spans.name[first]]
    track = int(spans.track[first])
    if workers[track]:
        others = np.bincount(spans.track[~workers[spans.track]])
        if others.any():
            track = int(np.argmax(others))
        workers[track] = False
    line = _line(spans, track, workers)
    scopes = find_scopes(line)
    end = _ends(line, scopes, scopes.optimizer[np.isin(line.source[scopes.optimizer], calls)])
    closures = outermost(line, scopes.optimizer[scopes.optimizer_around])
    waits = scopes.loader[line.start[scopes.loader] < end[-1]]
    waits = waits[~inside(line, waits, closures)]
    begin = np.concatenate((_begin_of_first(line, waits, end), end[:-1]))
    if len(waits):
        begin = _without_evaluation(spans, line, scopes, waits, begin, end)
    instance = int(spans.optimizer[first]) if len(known) else None
    return _measure(spans, line, scopes, "optimizer", instance, track, begin, end)


def _ends(line: Line, scopes: Scopes, calls: Positions) -> Int64s:
    """Where the steps end: with the calls, or with the backward pass that a call runs in."""
    calls = outermost(line, calls)
    end = line.end[calls]
    nested = inside(line, calls, scopes.backward)
    end[nested] = scopes.group_end[np.searchsorted(scopes.group_first, calls[nested]) - 1]
    return np.unique(end)


def _begin_of_first(line: Line, waits: Positions, end: Int64s) -> Int64s:
    """Where step 0 begins."""
    stops = np.searchsorted(line.start, end)
    if len(waits) and waits[0] < stops[0]:
        return line.start[waits[:1]]
    top = outermost(line, np.flatnonzero(line.kind != RANGE))
    until = np.searchsorted(top, stops)
    usual = int(np.median(np.diff(until))) if len(end) > 1 else len(top)
    return line.start[top[[max(0, int(until[0]) - max(usual, 1))]]]


def _without_evaluation(
    spans: SpanColumns, line: Line, scopes: Scopes, waits: Positions, begin: Int64s, end: Int64s
) -> Int64s:
    """The begins of the steps moved behind the last evaluation in them."""
    stops = np.searchsorted(line.start, end)
    of_step = np.searchsorted(stops, waits, side="right")
    done = np.zeros(len(waits), np.intp)
    for work in (scopes.free, scopes.backward, scopes.optimizer[~scopes.optimizer_in_backward]):
        done += np.searchsorted(work, waits)
    opens = np.append(True, (np.diff(of_step) != 0) | (np.diff(done) != 0))
    waits_opening, of_step = waits[opens], of_step[opens]
    last = np.append(np.diff(of_step) != 0, True)
    stop = np.where(last, stops[of_step], np.append(waits_opening[1:], 0))
    has_operators = np.searchsorted(scopes.free, stop) > np.searchsorted(scopes.free, waits_opening)
    has_backward = np.searchsorted(scopes.backward, stop) > np.searchsorted(scopes.backward, waits_opening)
    evaluation = np.flatnonzero(has_operators & ~has_backward & ~last)
    if not len(evaluation):
        return begin
    empty = waits[_empty_waits(spans, line, scopes)[np.searchsorted(scopes.loader, waits)]]
    before_empty = waits_opening[evaluation] <= last_before(empty, stops[of_step[evaluation]])
    if 2 * len(np.unique(of_step[evaluation[~before_empty]])) > len(end):
        evaluation = evaluation[before_empty]
    begin[of_step[evaluation]] = line.start[waits_opening[evaluation + 1]]  # of several in a step the last one wins
    return begin


def _steps_of_loader(spans: SpanColumns, track: int, workers: Bools) -> Steps:
    workers[track] = False
    line = _line(spans, track, workers)
    scopes = find_scopes(line)
    last_end = line.end[line.kind != RANGE].max(initial=EARLIEST)
    begin = line.start[scopes.loader]
    end = np.append(begin[1:], last_end)
    full = ~_empty_waits(spans, line, scopes)
    return _measure(spans, line, scopes, "loader", None, track, begin[full], end[full])


def _empty_waits(spans: SpanColumns, line: Line, scopes: Scopes) -> Bools:
    """Which of the loader waits only found that the epoch is over."""
    waits = scopes.loader
    own = np.array([name in SAMPLER_OPERATORS for name in spans.names], np.bool_)
    foreign = np.flatnonzero(~own[line.name])
    stop = np.searchsorted(line.start, line.end[waits])
    idle = np.searchsorted(foreign, waits, side="right") >= np.searchsorted(foreign, stop)

    _, code = np.unique(line.name[waits], return_inverse=True)
    makes_batches = 2 * np.bincount(code, weights=idle) <= np.bincount(code)

    # How many operators that are not a sampler's follow before the next wait.
    gap_end = np.append(waits[1:], len(line.start))
    work = foreign[line.kind[foreign] != RANGE]
    follow = np.searchsorted(work, gap_end) - np.searchsorted(work, np.maximum(stop, waits + 1))
    is_last = gap_end == len(line.start)
    if usual := np.median(follow):
        seeds = scopes.free[line.name[scopes.free] == _code(spans, ITERATOR_SEED)]
        is_renewed = np.searchsorted(seeds, waits) < np.searchsorted(seeds, gap_end)
        over = (2 * follow < usual) | ((is_last | is_renewed) & makes_batches[code])
    else:
        over = is_last | (np.searchsorted(scopes.free, waits) < np.searchsorted(scopes.free, gap_end))
    empty: Bools = idle & over
    return empty if not empty.all() else np.zeros(len(waits), np.bool_)


def _measure(
    spans: SpanColumns,
    line: Line,
    scopes: Scopes,
    rule: str,
    optimizer: int | None,
    track: int,
    begin: Int64s,
    end: Int64s,
) -> Steps:
    """Measure the phases of the steps [begin, end)."""
    is_step = _matches(spans, line.source[scopes.optimizer], STEP_PREFIX)
    timeline, spent = make_timeline(line, scopes, is_step, _code(spans, GRADIENT_SEED), begin, end)
    return Steps(
        rule=rule,
        optimizer=optimizer,
        track=track,
        start_ns=begin,
        dur_ns=end - begin,
        load_ns=spent[LOADING_PHASE],
        forward_ns=spent[FORWARD_PHASE],
        backward_ns=spent[BACKWARD_PHASE],
        optimizer_ns=spent[OPTIMIZER_PHASE],
        other_ns=spent[OTHER_PHASE],
        warmup=_warmup(end - begin),
        timeline=timeline,
    )


def _warmup(dur_ns: Int64s) -> Bools:
    """Which steps are warm-up."""
    warmup = np.zeros(len(dur_ns), np.bool_)
    if len(dur_ns) < 3:
        return warmup
    most = max(1, len(dur_ns) // 10)
    count = most
    if most > 1:
        windows = np.lib.stride_tricks.sliding_window_view(dur_ns[1 : most + WARMUP_WINDOW], WARMUP_WINDOW)
        usual = np.median(dur_ns)
        settled = np.abs(np.median(windows, axis=1) - usual) <= WARMUP_TOLERANCE * usual
        count = int(np.argmax(settled)) + 1 if settled.any() else most
    warmup[:count] = True
    return warmup
