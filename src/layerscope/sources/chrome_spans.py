"""The spans of a trace in Chrome's format: whole ones, those of which begin and end are apart, and
asynchronous ones. Used by `chrome`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from layerscope.model.layers import KINDS
from layerscope.sources.imported import ImportedProcess, ImportedTrack
from layerscope.sources.span_depths import depths
from layerscope.sources.trace_rows import TraceRows, by_pair, named
from layerscope.sources.trace_scan import Columns, ScannedTrace, lanes, pairs

EVENT, TASK = KINDS.index("event"), KINDS.index("task")
_BEGINS = tuple(map(ord, "BbS"))
_OF_BEGIN = ("name", "category", "pid", "tid", "args")
_LEAST, _MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max
_FIELDS = ("start_ns", "end_ns", "name", "category", "pid", "tid", "args", "more", "kind")


class ChromeSpans(Struct):
    """By track, then start; the columns are those of `Imported`, with times as the trace has them.

    `name` and `category`: as the scan numbers them. `args`, `end_args`: of a begin and of its end.
    `ends_left`: how many events end what has not begun. `negative`: how many ended before they
    began.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    track: np.ndarray
    depth: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    category: np.ndarray
    args: np.ndarray
    end_args: np.ndarray
    unfinished: np.ndarray
    ends_left: int
    negative: int


class ChromeTracks:
    """Threads with their processes, by the numbers of pid and tid; asynchronous spans have tracks
    by category. `found` and `processes`: what they are.
    """

    def __init__(self, trace: ScannedTrace, names: Columns) -> None:
        """No track so far."""
        self.found: list[ImportedTrack] = []
        self.processes: list[ImportedProcess] = []
        self._trace = trace
        self._threads = named(trace, names, "thread_name")
        called = named(trace, names, "process_name")
        self._called: dict[int, str] = {}
        for (pid, _), name in called.items():
            self._called[pid] = name
        self._codes: dict[tuple[object, ...], int] = {}
        self._processes: dict[int, int] = {}

    def by_rows(self, pid: np.ndarray, tid: np.ndarray) -> np.ndarray:
        """The tracks of these threads."""
        tracks = by_pair(pid, tid, self.thread)
        return tracks

    def thread(self, pid: int, tid: int, lane: int = 0) -> int:
        """The track of a thread; of what crosses its other spans there are more."""
        value = self._scalar(tid)
        name = self._threads.get((pid, tid)) or (
            f"thread {value}" if isinstance(value, int) else value
        )
        number = None
        if isinstance(value, int) and _LEAST <= value <= _MOST:
            number = value
        key = (pid, tid, lane)
        return self._track(key, pid, name, lane, number)

    def told(self, pid: Any, tid: Any) -> int:
        """The track of a thread by what the file has as its numbers, among the events or not."""
        return self.thread(self._code(pid), self._code(tid))

    def asynchronous(self, pid: int, category: int, lane: int) -> int:
        """The track of tasks of a category."""
        text = ""
        if category >= 0:
            text = self._trace.categories[category]
        key = ("async", pid, category, lane)
        return self._track(key, pid, text or "tasks", lane, None)

    def _track(
        self, key: tuple[object, ...], pid: int, name: str, lane: int, tid: int | None
    ) -> int:
        """The number of a track, which is new where it was not asked for before."""
        if key not in self._codes:
            self._codes[key] = len(self.found)
            whole = f"{name} ({lane + 1})" if lane else name
            self.found.append(ImportedTrack(self._process(pid), whole, tid))
        return self._codes[key]

    def _process(self, pid: int) -> int:
        """The number of a process."""
        if pid not in self._processes:
            value = self._scalar(pid)
            is_number = isinstance(value, int) and 0 <= value <= _MOST
            number = int(value) if is_number else 0
            usual = value if isinstance(value, str) else ""
            name = self._called.get(pid, usual)
            self._processes[pid] = len(self.processes)
            self.processes.append(ImportedProcess(name=name, pid=number))
        return self._processes[pid]

    def _code(self, told: Any) -> int:
        """The number of a number or a text; -1: it is neither."""
        if not isinstance(told, int | str):
            return -1
        scalars = self._trace.scalars
        if told not in scalars:
            scalars.append(told)
        return scalars.index(told)

    def _scalar(self, code: int) -> int | str:
        """A number or a text of the trace; 0: it has none."""
        if code < 0:
            return 0
        return self._trace.scalars[code]


def spans_of(rows: TraceRows, tracks: ChromeTracks, nameless: list[int]) -> ChromeSpans:
    """All spans of a trace; `nameless`: names that are none. What has not ended ends with the last
    event, and is said to be open.
    """
    whole, negative = _whole(rows.columns("spans"))
    sync, async_ = rows.columns("ends"), rows.columns("async")
    ends = (whole["end_ns"], sync["time_ns"], async_["time_ns"])
    last_ns = max((int(one.max()) for one in ends if len(one)), default=0)
    for one in (sync, async_):
        one["name"] = np.where(np.isin(one["name"], nameless), -1, one["name"])
    of_threads, left = _paired(sync, _groups(sync["pid"], sync["tid"]), EVENT, last_ns)
    groups = _groups(async_["pid"], async_["category"], async_["id"])
    tasks, tasks_left = _paired(async_, groups, TASK, last_ns)
    parts = (whole, of_threads, tasks)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in (*_FIELDS, "open")}
    track = _tracks(columns, tracks)
    order = np.lexsort((-columns["end_ns"], columns["start_ns"], track))
    columns = {name: values.take(order) for name, values in columns.items()}
    track = track.take(order)
    return ChromeSpans(
        start_ns=columns["start_ns"],
        end_ns=columns["end_ns"],
        track=track,
        depth=depths(track, columns["start_ns"], columns["end_ns"]),
        kind=columns["kind"].astype(np.uint8),
        name=columns["name"],
        category=columns["category"],
        args=columns["args"],
        end_args=columns["more"],
        unfinished=columns["open"],
        ends_left=left + tasks_left,
        negative=negative,
    )


def _whole(rows: Columns) -> tuple[Columns, int]:
    """Events with a duration, and how many have one below 0."""
    count = len(rows["time_ns"])
    dur_ns = np.maximum(rows["duration_ns"], 0)
    found = {name: rows[name] for name in _OF_BEGIN}
    start_ns = rows["time_ns"]
    found["start_ns"] = start_ns
    found["end_ns"] = start_ns + dur_ns
    found["more"] = np.full(count, -1)
    found["kind"] = np.full(count, EVENT)
    found["open"] = np.zeros(count, np.bool_)
    is_negative = rows["duration_ns"] < 0
    return found, int(np.count_nonzero(is_negative))


def _groups(*columns: np.ndarray) -> np.ndarray:
    """A number for each different row."""
    key = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        _, place = np.unique(values, return_inverse=True)
        count = int(place.max(initial=0)) + 1
        _, key = np.unique(key * count + place, return_inverse=True)
    return key


def _paired(rows: Columns, group: np.ndarray, kind: int, last_ns: int) -> tuple[Columns, int]:
    """Spans out of events that begin and end, and how many end what has not begun."""
    order = np.lexsort((rows["time_ns"], group))
    rows = {name: values.take(order) for name, values in rows.items()}
    is_begin = np.isin(rows["phase"], _BEGINS)
    other = pairs(group[order], rows["name"], is_begin)
    begin = np.flatnonzero(is_begin)
    end = other[begin]
    is_open = end < 0
    found = {name: rows[name].take(begin) for name in _OF_BEGIN}
    found["start_ns"] = rows["time_ns"].take(begin)
    # The last entry is for -1.
    ends_ns = np.append(rows["time_ns"], last_ns)
    more = np.append(rows["args"], -1)
    found["end_ns"] = ends_ns[end]
    found["more"] = more[end]
    found["kind"] = np.full(len(begin), kind)
    found["open"] = is_open
    is_left = ~is_begin & (other < 0)
    return found, int(np.count_nonzero(is_left))


def _tracks(columns: Columns, tracks: ChromeTracks) -> np.ndarray:
    """The track of each span: those of a thread that cross lie on tracks of their own."""
    is_task = columns["kind"] == TASK
    place = np.where(is_task, columns["category"], columns["tid"])
    group = _groups(is_task, columns["pid"], place)
    order = np.lexsort((-columns["end_ns"], columns["start_ns"], group))
    ordered = group[order]
    start_ns, end_ns = columns["start_ns"][order], columns["end_ns"][order]
    deepest = int(depths(ordered, start_ns, end_ns).max(initial=0)) + 1
    lane = np.zeros(len(order), np.int64)
    of_ordered = lanes(ordered, start_ns, end_ns, deepest)
    lane[order] = of_ordered

    def number(row: int) -> int:
        make: Callable[..., int] = tracks.thread
        if is_task[row]:
            make = tracks.asynchronous
        pid = int(columns["pid"][row])
        beside = int(place[row])
        return make(pid, beside, int(lane[row]))

    place_of = _groups(group, lane)[order]
    _, first, which = np.unique(place_of, return_index=True, return_inverse=True)
    numbers = np.zeros(len(first), np.int32)
    for at in np.argsort(first, kind="stable").tolist():
        numbers[at] = number(int(order[first[at]]))
    found = np.zeros(len(order), np.int32)
    found[order] = numbers[which]
    return found


def arguments(trace: ScannedTrace, spans: ChromeSpans) -> tuple[np.ndarray, list[str]]:
    """The number of the arguments of each span, -1: none, and their texts: those of begin and end
    together, with the category.
    """
    key = _groups(spans.category, spans.args, spans.end_args)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    texts: dict[str, int] = {}
    numbers = np.full(len(first), -1, np.int32)
    for at, row in enumerate(first.tolist()):
        text = _text(trace, spans, row)
        if text:
            numbers[at] = texts.setdefault(text, len(texts))
    found: np.ndarray = numbers[which]
    return found, list(texts)


def _text(trace: ScannedTrace, spans: ChromeSpans, row: int) -> str:
    parts = []
    category = int(spans.category[row])
    called = trace.categories[category] if category >= 0 else ""
    if called:
        parts.append(f'"category": {json.dumps(called)}')
    for codes in (spans.args, spans.end_args):
        code = int(codes[row])
        text = trace.arguments[code] if code >= 0 else ""
        within = text.strip()[1:-1]
        parts.append(within.strip())
    whole = ", ".join(filter(None, parts))
    return f"{{{whole}}}" if whole else ""
