"""Dispatch: of steps whose operators are executed later than they are called, as those of compiled
functions are, how long it took to launch them, to run them, and to wait for them.

process, step  number of the step in its process, from 0
start_ns       when it started, on the run's clock; printed in seconds since the run began
dur_ns         its duration
launches       calls of compiled functions in it, on the thread of its process that makes most,
               without those in other ones
launch_ns      how long that thread was in these calls: to hand over what is to be executed, to
               compile it, or to wait until there is room for more
run_ns         how long at least one operator of such functions was being executed meanwhile, on
               whatever thread or device
blocked_ns     how long that thread waited for a result; empty where nothing was told of it, as of
               results on several devices
idle_ns        dur_ns without run_ns: nothing was executed
ahead_ns       the part of run_ns in which that thread neither launched nor waited: it did
               something else meanwhile; empty like blocked_ns

Where launch_ns is about dur_ns and run_ns is less, the program is held up by Python and by the
number of calls; where blocked_ns is large, by what is executed. A step in which a result is not
waited for may be executed, in part, in the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.gpu.intervals import Intervals, difference, merged
from layerscope.analyse.result import COUNT, NS, Result, ResultColumn, of_rows
from layerscope.model.frameworks import blocked, executed, launches

if TYPE_CHECKING:
    from re import Pattern

    from layerscope.recording.reader import Reader

Int64s = np.ndarray
DispatchRow = tuple[int | None, ...]

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    ResultColumn("process", "int32", "", "key of the process"),
    ResultColumn("step", "int32", "", "number of the step in its process"),
    ResultColumn("start_ns", "int64", NS, "when it started", instant=True),
    ResultColumn("dur_ns", "int64", NS, "duration"),
    ResultColumn("launches", "int64", COUNT, "calls of compiled functions"),
    ResultColumn("launch_ns", "int64", NS, "its thread was in these calls"),
    ResultColumn("run_ns", "int64", NS, "something of them was executed"),
    ResultColumn("blocked_ns", "int64", NS, "its thread waited for a result"),
    ResultColumn("idle_ns", "int64", NS, "nothing was executed"),
    ResultColumn("ahead_ns", "int64", NS, "executed while its thread did something else"),
)
TOP = 20
EMPTY = "No step was recorded whose operators are executed later than they are called."
NEXT = "layerscope table dispatch --sort idle_ns"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each step in which something was launched, in the order of time."""
    steps = reader.arrays("steps", ["process", "step", "start_ns", "dur_ns"])
    wanted = ["track", "start_ns", "dur_ns", "name", "kind", "args"]
    spans = reader.arrays("spans", wanted)
    tracks = reader.arrays("tracks", ["track", "process"])
    process_of = np.full(int(tracks["track"].max(initial=-1)) + 1, -1)
    process_of[tracks["track"]] = tracks["process"]
    spans["process"] = process_of[spans["track"]]
    is_called = _named(spans, launches()) & _is_function(spans)
    is_waiting = _named(spans, blocked())
    told = _told(reader)
    is_executed = np.isin(spans["args"], list(told))
    parts = []
    for process in np.unique(spans["process"][is_called]).tolist():
        is_mine = spans["process"] == process
        track = _most_often(spans["track"][is_called & is_mine])
        on_thread = spans["track"] == track
        rows = np.flatnonzero(steps["process"] == process)
        calls = np.flatnonzero(is_called & on_thread)
        waits = np.flatnonzero(is_waiting & on_thread)
        work = np.flatnonzero(is_executed & is_mine)
        of_process = {key: one[rows] for key, one in steps.items()}
        found_here = _of_process(of_process, spans, calls, waits, work)
        devices = {told[args] for args in np.unique(spans["args"][work]).tolist()}
        parts.append(_without_untold(found_here) if len(devices) > 1 else found_here)
    found = [row for part in parts for row in part]
    found.sort(key=lambda row: (row[2], row[0], row[1]))
    return of_rows("dispatch", COLUMNS, found)


def _of_process(
    steps: dict[str, Int64s], spans: dict[str, Int64s], calls: Int64s, waits: Int64s, work: Int64s
) -> list[DispatchRow]:
    """The rows of the steps of one process; the rest are rows of its spans."""
    start_ns, dur_ns = steps["start_ns"], steps["dur_ns"]
    end_ns = start_ns + dur_ns
    sets = [_moments(spans, rows) for rows in (calls, work, waits)]
    own = _moments(spans, np.append(calls, waits))
    called, executed_, waited = (one.in_windows(start_ns, end_ns) for one in sets)
    ahead = difference(sets[1], own).in_windows(start_ns, end_ns)
    called_at = sets[0].start_ns  # of the outermost ones
    count = np.searchsorted(called_at, end_ns) - np.searchsorted(called_at, start_ns)
    columns = (
        steps["process"], steps["step"], start_ns, dur_ns, count, called, executed_, waited,
        dur_ns - executed_, ahead,
    )  # fmt: skip
    whole = np.column_stack(columns)
    return [tuple(row) for row in whole[count > 0].tolist()]


def _without_untold(found: list[DispatchRow]) -> list[DispatchRow]:
    """The same rows without waits of 0 ns, of which nothing was told."""
    rows = []
    for row in found:
        *known, blocked_ns, idle_ns, ahead_ns = row
        told = (blocked_ns, idle_ns, ahead_ns) if blocked_ns else (None, idle_ns, None)
        rows.append((*known, *told))
    return rows


def _moments(spans: dict[str, Int64s], rows: Int64s) -> Intervals:
    """What these spans cover."""
    start_ns = spans["start_ns"][rows]
    return merged(start_ns, start_ns + spans["dur_ns"][rows])


def _most_often(values: Int64s) -> int:
    """The one of these values that there are most of."""
    known, counts = np.unique(values, return_counts=True)
    return int(known[np.argmax(counts)])


def _is_function(spans: dict[str, Int64s]) -> Int64s:
    """Which spans are operators."""
    kinds = spans["kind.names"].tolist()
    codes = [code for code, kind in enumerate(kinds) if kind == "function"]
    return np.isin(spans["kind"], codes)


def _named(spans: dict[str, Int64s], pattern: Pattern[str]) -> Int64s:
    """Which spans have a name that is like this."""
    names = spans["name.names"].tolist()
    codes = [code for code, name in enumerate(names) if pattern.fullmatch(name)]
    return np.isin(spans["name"], codes)


def _told(reader: Reader) -> dict[int, str]:
    """By key of arguments those of something that was executed later: on which device."""
    known = reader.query(
        """SELECT args, json, coalesce(json_extract_string(json, '$.device_ordinal'), '') AS device
        FROM args"""
    )
    pattern = executed()
    rows = zip(*known.to_pydict().values(), strict=True)
    return {key: device for key, text, device in rows if pattern.search(text)}
