"""The spans of one process as columns, and those of one of its threads as the line on which steps
are found.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from layerscope.ingest.phases import (
    BACKWARD,
    BACKWARD_PHASE,
    EARLIEST,
    FORWARD_PHASE,
    FUNCTION,
    LOADER,
    OPTIMIZER,
    RANGE,
    Bools,
    Int8s,
    Int32s,
    Int64s,
    Line,
    Positions,
    Scopes,
    Timeline,
    make_timeline,
    told_timeline,
)
from layerscope.model.frameworks import gradient_seeds, step_prefixes

WORKER_SHARE = 0.9  # of the spans at depth 0 of an autograd worker track are autograd spans
# And if the first span of the track is one and optimizers run on another track, which is no trainer
# of its own then: DistributedDataParallel copies gradients between them.
WORKER_SHARE_BESIDE_TRAINER = 0.3


def _no_times() -> Int64s:
    return np.zeros(0, np.int64)


def _no_phases() -> Int8s:
    return np.zeros(0, np.int8)


def _no_tracks() -> Int32s:
    return np.zeros(0, np.int32)


class RecordedWindow(Struct, frozen=True):
    """A stretch of the run that was recorded where not all of it was. Times in ns of the run."""

    open_ns: int
    close_ns: int = np.iinfo(np.int64).max  # the latest while it is open
    first: int = 0  # the number of its first whole step, -1: not known
    rule: str = ""  # by which its steps were counted, "": not known
    optimizer: int = -1  # the instance that ends its steps, where it is known
    steps: int = -1  # how many it holds, where that is known
    is_cut: bool = False  # it opens in the middle of a step
    is_cut_off: bool = False  # and closes in the middle of one

    @property
    def begins_step(self) -> bool:
        """Whether a step begins where it opens, and it is not the first one of the process."""
        return not self.is_cut and self.open_ns != EARLIEST

    @property
    def is_closed(self) -> bool:
        """Whether something of the program comes after it."""
        return self.close_ns != np.iinfo(np.int64).max


class SpanColumns(Struct):
    """The spans of one process in any order, as arrays of equal length, and what the program or the
    user marked.

    Of the calls of modules only the outermost of each thread are among the spans; their name is the
    module's path.
    """

    track: Int32s
    depth: Int32s
    start_ns: Int64s
    dur_ns: Int64s
    kind: NDArray[np.uint8]  # index into model.layers.KINDS
    name: Int32s  # index into names
    names: list[str]
    optimizer: Int32s  # instance of the optimizer of a step of an optimizer; -1: unknown
    marks_ns: Int64s = field(
        default_factory=_no_times
    )  # moments that the program marked as the end of a step
    marks_track: Int32s = field(default_factory=_no_tracks)  # the track of each of them
    ending: int = (
        -1
    )  # the instance of the optimizer that ends the steps, where it is known from before
    step_mark: str = ""  # the name of the spans that the user says are the steps
    windows: tuple[RecordedWindow, ...] = ()  # what was recorded, if not all was
    window: RecordedWindow | None = None  # the one of them that these are the spans of
    request_tracks: Int32s = field(default_factory=_no_tracks)  # on which requests lie
    silent: tuple[tuple[int, int], ...] = ()  # from when to when nothing was recorded of steps
    told: Int8s = field(
        default_factory=_no_phases
    )  # the phase that an operator tells itself, -1: none; empty: none does


def last_end(spans: SpanColumns, line: Line) -> int:
    """Where the last step of a line ends that lasts until the next one begins: ranges and modules
    do not count.
    """
    if spans.window is not None and spans.window.is_closed:
        return spans.window.close_ns
    return int(line.end[line.kind != RANGE].max(initial=EARLIEST))


class Lane(Struct):
    """The steps of one track: they follow each other without overlap. `spent_ns` is by phase (rows)
    and step.
    """

    track: int
    begin: Int64s
    end: Int64s
    timeline: Timeline
    spent_ns: Int64s


class Found(Struct):
    """What a rule found: the steps of one track or, where several threads make steps at the same
    time, of each.
    """

    rule: str
    lanes: list[Lane]
    optimizer: int | None = None


def code_of(spans: SpanColumns, name: str) -> int:
    """The number of a name, -1 where no span has it."""
    return spans.names.index(name) if name in spans.names else -1


def codes_of(spans: SpanColumns, names: tuple[str, ...]) -> list[int]:
    """The numbers of those of these names that a span has."""
    codes = [code_of(spans, name) for name in names]
    return [code for code in codes if code >= 0]


def are_optimizer_steps(spans: SpanColumns, at: Positions) -> Bools:
    """Which of the spans `at` are steps of an optimizer, by their names. Only their names are
    looked at: there may be a million.
    """
    codes, inverse = np.unique(spans.name[at], return_inverse=True)
    prefixes = step_prefixes()
    is_step = [spans.names[code].startswith(prefixes) for code in codes.tolist()]
    return np.array(is_step, np.bool_)[inverse]


def worker_tracks(spans: SpanColumns) -> Bools:
    """Which tracks (as index) are threads of the autograd engine: at depth 0 they run next to
    nothing else.
    """
    bottom = np.flatnonzero(spans.depth == 0)
    track, kind = spans.track[bottom], spans.kind[bottom]
    size = int(spans.track.max(initial=0)) + 1
    autograd = np.bincount(track[kind == BACKWARD], minlength=size)
    others = np.bincount(track[(kind != BACKWARD) & (kind != FUNCTION)], minlength=size)
    has_trainer = bool((spans.kind == OPTIMIZER).any())
    begins_backward = np.zeros(size, np.bool_)
    latest_first = np.argsort(-spans.start_ns[bottom], kind="stable")
    begins_backward[track[latest_first]] = kind[latest_first] == BACKWARD
    share = np.where(begins_backward & has_trainer, WORKER_SHARE_BESIDE_TRAINER, WORKER_SHARE)
    is_enough = autograd >= share * np.bincount(track, minlength=size)
    workers: Bools = (others == 0) & (autograd > 0) & is_enough
    return workers


def line_of(spans: SpanColumns, track: int, workers: Bools) -> Line:
    """The spans of a track, with the autograd and optimizer spans of the worker tracks."""
    belongs = spans.track == track
    if workers.any():
        on_worker = workers[spans.track]
        counts = (spans.kind == BACKWARD) | (spans.kind == OPTIMIZER)
        belongs |= on_worker & counts
    return _line(spans, np.flatnonzero(belongs))


def lines_of(spans: SpanColumns, tracks: Int32s) -> Iterator[Line]:
    """The spans of each of these tracks by themselves."""
    by_track = np.argsort(spans.track, kind="stable")
    sorted_track = spans.track[by_track]
    first = np.searchsorted(sorted_track, tracks)
    stop = np.searchsorted(sorted_track, tracks, side="right")
    for begin, end in zip(first.tolist(), stop.tolist(), strict=True):
        rows = np.sort(by_track[begin:end])
        yield _line(spans, rows)


def _line(spans: SpanColumns, picked: Positions) -> Line:
    """These spans by start, a parent before its children."""
    order = _by_start(spans.start_ns[picked], spans.depth[picked])
    source = picked[order]
    start = spans.start_ns[source]
    end = start + np.maximum(spans.dur_ns[source], 0)
    kind = spans.kind[source]
    # A module, a task, a frame and an event are to steps and phases what a range is.
    kind = np.where(kind > LOADER, np.uint8(RANGE), kind)
    return Line(
        start=start,
        end=end,
        kind=kind,
        name=spans.name[source],
        source=source,
    )


def _by_start(start: Int64s, depth: Int32s) -> Positions:
    """What sorts spans by start and depth."""
    if not len(start):
        return np.zeros(0, np.intp)
    first_ns = int(start.min())
    if int(start.max()) - first_ns >= 1 << 46:
        return np.lexsort((depth, start))
    # One sort by both: with equal starts a parent comes before its children.
    low_bits = np.clip(depth, 0, 0xFFFF)
    key = ((start - first_ns) << 16) | low_bits
    return np.argsort(key, kind="stable")


def make_lane(
    spans: SpanColumns, line: Line, scopes: Scopes, track: int, begin: Int64s, end: Int64s
) -> Lane:
    """The steps [begin, end) of the line of a track, with the time they spend in each phase."""
    if (spans.told >= 0).any():
        waits = line.start[scopes.loader], line.end[scopes.loader]
        phases = [_executed(spans, phase) for phase in (FORWARD_PHASE, BACKWARD_PHASE)]
        timeline, spent = told_timeline(phases[0], phases[1], waits, begin, end)
        return Lane(track, begin, end, timeline, spent)
    is_step = are_optimizer_steps(spans, line.source[scopes.optimizer])
    seeds = codes_of(spans, gradient_seeds())
    timeline, spent = make_timeline(line, scopes, is_step, seeds, begin, end)
    return Lane(track, begin, end, timeline, spent)


def _executed(spans: SpanColumns, phase: int) -> tuple[Int64s, Int64s]:
    """When operators begin and end that tell this phase, on whatever thread."""
    rows = np.flatnonzero(spans.told == phase)
    start_ns = spans.start_ns[rows]
    return start_ns, start_ns + np.maximum(spans.dur_ns[rows], 0)
