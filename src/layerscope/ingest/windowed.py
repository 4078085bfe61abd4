"""Steps where only windows of the program were recorded: those of each window, numbered as in the
whole run.

Of a window it is known when it opened and closed, mostly by which rule, and the number of its first
step. A window of steps opens where its first step begins and closes where its last one ends, so at
its edges nothing has to be guessed. A window of seconds opens and closes in the middle of steps:
these are none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from layerscope.ingest.lines import Found, Lane, RecordedWindow, SpanColumns
from layerscope.ingest.phases import EARLIEST, Bools, Int8s, Int32s, Int64s, Timeline

LATEST = np.iinfo(np.int64).max

__all__ = ["LATEST", "RecordedWindow", "WindowList", "find_in_windows"]


class WindowList(Struct):
    """The windows of one process, in order, without overlap."""

    known: list[RecordedWindow]

    def holds(self, start_ns: Int64s) -> Bools:
        """Which of the spans that start at these times are in a window."""
        closes = np.array([window.close_ns for window in self.known], np.int64)
        opened = self._last_opened(start_ns)
        close_ns = closes[np.maximum(opened, 0)]
        inside: Bools = (opened >= 0) & (start_ns <= close_ns)
        return inside

    def _last_opened(self, time_ns: Int64s) -> Int64s:
        """The position of the last window that has opened at each of these times, -1 for none."""
        opens = np.array([window.open_ns for window in self.known], np.int64)
        following = np.searchsorted(opens, time_ns, side="right")
        return following - 1

    def numbers(self, start_ns: Int64s, rule: str) -> Int32s:
        """The numbers of the steps of a process, found by `rule`, that begin at these times, in
        this order.
        """
        position = np.arange(len(start_ns), dtype=np.int32)
        if not self.known:
            return position
        opens = np.array([window.open_ns for window in self.known], np.int64)
        first_numbers = [first_of(window, rule) for window in self.known]
        first_positions = np.searchsorted(start_ns, opens)
        offset = np.array(first_numbers, np.int64) - first_positions
        window = np.maximum(self._last_opened(start_ns), 0)
        return (position + offset[window]).astype(np.int32)


def first_of(window: RecordedWindow, rule: str) -> int:
    """The number of the first whole step of a window."""
    if window.first >= 0:
        return window.first
    # It opened before anything told steps apart, perhaps in the middle of step 0.
    return int(window.is_cut and rule in ("optimizer", "mark"))


def find_in_windows(
    spans: SpanColumns, find: Callable[[SpanColumns, str], Found | None]
) -> Found | None:
    """The steps of all windows. `find` finds them by the rule of this name, '' for the first that
    finds some.
    """
    found: list[tuple[RecordedWindow, Found]] = []
    for window in spans.windows:
        part = _part(spans, window)
        steps = find(part, window.rule) if len(part.track) or len(part.marks_ns) else None
        if steps is not None and steps.lanes:
            found.append((window, _within(steps, window)))
    if not found:
        return None
    lanes: dict[int, list[tuple[RecordedWindow, Lane]]] = {}
    for window, steps in found:
        for lane in steps.lanes:
            lanes.setdefault(lane.track, []).append((window, lane))
    last = found[-1][1]
    joined = [_joined(parts) for parts in lanes.values()]
    return Found(last.rule, [lane for lane in joined if len(lane.begin)], last.optimizer)


def _part(spans: SpanColumns, window: RecordedWindow) -> SpanColumns:
    rows = np.flatnonzero((spans.start_ns >= window.open_ns) & (spans.start_ns <= window.close_ns))
    marks = np.flatnonzero((spans.marks_ns >= window.open_ns) & (spans.marks_ns <= window.close_ns))
    columns = {
        name: getattr(spans, name)[rows]
        for name in ("track", "depth", "start_ns", "dur_ns", "kind", "name")
    }
    ending = window.optimizer if window.optimizer > 0 else spans.ending
    return replace(
        spans,
        **columns,
        optimizer=spans.optimizer[rows],
        told=spans.told[rows] if len(spans.told) else spans.told,
        marks_ns=spans.marks_ns[marks],
        marks_track=spans.marks_track[marks],
        windows=(),
        window=window,
        ending=ending,
    )


def _within(found: Found, window: RecordedWindow) -> Found:
    """Without the steps that outlast a window of seconds, and those beyond the number that a window
    of steps holds.
    """
    begins = np.sort(np.concatenate([lane.begin for lane in found.lanes]))
    beyond_ns = int(begins[window.steps]) if 0 <= window.steps < len(begins) else LATEST
    lanes = []
    for lane in found.lanes:
        keep = lane.begin < beyond_ns
        if window.is_cut_off:
            keep &= lane.end < window.close_ns
        lanes.append(lane if keep.all() else _taken(lane, keep))
    return replace(found, lanes=lanes)


def _taken(lane: Lane, keep: Bools) -> Lane:
    """Some steps of a lane, numbered anew."""
    numbers = np.where(keep, np.cumsum(keep) - 1, -1)
    # The last one is for what is in no step, whose number is -1.
    new_number = np.append(numbers, -1).astype(np.int32)
    old = lane.timeline
    step = new_number[old.step]
    phase: Int8s = np.where(step >= 0, old.phase, np.int8(-1))
    return Lane(
        track=lane.track,
        begin=lane.begin[keep],
        end=lane.end[keep],
        timeline=Timeline(old.start, step, phase),
        spent_ns=lane.spent_ns[:, keep],
    )


def _joined(parts: list[tuple[RecordedWindow, Lane]]) -> Lane:
    """The steps of one track in all windows."""
    if len(parts) == 1:
        return parts[0][1]
    starts: list[Int64s] = []
    steps: list[Int32s] = []
    before = 0
    for window, lane in parts:
        start = lane.timeline.start.copy()
        start[0] = window.open_ns if starts else EARLIEST
        starts.append(start)
        steps.append(
            np.where(lane.timeline.step >= 0, lane.timeline.step + before, -1).astype(np.int32)
        )
        before += len(lane.begin)
    lanes = [lane for _, lane in parts]
    phase = np.concatenate([lane.timeline.phase for lane in lanes])
    return Lane(
        lanes[0].track,
        np.concatenate([lane.begin for lane in lanes]),
        np.concatenate([lane.end for lane in lanes]),
        Timeline(np.concatenate(starts), np.concatenate(steps), phase),
        np.concatenate([lane.spent_ns for lane in lanes], axis=1),
    )
