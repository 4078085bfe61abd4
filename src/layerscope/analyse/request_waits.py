"""What a request waits for while no call of its own runs: calls of other requests, or something
else.

A model that is busy with others is the reason of a wait where calls run one after the other, on
one thread or behind a lock. Calls that answer several requests at once are of none of them, and
count as others'.
"""

from __future__ import annotations

import numpy as np

from layerscope.analyse.columns import has_name
from layerscope.analyse.step_times import (
    Array,
    Arrays,
    Int64s,
    MeasuredSteps,
    StepTimes,
    process_of_tracks,
)
from layerscope.model.layers import MODULES
from layerscope.recording.reader import Reader

SERVED = "served"


def times_of(reader: Reader, steps: MeasuredSteps) -> StepTimes | None:
    """The times of the measured steps, with how long requests waited for others. None: there are no
    steps.
    """
    times = steps.times()
    if times is not None:
        others = others_ns(reader, steps.columns)[steps.measured]
        times.others_ns = float(others.mean())
    return times


def others_ns(reader: Reader, steps: Arrays) -> Int64s:
    """By row of `steps`, the time in a request in which others' calls ran and none of its own; -1:
    it is no request. Its columns are `process`, `rule`, `start_ns`, `dur_ns`, `forward_ns`.
    """
    found = np.full(len(steps["start_ns"]), -1, np.int64)
    requests = np.flatnonzero(has_name(steps, "rule", SERVED))
    if not len(requests):
        return found
    calls = _calls(reader)
    for process in np.unique(steps["process"][requests]).tolist():
        mine = requests[steps["process"][requests] == process]
        start_ns, end_ns = _together(*calls.get(process, (found[:0], found[:0])))
        begin_ns = steps["start_ns"][mine]
        until_ns = _busy_until(start_ns, end_ns, begin_ns + steps["dur_ns"][mine])
        busy_ns = until_ns - _busy_until(start_ns, end_ns, begin_ns)
        found[mine] = np.maximum(busy_ns - steps["forward_ns"][mine], 0)
    return found


def _calls(reader: Reader) -> dict[int, tuple[Int64s, Int64s]]:
    """By process, when calls of modules began and ended."""
    process_of = process_of_tracks(reader.arrays("tracks", ["track", "process", "name"]))
    parts: dict[int, list[tuple[Int64s, Int64s]]] = {}
    for spans in reader.pieces("spans", ["track", "start_ns", "dur_ns", "layer"]):
        rows = np.flatnonzero(has_name(spans, "layer", MODULES))
        process = process_of[spans["track"][rows]]
        start_ns = spans["start_ns"][rows]
        end_ns = start_ns + spans["dur_ns"][rows]
        for number in np.unique(process).tolist():
            mine = process == number
            parts.setdefault(number, []).append((start_ns[mine], end_ns[mine]))
    found = {}
    for number, pieces in parts.items():
        starts, ends = zip(*pieces, strict=True)
        found[number] = np.concatenate(starts), np.concatenate(ends)
    return found


def _together(start_ns: Int64s, end_ns: Int64s) -> tuple[Int64s, Int64s]:
    """The stretches in which one of these or several are open, in the order of time."""
    if not len(start_ns):
        return start_ns, end_ns
    order = np.argsort(start_ns, kind="stable")
    start_ns = start_ns[order]
    latest_ns = np.maximum.accumulate(end_ns[order])
    is_apart = start_ns[1:] > latest_ns[:-1]
    begins = np.append(True, is_apart)
    ends = np.append(is_apart, True)
    return start_ns[begins], latest_ns[ends]


def _busy_until(start_ns: Int64s, end_ns: Int64s, at_ns: Array) -> Int64s:
    """How much of these stretches lies before each of these times."""
    if not len(start_ns):
        return np.zeros(len(at_ns), np.int64)
    before = np.append(0, np.cumsum(end_ns - start_ns))
    begun = np.searchsorted(start_ns, at_ns, side="right")
    last_ns = end_ns[np.maximum(begun - 1, 0)]
    cut_ns = np.where(begun > 0, np.maximum(last_ns - at_ns, 0), 0)
    busy: Int64s = before[begun] - cut_ns
    return busy
