"""The steps of a process: which stretches of time are the iterations of its loop.

The first of these rules that finds something is the rule of the process. Each is defined in its
file in `layerscope.ingest.rules`.

- **`mark`**: what the program or the user marked.
- **`optimizer`**: one call of the first optimizer instance, with all that leads up to it.
- **`loader`**: one batch of the data loader, with what is done with it.
- **`served`**: one request that a server hands to the program, or that the program marks. These
  may overlap.
- **`request`**: one pass through the modules that the program calls. These may overlap, on several
  threads.
- **`none`**: no steps.

**Warm-up.** The first k steps, k being the smallest number from 1 on for which the median of the
steps k..k+4 is within 20 % of the median of all steps; at most a tenth of the steps, but at least
one; none if there are fewer than three steps.

What the phases are is written in `layerscope.ingest.phases`.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from layerscope.ingest.lines import Found, Lane, SpanColumns, worker_tracks
from layerscope.ingest.phases import (
    BACKWARD,
    BACKWARD_PHASE,
    EARLIEST,
    FORWARD_PHASE,
    LOADING_PHASE,
    OPTIMIZER_PHASE,
    OTHER_PHASE,
    Bools,
    Int8s,
    Int32s,
    Int64s,
    Timeline,
)
from layerscope.ingest.rules import loader, mark, optimizer, request, served
from layerscope.ingest.windowed import find_in_windows
from layerscope.model.frameworks import backward_prefixes
from layerscope.model.layers import PHASES
from layerscope.model.median import median, medians

__all__ = ["ProcessSteps", "SpanColumns", "find_steps", "no_steps", "warmup"]

# From the strongest to the weakest.
RULES = {
    "mark": mark,
    "optimizer": optimizer,
    "loader": loader,
    "served": served,
    "request": request,
}
WARMUP_WINDOW = 5
WARMUP_TOLERANCE = 0.2


class ProcessSteps(Struct):
    """The steps of one process: the columns of the table `steps` but `process`, and the lookup of
    step and phase.
    """

    rule: str
    optimizer: int | None
    track: int  # the step track, the one of step 0 if there are several, -1 if there is none
    start_ns: Int64s
    dur_ns: Int64s
    load_ns: Int64s
    forward_ns: Int64s
    backward_ns: Int64s
    optimizer_ns: Int64s
    other_ns: Int64s
    warmup: Bools
    timeline: Timeline  # of every track that has no lane of its own
    lanes: dict[int, Timeline] = field(
        default_factory=dict
    )  # by track, where several tracks make steps

    def __len__(self) -> int:
        return len(self.start_ns)

    def assign(self, start_ns: Int64s, track: Int32s | None = None) -> tuple[Int32s, Int8s]:
        """Step and phase (index into `model.layers.PHASES`) at each of these times, -1 outside the
        steps.

        `track` is the track of each, numbered as in `SpanColumns`; it only matters where several
        tracks make steps.
        """
        if track is None or not self.lanes:
            return self.timeline.at(start_ns)
        step, phase = self.timeline.at(start_ns)
        by_track = np.argsort(track, kind="stable")
        for rows in np.split(by_track, np.flatnonzero(np.diff(track[by_track])) + 1):
            lane = self.lanes.get(int(track[rows[0]])) if len(rows) else None
            if lane is not None:
                step[rows], phase[rows] = lane.at(start_ns[rows])
        return step, phase


def find_steps(spans: SpanColumns, weakest: str = "none") -> ProcessSteps:
    """Find the steps of a process and the time they spend in each phase, by no rule that is weaker
    than `weakest`.
    """
    # A framework's own span around each backward function is an operator to it; here it belongs to
    # the backward pass.
    around = backward_prefixes()
    engine = np.array([name.startswith(around) for name in spans.names], np.bool_)
    if engine.any():
        spans = replace(spans, kind=np.where(engine[spans.name], np.uint8(BACKWARD), spans.kind))

    def find(part: SpanColumns, known: str) -> Found | None:
        workers = worker_tracks(part)
        for name, rule in RULES.items():
            if known not in ("", name):
                continue
            found: Found | None = rule.find(part, workers)
            if found is not None:
                return found
            if name == weakest:
                break
        return None

    found = find_in_windows(spans, find) if spans.windows else find(spans, "")
    return _steps(found) if found is not None else no_steps()


def no_steps() -> ProcessSteps:
    """Nothing was found."""
    return _steps(Found("none", []))


def _steps(found: Found) -> ProcessSteps:
    """The steps of all lanes in the order of their starts."""
    lanes = found.lanes
    begin = np.concatenate([lane.begin for lane in lanes]) if lanes else np.zeros(0, np.int64)
    end = np.concatenate([lane.end for lane in lanes]) if lanes else begin
    spent = (
        np.concatenate([lane.spent_ns for lane in lanes], axis=1)
        if lanes
        else np.zeros((len(PHASES), 0), np.int64)
    )
    order = np.argsort(begin, kind="stable")
    timelines = _numbered(lanes, order)
    begin, end, spent = begin[order], end[order], spent[:, order]
    nothing = Timeline(np.array([EARLIEST]), np.array([-1], np.int32), np.array([-1], np.int8))
    first = min(lanes, key=lambda lane: int(lane.begin[0]), default=None)
    return ProcessSteps(
        rule=found.rule,
        optimizer=found.optimizer,
        track=first.track if first else -1,
        start_ns=begin,
        dur_ns=end - begin,
        load_ns=spent[LOADING_PHASE],
        forward_ns=spent[FORWARD_PHASE],
        backward_ns=spent[BACKWARD_PHASE],
        optimizer_ns=spent[OPTIMIZER_PHASE],
        other_ns=spent[OTHER_PHASE],
        warmup=warmup(end - begin),
        timeline=timelines[0] if len(lanes) == 1 else nothing,
        lanes={lane.track: timeline for lane, timeline in zip(lanes, timelines, strict=True)}
        if len(lanes) > 1
        else {},
    )


def _numbered(lanes: list[Lane], order: Int64s) -> list[Timeline]:
    """The timelines of the lanes with the steps numbered over all lanes; `order` sorts all
    steps.
    """
    number = np.full(len(order) + 1, -1, np.int32)  # the last place is for time in no step
    number[order] = np.arange(len(order), dtype=np.int32)
    timelines, before = [], 0
    for lane in lanes:
        step = lane.timeline.step
        timelines.append(
            replace(lane.timeline, step=number[np.where(step >= 0, step + before, -1)])
        )
        before += len(lane.begin)
    return timelines


def warmup(dur_ns: Int64s) -> Bools:
    """Which steps are warm-up."""
    is_warmup = np.zeros(len(dur_ns), np.bool_)
    if len(dur_ns) < 3:
        return is_warmup
    most = max(1, len(dur_ns) // 10)
    count = most
    if most > 1:
        windows = np.lib.stride_tricks.sliding_window_view(
            dur_ns[1 : most + WARMUP_WINDOW], WARMUP_WINDOW
        )
        usual = median(dur_ns)
        settled = np.abs(medians(windows) - usual) <= WARMUP_TOLERANCE * usual
        count = int(np.argmax(settled)) + 1 if settled.any() else most
    is_warmup[:count] = True
    return is_warmup
