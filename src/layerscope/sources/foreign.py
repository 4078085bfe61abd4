"""A file of another program as a source: the processes, spans and samples that its format found in
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from layerscope.model.compiled import compiled
from layerscope.model.events import Problem
from layerscope.rawfile import dtypes, layout
from layerscope.rawfile.raw_file import FULL
from layerscope.sources.foreign_memory import ForeignMemory
from layerscope.sources.imported import (
    Imported,
    ImportedProcess,
    ImportedStacks,
    ImportedTrack,
)
from layerscope.sources.process import (
    SPAN,
    Loss,
    Marks,
    ProcessEvents,
    SourceProcess,
    SourceTrack,
)

# Spans that are given out at a time.
_PIECE_SPANS = 100_000
# Of a reading of CLOCK_REALTIME that a file has.
_CLOCK_ERROR_NS = 1_000
# In the place of ticks: the file has one clock only.
NO_TICKS = -1


class ForeignFile:
    """The content of one file as a source. Everything in it is kept: `options` sets no limit."""

    def __init__(self, content: Imported) -> None:
        self.content = content
        self.options: dict[str, Any] = {FULL: True, "step_mark": content.step_mark}
        self.start_ns, self.end_ns = extent(content)
        names = ["(other names)", *content.names, *content.args_texts]
        spans = _spans(content)
        owner = np.array([track.process for track in content.tracks], np.int64)
        of_processes = _by_process(spans, owner, len(content.processes))
        del spans
        _forget_spans(content)
        self._processes = [
            ForeignProcess(self, number, names, of_process)
            for number, of_process in enumerate(of_processes)
        ]
        self._share_moments(owner)
        self._is_new = True
        self._stacks = content.stacks

    def _share_moments(self, owner: np.ndarray) -> None:
        """Give each process what it counted and marked, and its memory; `owner`: the process of
        each track.
        """
        tracks, records = _moments(self.content)
        process = owner[tracks]
        for number, one in enumerate(self._processes):
            is_own = process == number
            moments = tracks[is_own], records.compress(is_own)
            one.set_moments(moments)
            memory = ForeignMemory(self.content.memory, owner, number)
            one.set_memory(memory)

    def new_processes(self) -> list[SourceProcess]:
        """All processes of the file, once."""
        if not self._is_new:
            return []
        self._is_new = False
        return list(self._processes)

    def new_samples(self) -> list[ImportedStacks]:
        """The samples of the file, once."""
        stacks = self._stacks
        if stacks is None:
            return []
        self._stacks = None
        return [stacks]

    def finish(self, session: dict[str, Any]) -> list[SourceProcess]:
        """There is nothing more."""
        processes = self.new_processes()
        return processes

    def problems(self) -> dict[str, list[Problem]]:
        """What the file could not tell; it has no ranks of its own recordings."""
        problems = self.content.problems
        return {"": problems}

    def read_ahead(self) -> bool:
        """Nothing waits for the end."""
        return False

    def left_bytes(self) -> int:
        """The file was read."""
        return 0

    def size_bytes(self) -> int:
        """The file belongs to somebody else."""
        return 0


class ForeignProcess(SourceProcess):
    """One process of the file, with these `spans`."""

    __slots__ = ("_foreign",)

    def __init__(self, file: ForeignFile, number: int, names: list[str], spans: np.ndarray) -> None:
        self._foreign = ForeignEvents(spans)
        super().__init__(self._foreign, file.content.host)
        process = file.content.processes[number]
        self._foreign.names = names
        self._foreign.about = _about(process, file)
        self._foreign.tracks = {
            at: _track(at, track, file.start_ns)
            for at, track in enumerate(file.content.tracks)
            if track.process == number
        }
        if number == 0:
            self._foreign.losses = [
                Loss(0, at_ns, at_ns, count, "ring_full") for at_ns, count in file.content.lost
            ]
            self._foreign.readings = _readings(file.content)

    def set_moments(self, marks: Marks) -> None:
        """What it counted and marked."""
        self._foreign.set_moments(marks)

    def set_memory(self, memory: ForeignMemory) -> None:
        """What it allocated and released."""
        self._foreign.blocks = memory

    def pieces(self) -> Iterator[None]:
        """Some spans at a time, in the order of their ends; then some of what it allocated."""
        while self._foreign.advance() or self._foreign.advance_blocks():
            yield


class ForeignEvents(ProcessEvents):
    """The events of one process; `spans`: `SPAN` rows. An outermost span is given out together with
    all that lies in it.
    """

    def __init__(self, spans: np.ndarray) -> None:
        super().__init__()
        if not _is_in_order(spans):
            spans = spans.take(np.lexsort((spans["depth"], spans["start"], spans["track"])))
        outermost = np.where(spans["depth"] == 0, np.arange(len(spans)), 0)
        outermost = np.maximum.accumulate(outermost)
        # Few are outermost: they are put in order, and what lies in each comes with it.
        first = np.flatnonzero(np.diff(outermost, prepend=-1) != 0)
        by_end = np.argsort(spans["end"].take(first), kind="stable")
        lengths = np.diff(first, append=len(spans))[by_end]
        ends = np.cumsum(lengths)
        order = np.repeat(first[by_end] - (ends - lengths), lengths) + np.arange(len(spans))
        self._spans, self._order = spans, order.astype(np.int32)
        self._cuts = ends  # behind the last of each outermost span
        starts = spans["start"].take(order)
        earliest = np.minimum.accumulate(starts[::-1])[::-1]
        self._earliest_ns = np.append(
            earliest, np.iinfo(np.int64).max
        )  # start of all from there on
        self._given = 0
        self._moments = super().moments()
        self.blocks = ForeignMemory.nothing()

    def set_moments(self, marks: Marks) -> None:
        """What the process counted and marked."""
        self._moments = marks

    def moments(self) -> Marks:
        """What the process counted and marked."""
        return self._moments

    def advance(self) -> bool:
        """Make more spans ready for `batches`; False: there are no more."""
        count = len(self._spans)
        if self.records == count:
            return False
        piece_end = self.records + _PIECE_SPANS
        wanted = min(piece_end, count)
        cut = np.searchsorted(self._cuts, wanted)
        self.records = int(self._cuts[cut])
        self.waiting = self.records - self._given
        return True

    def advance_blocks(self) -> bool:
        """Make more allocations and releases ready for `memory`; False: there are no more."""
        ready = self.blocks.advance()
        self.waiting += ready
        return ready > 0

    def memory(self, last: bool = False) -> np.ndarray:
        """Allocations and releases that are ready."""
        return self.blocks.take(last)

    def batches(self, last: bool = False) -> Iterator[tuple[int, np.ndarray]]:
        """By track, the spans that are ready."""
        ready = self._order[self._given : self.records]
        self._given = self.records
        self.waiting = 0
        tracks = self._spans["track"].take(ready)
        order = np.argsort(tracks, kind="stable")
        spans = self._spans.take(ready.take(order))
        is_border = np.diff(spans["track"]) != 0
        borders = np.flatnonzero(is_border) + 1
        for rows in np.split(spans, borders):
            if len(rows):
                yield int(rows["track"][0]), rows

    @property
    def read_until_ns(self) -> int:
        """The start of the first span that is not ready."""
        return int(self._earliest_ns[self.records])

    @property
    def clock_end_ns(self) -> int:
        """All that ended before this was given out."""
        return self.read_until_ns


def _by_process(spans: np.ndarray, owner: np.ndarray, processes: int) -> list[np.ndarray]:
    """The spans of each process; `owner`: that of each track."""
    if processes == 1:
        return [spans]
    process = owner[spans["track"]] if len(spans) else np.zeros(0, np.int64)
    return [spans.compress(process == number) for number in range(processes)]


def _forget_spans(content: Imported) -> None:
    """They are rows now: the columns are not needed a second time."""
    nothing = np.zeros(0, np.int64)
    content.start_ns = content.dur_ns = nothing
    content.track = content.depth = nothing
    content.kind = content.name = nothing
    content.args = nothing
    content.more = {}


def _is_in_order(spans: np.ndarray) -> bool:
    """Whether spans come by track, then start, then depth."""
    later = np.zeros(max(len(spans) - 1, 0), np.bool_)
    same = np.ones(len(later), np.bool_)
    for name in ("track", "start", "depth"):
        values = np.ascontiguousarray(spans[name])
        later |= same & (values[1:] > values[:-1])
        same &= values[1:] == values[:-1]
    return bool((later | same).all())


def _spans(content: Imported) -> np.ndarray:
    # The name 0 is that of names which are left out; texts of arguments come behind the names.
    first_args = 1 + len(content.names)
    count = len(content.start_ns)
    more = {"origin": 0, "seq": -1, "submitter": 0, "unfinished": 0} | content.more
    library = compiled()
    if library is None:
        spans = np.zeros(count, SPAN)
        spans["start"] = content.start_ns
        spans["end"] = content.start_ns + content.dur_ns
        spans["name"] = content.name + 1
        spans["args"] = np.where(content.args >= 0, content.args + first_args, 0)
        spans["track"] = content.track
        spans["depth"] = content.depth
        spans["kind"] = content.kind
    else:
        spans = np.empty(count, SPAN)
        moments = (_as(np.int64, values) for values in (content.start_ns, content.dur_ns))
        texts = (_as(np.int32, values) for values in (content.name, content.args))
        places = (_as(np.int32, values) for values in (content.track, content.depth))
        kind = _as(np.uint8, content.kind)
        rare = {"origin": np.int64, "seq": np.int32, "submitter": np.int32, "unfinished": np.uint8}
        others = (_as(kept, np.broadcast_to(more.pop(name), count)) for name, kept in rare.items())
        library.call("join", spans, count, *moments, *texts, first_args, *places, kind, *others)
    for name, values in more.items():
        spans[name] = values
    return spans


def _as(kind: type[Any], values: np.ndarray) -> np.ndarray:
    """A column of numbers of this type in one piece."""
    return np.ascontiguousarray(values, kind)


def _moments(content: Imported) -> Marks:
    """Counters and marks in the order of time, as our own raw files have them."""
    moments = content.moments
    records = np.zeros(len(moments.at_ns), dtypes.RECORD)
    value = moments.value.astype(np.int64)
    records["start"] = moments.at_ns
    records["end"] = value.view(np.uint64)
    records["name"] = moments.name + 1
    records["kind"] = np.where(moments.is_mark, layout.MARK, layout.COUNTER)
    records["module"] = layout.MARK_MARKER
    order = np.argsort(moments.at_ns, kind="stable")
    track = moments.track.astype(np.int32)
    return track[order], records.take(order)


def _about(process: ImportedProcess, file: ForeignFile) -> dict[str, Any]:
    return {
        "pid": process.pid,
        "ppid": process.ppid,
        "rank": process.rank,
        "argv": [process.name],
        "about": process.about,
        "start_ns": process.start_ns or file.start_ns,
        "end_ns": file.end_ns if process.end_ns is None else process.end_ns,
    }


def _track(number: int, track: ImportedTrack, start_ns: int) -> SourceTrack:
    thread = track.framework_thread
    began_ns = track.start_ns or start_ns
    about = track.tid, thread, began_ns, track.end_ns, track.name, track.kind, track.device
    return SourceTrack(number, *about)


def _readings(content: Imported) -> list[tuple[int, int, int, int]]:
    """What the clocks said at once, if the file tells it."""
    realtime_ns = content.realtime_ns
    if realtime_ns is None:
        return []
    reading = (NO_TICKS, content.realtime_at_ns, realtime_ns, _CLOCK_ERROR_NS)
    return [reading]


def extent(content: Imported) -> tuple[int, int]:
    """When the first of all spans, samples, counters, marks and blocks began, or a thread before
    it, and when the last of them ended.
    """
    of_memory_ns = content.memory.at_ns  # in the order of time
    moments_ns = np.concatenate([content.moments.at_ns, of_memory_ns[:1], of_memory_ns[-1:]])
    start_ns = np.append(content.start_ns, moments_ns)
    end_ns = np.append(content.start_ns + content.dur_ns, moments_ns)
    if content.stacks is not None:
        samples = content.stacks.samples
        at_ns = samples["at_ns"]
        dur_ns = samples["weight_ns"] * samples["exact"]
        start_ns = np.append(start_ns, at_ns)
        end_ns = np.append(end_ns, at_ns + dur_ns)
    if not len(start_ns):
        return 0, 0
    starts_ns = [process.start_ns for process in content.processes]
    starts_ns += [track.start_ns for track in content.tracks]
    # Threads that were there before the file began have the time 0.
    known_ns = [int(start_ns.min()), *filter(None, starts_ns)]
    return min(known_ns), int(end_ns.max())
