"""A file of another program as a source: the processes, spans and samples that its format found in
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import field

from layerscope.model.events import Problem
from layerscope.rawfile import dtypes, layout
from layerscope.rawfile.raw_file import FULL
from layerscope.sources.foreign_memory import ForeignMemory
from layerscope.sources.foreign_spans import Columns, ForeignSpans, columns_of
from layerscope.sources.imported import (
    Imported,
    ImportedProcess,
    ImportedStacks,
    ImportedTrack,
)
from layerscope.sources.process import (
    Loss,
    Marks,
    ProcessEvents,
    SourceProcess,
    SourceTrack,
    no_marks,
)

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
        owner = np.array([track.process for track in content.tracks], np.int64)
        of_processes = _by_process(columns_of(content), owner, len(content.processes))
        first_args = 1 + len(content.names)
        self._processes = [
            ForeignProcess(self, number, names, ForeignSpans(columns, first_args))
            for number, columns in enumerate(of_processes)
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

    @property
    def is_wrong(self) -> bool:
        """All of it is known from the beginning."""
        return False

    @property
    def loop(self) -> str:
        """It is an option."""
        return ""

    def left_bytes(self) -> int:
        """The file was read."""
        return 0

    def size_bytes(self) -> int:
        """The file belongs to somebody else."""
        return 0


class ForeignProcess(SourceProcess):
    """One process of the file, with these `spans`."""

    __slots__ = ("_foreign",)

    def __init__(
        self, file: ForeignFile, number: int, names: list[str], spans: ForeignSpans
    ) -> None:
        self._foreign = ForeignEvents(spans=spans)
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


class ForeignEvents(ProcessEvents, kw_only=True):
    """The events of one process. Its `spans` come piece by piece: `_read` pieces are ready, of
    which `_given` were given out.
    """

    spans: ForeignSpans
    blocks: ForeignMemory = field(default_factory=ForeignMemory.nothing)
    _read: int = 0
    _given: int = 0
    _moments: Marks = field(default_factory=no_marks)

    def set_moments(self, marks: Marks) -> None:
        """What the process counted and marked."""
        self._moments = marks

    def moments(self) -> Marks:
        """What the process counted and marked."""
        return self._moments

    def advance(self) -> bool:
        """Make more spans ready for `batches`; False: there are no more."""
        if self._read == self.spans.pieces:
            return False
        self._read += 1
        self.records = self.spans.rows_until(self._read)
        self.waiting = self.records - self.spans.rows_until(self._given)
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
        given, self._given = self._given, self._read
        self.waiting = 0
        return self.spans.rows(given, self._read)

    @property
    def read_until_ns(self) -> int:
        """The start of the first span that is not ready."""
        return self.spans.earliest_ns(self._read)

    @property
    def clock_end_ns(self) -> int:
        """All that ended before this was given out."""
        return self.read_until_ns


def _by_process(columns: Columns, owner: np.ndarray, processes: int) -> list[Columns]:
    """The spans of each process; `owner`: that of each track."""
    if processes == 1:
        return [columns]
    process = owner.take(columns["track"]) if len(owner) else np.zeros(0, np.int64)
    found = []
    for number in range(processes):
        is_own = process == number
        found.append({name: values.compress(is_own) for name, values in columns.items()})
    return found


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
    starts, ends = [content.start_ns], [content.start_ns + content.dur_ns]
    for at_ns in (content.moments.at_ns, content.memory.at_ns):
        starts.append(at_ns)
        ends.append(at_ns)
    if content.stacks is not None:
        samples = content.stacks.samples
        at_ns = samples["at_ns"]
        starts.append(at_ns)
        ends.append(at_ns + samples["weight_ns"] * samples["exact"])
    starts_ns = [int(one.min()) for one in starts if len(one)]
    if not starts_ns:
        return 0, 0
    end_ns = max(int(one.max()) for one in ends if len(one))
    # Threads that were there before the file began have the time 0.
    known_ns = [process.start_ns for process in content.processes]
    known_ns += [track.start_ns for track in content.tracks]
    return min(starts_ns + [one for one in known_ns if one]), end_ns
