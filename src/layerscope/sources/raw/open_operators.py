"""Which operators were open on the threads of a program at some moment: for calls in logs that do
not name their thread.

Used only where the user asked for a layer that needs it: it holds every span in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from layerscope.model.distinct import distinct
from layerscope.model.layers import LAYER_OF_KIND, OPERATORS, PRIMITIVES, RANGES, SPAN_LAYERS
from layerscope.rawfile import layout
from layerscope.sources.imported import Imported
from layerscope.sources.process import joined_rows
from layerscope.sources.raw.decoder import Decoder
from layerscope.sources.raw.late_spans import LateSpans
from layerscope.sources.raw.process import RawProcess

_SPAN = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("name", "<u4"),
        ("args", "<u4"),
        ("track", "<i4"),
        ("depth", "<i4"),
        ("submitter", "<i4"),
        ("kind", "u1"),
    ]
)
_LAYERS = np.array(LAYER_OF_KIND, np.int8)
_OPERATORS, _PRIMITIVES, _RANGES = (
    SPAN_LAYERS.index(layer) for layer in (OPERATORS, PRIMITIVES, RANGES)
)
# A call must begin after what is around it even when both were rounded once more.
MARGIN_NS = 2


class Around(Struct):
    """For some calls: how many spans are open around each, the bounds of the innermost, whether one
    may have asked.
    """

    depth: np.ndarray
    from_ns: np.ndarray
    until_ns: np.ndarray
    in_asking: np.ndarray

    @classmethod
    def of_nothing(cls, count: int) -> Around:
        """No span is open around any of so many calls."""
        always_ns = np.iinfo(np.int64).max
        return cls(
            depth=np.zeros(count, np.int32),
            from_ns=np.zeros(count, np.int64),
            until_ns=np.full(count, always_ns),
            in_asking=np.zeros(count, np.bool_),
        )


class ThreadSpans(Struct):
    """The spans of one thread by depth: start, end, may it ask for calls; each in the order of
    starts.
    """

    track: int
    levels: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def around(self, start_ns: np.ndarray, end_ns: np.ndarray, error_ns: int) -> Around:
        """What is around calls whose times are known with this error."""
        count = len(start_ns)
        found = Around.of_nothing(count)
        latest_start_ns = start_ns + error_ns
        earliest_end_ns = end_ns - error_ns
        for level, (start, end, is_asking) in enumerate(self.levels):
            at = np.searchsorted(start, latest_start_ns, side="right") - 1
            rows = np.flatnonzero((at >= 0) & (found.depth == level))
            at = at[rows]
            holds = end[at] >= earliest_end_ns[rows]
            rows, at = rows[holds], at[holds]
            found.depth[rows] = level + 1
            found.from_ns[rows] = start[at] + MARGIN_NS
            found.until_ns[rows] = end[at]
            found.in_asking[rows] |= is_asking[at]
        return found


class Owners(Struct):
    """For some calls: whose they are and where they lie. `process`: a place in the list of
    processes, -1: not known; `track`: its own number; `depth`: of the call; its times within the
    innermost span around it.
    """

    process: np.ndarray
    track: np.ndarray
    depth: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray

    @classmethod
    def unknown(cls, start_ns: np.ndarray, end_ns: np.ndarray) -> Owners:
        """Of calls with these times, of which nothing is known so far."""
        count = len(start_ns)
        process = np.full(count, -1, np.int32)
        track = np.full(count, -1, np.int32)
        depth = np.zeros(count, np.int32)
        return cls(process, track, depth, start_ns, end_ns)


class RecordedProcess(Struct):
    """One raw file, read to its end. `spans`: columns of all spans in it, in ns of the run."""

    decoder: Decoder
    spans: np.ndarray

    @property
    def is_windowed(self) -> bool:
        """Whether only windows of it were recorded."""
        return bool(len(self.decoder.window_marks()[0]))

    def was_recorded(self, at_ns: np.ndarray) -> np.ndarray:
        """Which of these moments lie in what was recorded of it."""
        _, marks = self.decoder.window_marks()
        if not len(marks):
            return np.ones(len(at_ns), np.bool_)
        order = np.argsort(marks["start"], kind="stable")
        marks = marks[order]
        marks_ns = marks["start"].astype(np.int64)
        before = np.searchsorted(marks_ns, at_ns, side="right") - 1
        is_opened = marks["module"][before] == layout.MARK_OPENED
        inside: np.ndarray = (before >= 0) & is_opened
        return inside

    @property
    def has_operators(self) -> bool:
        """Whether it ran an operator."""
        layer = _LAYERS[self.spans["kind"]]
        is_operator = layer == _OPERATORS
        return bool(is_operator.any())

    @property
    def has_primitives(self) -> bool:
        """Whether the program's libraries reported primitives by themselves."""
        layer = _LAYERS[self.spans["kind"]]
        is_primitive = layer == _PRIMITIVES
        return bool(is_primitive.any())

    @property
    def has_problems_of_primitives(self) -> bool:
        """Whether they told more of one than its kind."""
        layer = _LAYERS[self.spans["kind"]]
        arguments = self.spans["args"][layer == _PRIMITIVES]
        return bool(arguments.any())

    def threads(self) -> list[ThreadSpans]:
        """The threads that ran an operator; of a program without operators, those that were in a
        range.
        """
        spans = self.spans
        asking_layer = _OPERATORS if self.has_operators else _RANGES
        is_asking = _LAYERS[spans["kind"]] == asking_layer
        asking_tracks = distinct(spans["track"][is_asking])
        threads = []
        for track in asking_tracks.tolist():
            of_thread = np.flatnonzero(spans["track"] == track)
            depth = spans["depth"][of_thread]
            thread = ThreadSpans(track)
            for level in range(int(depth.max()) + 1):
                rows = of_thread[depth == level]
                order = np.argsort(spans["start"][rows], kind="stable")
                rows = rows[order]
                start, end = spans["start"][rows], spans["end"][rows]
                thread.levels.append((start, end, is_asking[rows]))
            threads.append(thread)
        return threads

    @property
    def new_track(self) -> int:
        """A number that no thread of the process has."""
        return max(self.decoder.tracks, default=0) + 1


class ProcessReader:
    """Reads what a process recorded on the clock of its host, beside whoever else reads it, while
    its raw file grows. `recorded`: all of it so far, what is still open comes with the end.
    """

    def __init__(self, process: RawProcess) -> None:
        self._twin = process.twin()
        self.recorded = RecordedProcess(self._twin.decoder, np.zeros(0, _SPAN))

    def read(self, most_spans: float = np.inf) -> np.ndarray:
        """Read on; what came. Where that is more spans than this it stops."""
        decoder = self._twin.decoder
        parts = []
        for _ in self._twin.pieces():
            parts += [_compact(rows) for _, rows in decoder.batches()]
            if decoder.records > most_spans:
                break
        return self._add(parts)

    def finish(self) -> np.ndarray:
        """Nothing more will come; what was left, and what never ended."""
        return self._add([_compact(rows) for _, rows in self._twin.decoder.batches(last=True)])

    def forget(self, before_ns: int) -> None:
        """Leave out spans that ended before this."""
        spans = self.recorded.spans
        self.recorded.spans = spans.compress(spans["end"] >= before_ns)

    def _add(self, parts: list[np.ndarray]) -> np.ndarray:
        new = joined_rows([np.zeros(0, _SPAN), *parts])
        self.recorded.spans = joined_rows([self.recorded.spans, new])
        return new


def read_processes(
    processes: Sequence[RawProcess], most_spans: int
) -> list[RecordedProcess] | None:
    """All that these processes recorded, on the clock of their host; None where they have more
    spans than `most_spans`.
    """
    recorded = []
    for process in processes:
        reader = ProcessReader(process)
        reader.read(most_spans)
        count = reader.recorded.decoder.records
        if count > most_spans:
            return None
        reader.finish()
        most_spans -= count
        recorded.append(reader.recorded)
    return recorded


def _compact(rows: np.ndarray) -> np.ndarray:
    spans = np.zeros(len(rows), _SPAN)
    for name in _SPAN.names or ():
        spans[name] = rows[name]
    return spans


def owners(
    processes: list[RecordedProcess],
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    is_timed: np.ndarray,
    error_ns: int,
) -> Owners:
    """The one thread that had an operator open around each call, or a range where the process ran
    no operator; where there are none or several, nobody knows.

    The times of the calls are known with this error; those that are not `is_timed` are not looked
    at.
    """
    count = len(start_ns)
    found = Owners.unknown(start_ns, end_ns)
    candidates = np.zeros(count, np.int32)
    from_ns, until_ns = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for number, process in enumerate(processes):
        for thread in process.threads():
            around = thread.around(start_ns, end_ns, error_ns)
            mine = np.flatnonzero(around.in_asking & is_timed)
            candidates[mine] += 1
            found.process[mine], found.track[mine], found.depth[mine] = (
                number,
                thread.track,
                around.depth[mine],
            )
            from_ns[mine], until_ns[mine] = around.from_ns[mine], around.until_ns[mine]
    is_known = candidates == 1
    found.process[~is_known] = -1
    found.start_ns = np.where(is_known, np.clip(start_ns, from_ns, until_ns), start_ns)
    found.end_ns = np.where(is_known, np.clip(end_ns, found.start_ns, until_ns), end_ns)
    return found


def spans_by_process(imported: Imported, found: Owners, main: int) -> dict[int, LateSpans]:
    """The calls of a log by process. Those of nobody get tracks of their own in `main`, as the log
    has them.
    """
    is_known = found.process >= 0
    process = np.where(is_known, found.process, main)
    track = np.where(is_known, found.track, -1 - imported.track)
    depth = np.where(is_known, found.depth, 0) + imported.depth
    texts = [*imported.names, *imported.args_texts]
    late = {}
    for number in distinct(process).tolist():
        rows = np.flatnonzero(process == number)
        args = imported.args[rows]
        late[number] = LateSpans(
            track=track[rows],
            start_ns=found.start_ns[rows],
            end_ns=found.end_ns[rows],
            depth=depth[rows],
            kind=imported.kind[rows],
            name=imported.name[rows],
            args=np.where(args >= 0, args + len(imported.names), -1),
            texts=texts,
        )
    return late
