"""Spans, flows and counters for Perfetto in Fuchsia trace format, the quickest to write and a quarter of JSON.

Little-endian words of 64 bits. A record begins with a word that holds its type in bits 0 to 3 and its size in words
in bits 4 to 15. Strings and threads are defined once and then named by small numbers; when the numbers run out,
they are given anew, and a block of spans that needs more than there are is cut in two. Times are CLOCK_REALTIME.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from layerscope.show.exports import Exported
from layerscope.show.exports.trace_columns import Columns, Piece, Trace, TraceThread
from layerscope.show.exports.trace_moments import FlowEnds, Flows, Moment, arguments, counters, modules, moments

if TYPE_CHECKING:
    from layerscope.store.reader import Reader

SUFFIXES = (".fxt",)
OPEN = "open it in https://ui.perfetto.dev (the file stays on your machine)"

_MAGIC = 0x0016547846040010
_TICKS_PER_SECOND = 10**9
# Types of records, of events, of arguments, of kernel objects.
_INITIALIZATION, _STRING, _THREAD, _EVENT, _KERNEL_OBJECT = 1, 2, 3, 4, 7
_INSTANT, _COUNTER, _COMPLETE, _FLOW_BEGIN, _FLOW_END = 0, 1, 4, 8, 10
_ARG_INT32, _ARG_INT64, _ARG_STRING, _ARG_KOID, _ARG_BOOL = 1, 3, 6, 8, 9
_OBJECT_PROCESS, _OBJECT_THREAD = 1, 2
# Number 0 is the empty string, or a thread that is not in the table.
STRING_NUMBERS, THREAD_NUMBERS = 0x7FFF, 0xFF
# Of a block's strings, these are the names of arguments.
_ARGUMENTS = 16
# A record has at most 4,095 words.
_STRING_BYTES = 32_000
_FLOW_WORDS = 3
# Spans whose words are made at once: they stay in the cache of the processor.
_ROWS = 1 << 14
_COLUMNS = (
    "start_ns", "dur_ns", "layer", "kind", "name", "module", "step", "phase", "correlation", "seq", "args", "line",
    "weight", "unfinished",
)  # fmt: skip
_PHASE_COLUMNS = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")

U64 = np.uint64


def write(reader: Reader, stream: IO[bytes], steps: range | None = None) -> Exported:
    """Write the recording as one trace."""
    trace = Trace(reader, steps)
    writer = _Writer(trace, stream)
    stream.write(struct.pack("<QQQ", _MAGIC, _header(_INITIALIZATION, 2), _TICKS_PER_SECOND))
    writer.spans()
    writer.steps()
    writer.counters()
    for moment in moments(trace, writer.arguments):
        writer.moment(moment)
    writer.objects()
    return Exported(trace.spans, trace.crossing, trace.notes)


def _header(kind: int, words: int, more: int = 0) -> int:
    return kind | words << 4 | more


@dataclass(slots=True)
class _Numbers:
    """Numbers for the members of some list, which the file knows by them until they run out."""

    of: np.ndarray = field(default_factory=lambda: np.zeros(0, U64))

    def wanting(self, codes: np.ndarray, count: int) -> np.ndarray:
        """Which of `count` members are used by `codes` and have no number. Code -1 is nothing."""
        if not count:
            return np.zeros(0, np.intp)
        if len(self.of) < count:
            self.of = np.append(self.of, np.zeros(count - len(self.of), U64))
        used = np.bincount(codes[codes >= 0], minlength=count) if len(codes) else np.zeros(count, np.intp)
        return np.flatnonzero((used > 0) & (self.of[:count] == 0))


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of the spans of a block: which of them have it, None for all, and its words."""

    has: np.ndarray | None
    words: list[np.ndarray]


class _Writer:
    """Writes the records of one trace."""

    def __init__(self, trace: Trace, stream: IO[bytes]) -> None:
        self.trace = trace
        self.stream = stream
        self._origin_ns = trace.origin_ns
        self._zero_ns = trace.realtime_ns or 0
        self._flows = Flows.of(trace)
        self._modules = modules(trace.reader)
        self.arguments = arguments(trace.reader)
        self._strings: dict[str, int] = {}
        self._threads: dict[int, int] = {}
        self._lists: dict[str, _Numbers] = {}
        self._thread_numbers = _Numbers()

    def at(self, at_ns: Any) -> Any:
        """A moment of the run, or a column of them, as the file has it."""
        return at_ns - self._origin_ns + self._zero_ns

    # -- strings and threads -----------------------------------------------------------------------

    def _string(self, words: str) -> int:
        """The number of a string; it is defined where it has none."""
        if not words:
            return 0
        number = self._strings.get(words)
        if number is None:
            number = self._strings[words] = len(self._strings) + 1
            data = words.encode()[:_STRING_BYTES].decode("utf-8", "ignore").encode()
            size = (len(data) + 7) // 8
            head = _header(_STRING, 1 + size, number << 16 | len(data) << 32)
            self.stream.write(struct.pack("<Q", head) + data.ljust(size * 8, b"\0"))
        return number

    def _make_room(self, strings: int) -> None:
        """Let the next strings have numbers, and none of them the number of another."""
        if len(self._strings) + strings > STRING_NUMBERS:
            self._strings.clear()
            self._lists.clear()

    def _thread(self, place: int) -> int:
        """The number of a thread of the trace; it is defined where it has none."""
        number = self._threads.get(place)
        if number is None:
            number = self._threads[place] = len(self._threads) + 1
            thread = self.trace.threads[place]
            self.stream.write(struct.pack("<QQQ", _header(_THREAD, 3, number << 16), thread.pid, thread.tid))
        return number

    def _numbered(self, lists: dict[str, tuple[np.ndarray, Sequence[str]]], threads: np.ndarray) -> bool:
        """Give numbers to all strings and threads that a block needs. False: it needs more than there are."""
        for again in (False, True):
            if again:
                self._make_room(STRING_NUMBERS + 1)
                self._threads.clear()
                self._thread_numbers = _Numbers()
            wanting = {
                name: self._lists.setdefault(name, _Numbers()).wanting(codes, len(texts))
                for name, (codes, texts) in lists.items()
            }
            unknown = self._thread_numbers.wanting(threads, len(self.trace.threads))
            fits = len(self._strings) + sum(map(len, wanting.values())) + _ARGUMENTS <= STRING_NUMBERS
            if fits and len(self._threads) + len(unknown) <= THREAD_NUMBERS:
                break
        else:
            return False
        for name, places in wanting.items():
            texts = lists[name][1]
            self._lists[name].of[places] = [self._string(texts[place]) for place in places.tolist()]
        self._thread_numbers.of[unknown] = [self._thread(place) for place in unknown.tolist()]
        return True

    # -- spans -------------------------------------------------------------------------------------

    def spans(self) -> None:
        """Every span, and right after it the flows that begin or end with it."""
        for piece in self.trace.pieces(_COLUMNS):
            flows = self._flows.ends_in(piece.span)
            for first in range(0, len(piece.span), _ROWS):
                self._block(piece, slice(first, min(first + _ROWS, len(piece.span))), flows)

    def _block(self, piece: Piece, rows: slice, flows: tuple[FlowEnds, FlowEnds]) -> None:
        """The records of some rows; of half of them at a time when they need too many numbers."""
        part = piece.part(rows)
        part["module"] = self._modules.places(part["module"])
        part["args"] = self.arguments.places(part["args"])
        part["category"] = part["layer"] * len(part["kind.names"]) + part["kind"]
        categories = [f"{layer},{kind}" for layer in part["layer.names"] for kind in part["kind.names"]]
        lists: dict[str, tuple[np.ndarray, Sequence[str]]] = {
            "name": (part["name"], part["name.names"].tolist()),
            "category": (part["category"], categories),
            "phase": (part["phase"], part["phase.names"].tolist()),
            "line": (part["line"], part["line.names"].tolist()),
            "module": (part["module"], self._modules.texts),
            "args": (part["args"], self.arguments.texts),
        }
        if self._numbered(lists, part["thread"]):
            self.stream.write(self._records(part, [ends.within(rows) for ends in flows]))
            return
        half = (rows.start + rows.stop) // 2
        self._block(piece, slice(rows.start, half), flows)
        self._block(piece, slice(half, rows.stop), flows)

    def _records(self, part: Columns, flows: list[FlowEnds]) -> Any:
        """The words of all spans of a block and their flows."""
        count = len(part["span"])
        given = [argument for argument in self._span_arguments(part) if argument.has is None or argument.has.any()]
        arguments = np.full(count, sum(argument.has is None for argument in given), np.int64)
        words = np.full(count, 3 + sum(len(argument.words) for argument in given if argument.has is None), np.int64)
        for argument in given:
            if argument.has is not None:
                arguments += argument.has
                words += argument.has * len(argument.words)
        who = self._who(part)
        flow_count = sum(np.bincount(ends.row, minlength=count) for ends in flows)
        behind = np.cumsum(words + _FLOW_WORDS * flow_count)
        at = behind - words - _FLOW_WORDS * flow_count
        out = np.empty(int(behind[-1]), U64)
        start = self.at(part["start_ns"])
        out[at] = who | (_EVENT | _COMPLETE << 16 | words << 4 | arguments << 20).astype(U64)
        out[at + 1] = start
        place = at + 2
        for argument in given:
            rows = slice(None) if argument.has is None else np.flatnonzero(argument.has)
            for word in argument.words:
                out[place[rows]] = word if argument.has is None else word[rows]
                place[rows] += 1
        out[place] = start + part["dur_ns"]
        place += 1
        for ends, event in zip(flows, (_FLOW_BEGIN, _FLOW_END), strict=True):
            where = place[ends.row] + _FLOW_WORDS * ends.rank()
            out[where] = who[ends.row] | U64(_EVENT | event << 16 | _FLOW_WORDS << 4)
            out[where + 1] = start[ends.row]
            out[where + 2] = ends.flow + 1
            place += _FLOW_WORDS * np.bincount(ends.row, minlength=count)
        return out.data

    def _who(self, part: Columns) -> np.ndarray:
        """What the first words of the events of each span share: thread, category and name."""
        thread = self._thread_numbers.of[part["thread"]] << U64(24)
        category = self._lists["category"].of[part["category"]] << U64(32)
        who: np.ndarray = thread | category | self._lists["name"].of[part["name"]] << U64(48)
        return who

    def _span_arguments(self, part: Columns) -> list[_Argument]:
        arguments = [self._listed(part, name) for name in ("module", "line", "phase", "args")]
        for name, has in (("step", part["step"] >= 0), ("seq", part["seq"] >= 0), ("weight", part["weight"] > 1)):
            arguments.append(_Argument(has, [self._head(name, _ARG_INT32) | part[name].astype(U64) << U64(32)]))
        unfinished = np.full(len(part["span"]), self._head("unfinished", _ARG_BOOL) | U64(1 << 32))
        arguments.append(_Argument(part["unfinished"], [unfinished]))
        launched = part["correlation"]
        head = np.full(len(launched), self._head("correlation", _ARG_INT64, 2))
        return [*arguments, _Argument(launched >= 0, [head, launched.astype(U64)])]

    def _listed(self, part: Columns, name: str) -> _Argument:
        """An argument that is one of the texts of a list."""
        numbers = self._lists[name].of
        if not len(numbers):
            return _Argument(np.zeros(len(part["span"]), bool), [])
        return _Argument(part[name] >= 0, [self._head(name, _ARG_STRING) | numbers[part[name]] << U64(32)])

    def _head(self, name: str, kind: int, words: int = 1) -> np.uint64:
        """The first word of an argument without its value."""
        return U64(kind | words << 4 | self._string(name) << 16)

    # -- the rest ----------------------------------------------------------------------------------

    def steps(self) -> None:
        """The steps, on a track of their own in each process."""
        for row in self.trace.steps:
            self._make_room(_ARGUMENTS)
            thread = self.trace.threads[self.trace.steps_thread(row["process"])]
            about = {name: row[name] for name in ("step", "rule", *_PHASE_COLUMNS)}
            end = struct.pack("<Q", self.at(row["start_ns"] + row["dur_ns"]))
            self._event(_COMPLETE, thread, row["start_ns"], "steps", f"step {row['step']}", about, end)

    def moment(self, moment: Moment) -> None:
        """A mark or a loss."""
        self._make_room(_ARGUMENTS)
        main = TraceThread(moment.pid, moment.pid, "", 0)
        thread = main if moment.thread is None else self.trace.threads[moment.thread]
        self._event(_INSTANT, thread, moment.at_ns, moment.category, moment.name, moment.arguments)

    def _event(
        self, event: int, thread: TraceThread, at_ns: int, category: str, name: str,
        about: dict[str, int | str | None], end: bytes = b"",
    ) -> None:  # fmt: skip
        """One event of a thread that is written out in it."""
        given = [(key, value) for key, value in about.items() if value is not None]
        arguments = b"".join(self._argument(key, value) for key, value in given)
        more = event << 16 | len(given) << 20 | self._string(category) << 32 | self._string(name) << 48
        head = _header(_EVENT, (4 * 8 + len(arguments) + len(end)) // 8, more)
        self.stream.write(struct.pack("<4Q", head, self.at(at_ns), thread.pid, thread.tid) + arguments + end)

    def _argument(self, name: str, value: int | str) -> bytes:
        if isinstance(value, str):
            return struct.pack("<Q", int(self._head(name, _ARG_STRING)) | self._string(value) << 32)
        return struct.pack("<Qq", int(self._head(name, _ARG_INT64, 2)), value)

    def counters(self) -> None:
        """The counters of the processes."""
        columns = counters(self.trace)
        self._make_room(_ARGUMENTS + len(columns["name.names"]))
        names = np.array([self._string(name) for name in columns["name.names"]], U64)
        words = np.empty((len(columns["at_ns"]), 7), U64)
        if not len(words):
            return
        words[:, 0] = names[columns["name"]] << U64(48) | U64(
            _header(_EVENT, 7, _COUNTER << 16 | 1 << 20 | self._string("counters") << 32)
        )
        words[:, 1] = self.at(columns["at_ns"])
        words[:, 2] = words[:, 3] = columns["pid"]
        words[:, 4] = self._head("value", _ARG_INT64, 2)
        words[:, 5] = columns["value"]
        words[:, 6] = 0
        self.stream.write(words.data)

    def objects(self) -> None:
        """What processes and threads are called."""
        for process in self.trace.processes.values():
            self._object(_OBJECT_PROCESS, process.pid, process.name)
        for thread in self.trace.threads:
            self._object(_OBJECT_THREAD, thread.tid, thread.name, thread.pid)

    def _object(self, kind: int, number: int, name: str, process: int | None = None) -> None:
        self._make_room(2)
        of = b""
        if process is not None:
            of = struct.pack("<QQ", int(self._head("process", _ARG_KOID, 2)), process)
        more = kind << 16 | self._string(name) << 24 | (process is not None) << 40
        self.stream.write(struct.pack("<QQ", _header(_KERNEL_OBJECT, 2 + len(of) // 8, more), number) + of)
