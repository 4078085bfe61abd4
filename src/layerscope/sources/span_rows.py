"""Spans of a foreign file, gathered table by table or line by line. Used by the sources that read
work of GPUs from something else than Chrome JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.layers import GPU, STREAM
from layerscope.sources.imported import Imported, ImportedProcess, ImportedTrack
from layerscope.sources.kineto_meaning import KERNEL, LAUNCH, MEMSET, RUNTIME, kind_of_call
from layerscope.sources.span_depths import depths

_LEAST, _MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max
# Times beyond this are none: differences of two of them still have room.
MOST_NS = 1 << 61
_NONE = {"args": -1, "correlation": 0, "seq": -1, "unfinished": 0, "line": 0}
_COLUMNS = ("start", "end", "kind", "track", "name", *_NONE)
_ALL_STREAMS = (-1, 0xFFFF_FFFF)


class FoundTracks(Struct):
    """Numbers processes and tracks as they are asked for. `names`: what threads are called, by
    process and thread.
    """

    processes: list[ImportedProcess] = field(default_factory=list)
    tracks: list[ImportedTrack] = field(default_factory=list)
    names: dict[tuple[object, ...], str] = field(default_factory=dict)
    _processes: dict[object, int] = field(default_factory=dict)
    _tracks: dict[tuple[object, ...], int] = field(default_factory=dict)

    def process(self, key: object, pid: int = 0, name: str = "") -> int:
        """The number of a process."""
        if key not in self._processes:
            self._processes[key] = len(self.processes)
            number = pid if 0 <= pid <= _MOST else 0
            self.processes.append(ImportedProcess(name=name, pid=number))
        return self._processes[key]

    def thread(self, process: int, tid: int, name: str = "") -> int:
        """The track of a thread."""
        number = _fitting(tid)
        called = name or f"thread {tid}"
        track = ImportedTrack(process, called, number)
        return self._track(("thread", process, tid), track)

    def beside(self, process: int, tid: int, what: str) -> int:
        """A track of `what`, which does not nest with the other spans of the thread."""
        thread = self.thread(process, tid)
        of = self.tracks[thread]
        name = f"{of.name}: {what}"
        track = ImportedTrack(process, name, of.tid)
        return self._track(("beside", process, tid, what), track)

    def stream(self, process: int, device: int, stream: int, name: str = "") -> int:
        """The track of a stream of a GPU."""
        whole = "all streams" if stream in _ALL_STREAMS else f"stream {stream}"
        number = _fitting(device)
        track = ImportedTrack(process, name or whole, kind=STREAM, device=number)
        key = (STREAM, process, device, stream)
        return self._track(key, track)

    def other(self, process: int, key: object, name: str) -> int:
        """The track of something else, by its name."""
        number = key if isinstance(key, int) else 0
        return self._track(("other", process, key), ImportedTrack(process, name, number=number))

    def _track(self, key: tuple[object, ...], track: ImportedTrack) -> int:
        if key not in self._tracks:
            self._tracks[key] = len(self.tracks)
            self.tracks.append(track)
        return self._tracks[key]


class SpanRows(Struct):
    """Takes columns of spans. `rejected`: how many have a time that cannot be, `negative`: how many
    end before they begin. `names`, `texts`: what is given out, by text.
    """

    rejected: int = 0
    negative: int = 0
    names: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    _parts: list[dict[str, np.ndarray]] = field(default_factory=list)
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def name(self, text: str) -> int:
        """The number of a name."""
        return self.names.setdefault(text, len(self.names))

    def named(self, texts: Iterable[str]) -> np.ndarray:
        """The numbers of names."""
        return np.array([self.name(text) for text in texts], np.int32)

    def argument(self, told: dict[str, Any]) -> int:
        """The number of the arguments of a span; -1: there are none."""
        if not told:
            return -1
        text = json.dumps(told, ensure_ascii=False)
        return self.texts.setdefault(text, len(self.texts))

    def arguments(self, keys: Sequence[str], columns: Sequence[Sequence[Any]]) -> np.ndarray:
        """The numbers of the arguments of spans, of which None is none; each distinct row becomes a
        text once.
        """
        found = []
        for values in zip(*columns, strict=True):
            row = (keys, *values)
            number = self._known.get(row)
            if number is None:
                told = zip(keys, values, strict=True)
                number = self.argument({key: one for key, one in told if one is not None})
                self._known[row] = number
            found.append(number)
        return np.array(found, np.int32)

    def add(self, start: np.ndarray, end: np.ndarray, **more: np.ndarray | int) -> None:
        """Take in spans of these times; `more`: track, kind and name, and what there is of args,
        correlation, seq, unfinished and line (the number of a name, and 1 more), a value for all or
        for each. What is unfinished ends with
        the last of all.
        """
        columns = {"start": start, "end": end}
        for name, value in {**_NONE, **more}.items():
            columns[name] = np.broadcast_to(np.asarray(value), start.shape)
        limit = np.int64(MOST_NS)
        is_possible = (start > -limit) & (start < limit) & (end > -limit) & (end < limit)
        if not is_possible.all():
            self.rejected += int(np.count_nonzero(~is_possible))
            columns = {name: values[is_possible] for name, values in columns.items()}
        is_negative = columns["end"] < columns["start"]
        self.negative += int(np.count_nonzero(is_negative))
        columns["end"] = np.maximum(columns["start"], columns["end"])
        self._parts.append(columns)

    def latest_ns(self) -> int:
        """When the last of them ended."""
        ends = [int(part["end"].max()) for part in self._parts if len(part["end"])]
        return max(ends, default=0)

    def first_ns(self) -> int:
        """When the first of them began."""
        starts = [int(part["start"].min()) for part in self._parts if len(part["start"])]
        return min(starts, default=0)

    def imported(self, tracks: FoundTracks, first_ns: int | None = None) -> Imported:
        """All of them, with times since `first_ns`."""
        columns = self._ordered()
        first_ns = self.first_ns() if first_ns is None else first_ns
        kind = columns["kind"].astype(np.uint8)
        correlation = columns["correlation"].astype(np.int64)
        name_launches(kind, correlation)
        is_device = (kind >= KERNEL) & (kind <= RUNTIME)
        more = {
            "seq": columns["seq"].astype(np.int32),
            "origin": np.where(is_device & (correlation > 0), correlation, 0),
            "unfinished": columns["unfinished"].astype(np.bool_),
            "line": columns["line"].astype(np.uint32),
        }
        return Imported(
            start_ns=columns["start"] - first_ns,
            dur_ns=columns["end"] - columns["start"],
            track=columns["track"].astype(np.int32),
            depth=depths(columns["track"], columns["start"], columns["end"]),
            kind=kind,
            name=columns["name"].astype(np.int32),
            args=columns["args"].astype(np.int32),
            more=more,
            names=list(self.names),
            args_texts=list(self.texts),
            tracks=tracks.tracks or [ImportedTrack(0, "nothing")],
            processes=tracks.processes or [ImportedProcess()],
            problems=self.problems(),
        )

    def problems(self) -> list[Problem]:
        """What has to be said of them."""
        found = []
        if self.rejected:
            what = f"{self.rejected:,} events of the file have times that cannot be"
            found.append(Problem(GPU, "events_rejected", what, "record again", "these events"))
        if self.negative:
            what = f"{self.negative:,} spans end before they begin: their duration is 0 here"
            found.append(Problem(GPU, "durations_negative", what, "record again", "durations"))
        return found

    def _ordered(self) -> dict[str, np.ndarray]:
        """By track, then start; of two that start together the longer one comes first."""
        columns = {}
        for name in _COLUMNS:
            pieces = [part[name] for part in self._parts]
            columns[name] = np.concatenate([np.zeros(0, np.int64), *pieces])
        end = columns["end"]
        is_open = columns["unfinished"] != 0
        end[is_open] = end.max(initial=0)
        keys = (-end, columns["start"], columns["track"])
        order = np.lexsort(keys)
        return {name: values.take(order) for name, values in columns.items()}


def _fitting(number: int) -> int | None:
    """A number of the system, which has 32 bits."""
    return number if _LEAST <= number <= _MOST else None


def name_launches(kind: np.ndarray, correlation: np.ndarray) -> None:
    """Calls that have work are launches, whatever they are called; in place."""
    is_work = (kind >= KERNEL) & (kind <= MEMSET)
    launched = correlation[is_work]
    is_call = (kind == RUNTIME) & (correlation > 0)
    calls = np.flatnonzero(is_call)
    has_work = np.isin(correlation[calls], launched)
    launches = calls[has_work]
    kind[launches] = LAUNCH


def kinds_of_calls(names: Sequence[str]) -> np.ndarray:
    """What calls of a runtime do, by their names."""
    known: dict[str, int] = {}
    for name in names:
        if name not in known:
            known[name] = kind_of_call(name)
    return np.array([known[name] for name in names], np.uint8)


def by_distinct(*columns: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """The distinct rows of these columns, and the place of each row among them."""
    whole = np.column_stack(columns)
    rows, place = np.unique(whole, axis=0, return_inverse=True)
    distinct = list(map(tuple, rows.tolist()))
    return distinct, place.ravel()


# Tracks that spans of one thread may need at most so that none of them cross.
_MOST_LANES = 64


def lanes(group: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Of each span the number of the first lane of its group on which it crosses no other one."""
    found = np.zeros(len(start), np.int32)
    order = np.lexsort((-end, start, group))
    open_: list[list[int]] = []
    before = None
    ordered = [one[order] for one in (group, start, end)]
    columns = [one.tolist() for one in (order, *ordered)]
    for row, of, begin, stop in zip(*columns, strict=True):
        if of != before:
            before, open_ = of, []
        found[row] = _lane(open_, begin, stop)
    return found


def _lane(open_: list[list[int]], begin: int, stop: int) -> int:
    """The lane of one more span; `open_`: by lane, when those end that are open."""
    for number, ends in enumerate(open_):
        while ends and ends[-1] <= begin:
            ends.pop()
        if not ends or ends[-1] >= stop or number == _MOST_LANES - 1:
            ends.append(stop)
            return number
    open_.append([stop])
    return len(open_) - 1
