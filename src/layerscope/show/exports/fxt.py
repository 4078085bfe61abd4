"""Fuchsia trace format for Perfetto: the quickest to write, a quarter of the size of JSON.

Little-endian words of 64 bits. A record begins with a word that holds its type in bits 0 to 3 and
its size in words in bits 4 to 15. Strings and threads are defined once and then named by small
numbers; when the numbers run out, they are given anew, and a block of spans that needs more than
there are is cut in two. Times are CLOCK_REALTIME.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from layerscope.show.exports import Exported
from layerscope.show.exports.trace_columns import Columns, Piece, TraceColumns, TraceThread
from layerscope.show.exports.trace_moments import (
    FlowEnds,
    Flows,
    Moment,
    arguments,
    counters,
    modules,
    moments,
)

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

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
# Flows that a block has room for, if every span has as many as the one with the most of them.
_FLOW_ROOM = 1 << 17
# Spans whose words are made at once: they stay in the cache of the processor.
_ROWS = 1 << 15
_COLUMNS = (
    "start_ns",
    "dur_ns",
    "layer",
    "kind",
    "name",
    "module",
    "step",
    "phase",
    "correlation",
    "sequence",
    "args",
    "line",
    "weight",
    "unfinished",
)
_PHASE_COLUMNS = ("load_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")

# Lists that are looked through from end to end for members without a number.
_FEW = 1 << 10

U64 = np.uint64


def write(reader: Reader, stream: IO[bytes], steps: range | None = None) -> Exported:
    """Write the recording as one trace."""
    trace = TraceColumns(reader, steps)
    writer = _FxtWriter(trace, stream)
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
        if len(self.of) < count:
            self.of = np.append(self.of, np.zeros(count - len(self.of), U64))
        if not count or (count < _FEW and self.of[:count].all()):
            return np.zeros(0, np.intp)
        codes = _short(codes)
        unknown = codes[self.of.take(codes, mode="clip") == 0]
        unknown = unknown[unknown >= 0]
        return np.unique(unknown) if len(unknown) else unknown

    def words(self, codes: np.ndarray, shift: int, more: int | np.uint64 = 0) -> np.ndarray:
        """The number of every code as a part of a word, of all codes if they are one. Where it has
        none, anything.
        """
        return (self.of << U64(shift) | U64(more)).take(_short(codes), mode="clip")


def _short(column: np.ndarray) -> np.ndarray:
    """A column that is one value, seen again and again, as that value: it counts for every row."""
    return column[:1] if column.strides == (0,) else column


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of the spans of a block: which of them have it, and its words."""

    has: np.ndarray
    words: list[np.ndarray | np.uint64]


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends of flows in a block by row: the number of the flow, the event, and how many stand
    before it in the row.

    `most`: how many a row has at most.
    """

    row: np.ndarray
    flow: np.ndarray
    event: np.ndarray
    rank: np.ndarray
    most: int

    @classmethod
    def of(cls, flows: list[FlowEnds]) -> _Ends:
        """Begins and ends together; of one row the begins first."""
        row, flow = (
            np.concatenate([getattr(ends, name) for ends in flows]) for name in ("row", "flow")
        )
        events = [_EVENT | kind << 16 | _FLOW_WORDS << 4 for kind in (_FLOW_BEGIN, _FLOW_END)]
        event = np.repeat(np.array(events, U64), [len(ends.row) for ends in flows])
        order = np.argsort(row, kind="stable")
        row = row[order]
        rank = np.arange(len(row)) - np.searchsorted(row, row)
        return cls(row, flow[order], event[order], rank, int(rank.max(initial=-1)) + 1)


class _FxtWriter:
    """Writes the records of one trace."""

    def __init__(self, trace: TraceColumns, stream: IO[bytes]) -> None:
        self.trace = trace
        self.stream = stream
        self._origin_ns = trace.origin_ns
        self._zero_ns = trace.realtime_ns or 0
        self._flows = Flows.of(trace)
        self._modules = modules(trace.reader)
        self.arguments = arguments(trace.reader)
        self._strings: dict[str, int] = {}
        self._threads: dict[int, int] = {}
        self._lists: defaultdict[str, _Numbers] = defaultdict(_Numbers)
        self._thread_numbers = _Numbers()
        self._known: dict[str, int] = {}
        self._category_of = np.zeros(0, np.int32)
        self._words, self._booleans = np.empty(0, U64), np.empty(0, bool)

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
            self.stream.write(
                struct.pack("<QQQ", _header(_THREAD, 3, number << 16), thread.pid, thread.tid)
            )
        return number

    def _numbered(self, part: Columns, lists: dict[str, Sequence[str]]) -> bool:
        """Give numbers to all strings and threads that a block needs. False: it needs more than
        there are.
        """
        for again in (False, True):
            if again:
                self._make_room(STRING_NUMBERS + 1)
                self._threads.clear()
                self._thread_numbers = _Numbers()
            wanting = {
                name: self._lists[name].wanting(part[name], len(texts))
                for name, texts in lists.items()
            }
            unknown = self._thread_numbers.wanting(part["thread"], len(self.trace.threads))
            fits = (
                len(self._strings) + sum(map(len, wanting.values())) + _ARGUMENTS <= STRING_NUMBERS
            )
            if fits and len(self._threads) + len(unknown) <= THREAD_NUMBERS:
                break
        else:
            return False
        for name, places in wanting.items():
            self._lists[name].of[places] = [
                self._string(lists[name][place]) for place in places.tolist()
            ]
        self._thread_numbers.of[unknown] = [self._thread(place) for place in unknown.tolist()]
        return True

    # -- spans -------------------------------------------------------------------------------------

    def spans(self) -> None:
        """Every span, and right after it the flows that begin or end with it."""
        for piece in self.trace.pieces(_COLUMNS):
            flows = self._flows.ends_in(piece.span)
            lists = {
                name: piece.columns[f"{name}.names"].tolist() for name in ("name", "phase", "line")
            }
            lists |= {
                "category": self._categories(piece),
                "module": self._modules.texts,
                "args": self.arguments.texts,
            }
            for first in range(0, len(piece.span), _ROWS):
                self._block(piece, slice(first, min(first + _ROWS, len(piece.span))), lists, flows)

    def _categories(self, piece: Piece) -> list[str]:
        """The categories so far. `_category_of` says which one a layer and a kind of this piece
        are.
        """
        pairs = [
            f"{layer},{kind}"
            for layer in piece.columns["layer.names"]
            for kind in piece.columns["kind.names"]
        ]
        self._category_of = np.array(
            [self._known.setdefault(pair, len(self._known)) for pair in pairs], np.int32
        )
        return list(self._known)

    def _block(
        self,
        piece: Piece,
        rows: slice,
        lists: dict[str, Sequence[str]],
        flows: tuple[FlowEnds, FlowEnds],
    ) -> None:
        """The records of some rows; of half of them at a time when they need too many numbers or
        too much room.
        """
        part = piece.part(rows)
        part["module"] = self._modules.places(part["module"])
        part["args"] = self.arguments.places(part["args"])
        part["category"] = self._category_of.take(
            part["layer"] * len(part["kind.names"]) + part["kind"]
        )
        count = rows.stop - rows.start
        ends = _Ends.of([ends.within(rows) for ends in flows])
        if (count == 1 or ends.most * count <= _FLOW_ROOM) and self._numbered(part, lists):
            self.stream.write(self._records(part, ends))
            return
        half = (rows.start + rows.stop) // 2
        self._block(piece, slice(rows.start, half), lists, flows)
        self._block(piece, slice(half, rows.stop), lists, flows)

    def _records(self, part: Columns, ends: _Ends) -> Any:
        """The words of all spans of a block and their flows.

        A table with a row for each span and a column for each word that some span has; what is
        there of it, row by row, are the records.
        """
        given = list(self._span_arguments(part))
        width = 3 + sum(len(argument.words) for argument in given)
        table, there = self._room(len(part["span"]), width + _FLOW_WORDS * ends.most)
        there[:, :width], there[:, width:] = True, False
        who = self._who(part)
        head = who | U64(_header(_EVENT, 3, _COMPLETE << 16))
        column = 2
        for argument in given:
            size = len(argument.words)
            more = U64(size << 4 | 1 << 20)
            if argument.has.all():
                head += more
            else:
                head += argument.has * more
                there[:, column : column + size] = argument.has[:, np.newaxis]
            for word in argument.words:
                table[:, column] = word
                column += 1
        start = self.at(part["start_ns"])
        table[:, 0], table[:, 1], table[:, width - 1] = head, start, start + part["dur_ns"]
        place = width + _FLOW_WORDS * ends.rank
        for word in (who[ends.row] | ends.event, start[ends.row], ends.flow + 1):
            table[ends.row, place] = word
            there[ends.row, place] = True
            place += 1
        words = table.reshape(-1)
        return words.data if there.all() else words.take(np.flatnonzero(there)).data

    def _room(self, rows: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """A table of words and one of booleans, in the same memory each time: fresh memory costs
        more than the work.
        """
        size = rows * width
        if len(self._words) < size:
            self._words, self._booleans = np.empty(size, U64), np.empty(size, bool)
        return self._words[:size].reshape(rows, width), self._booleans[:size].reshape(rows, width)

    def _who(self, part: Columns) -> np.ndarray:
        """What the first words of the events of each span share: thread, category and name."""
        who = self._lists["name"].words(part["name"], 48)
        who |= self._lists["category"].words(part["category"], 32)
        who |= self._thread_numbers.words(part["thread"], 24)
        return who

    def _span_arguments(self, part: Columns) -> Iterator[_Argument]:
        """The arguments that some spans of a block have."""
        for name in ("module", "line", "phase", "args"):
            has = part[name] >= 0
            if has.any():
                yield _Argument(
                    has, [self._lists[name].words(part[name], 32, self._head(name, _ARG_STRING))]
                )
        for name, least in (("step", 0), ("sequence", 0), ("weight", 2)):
            has = part[name] >= least
            if has.any():
                yield _Argument(
                    has, [self._head(name, _ARG_INT32) | part[name].astype(U64) << U64(32)]
                )
        if part["unfinished"].any():
            yield _Argument(
                part["unfinished"], [self._head("unfinished", _ARG_BOOL) | U64(1 << 32)]
            )
        launched = part["correlation"]
        if (launched >= 0).any():
            yield _Argument(
                launched >= 0, [self._head("correlation", _ARG_INT64, 2), launched.astype(U64)]
            )

    def _head(self, name: str, kind: int, words: int = 1) -> np.uint64:
        """The first word of an argument without its value."""
        return U64(kind | words << 4 | self._string(name) << 16)

    # -- the rest ----------------------------------------------------------------------------------

    def steps(self) -> None:
        """The steps, on a track of their own in each process."""
        for first in range(0, len(self.trace.steps), _ROWS):
            self._some_steps(self.trace.steps[first : first + _ROWS])

    def _some_steps(self, rows: list[dict[str, Any]]) -> None:
        self._make_room(_ARGUMENTS + len(rows))
        names = np.array([self._string(f"step {row['step']}") for row in rows], U64)
        rules = np.array([self._string(row["rule"]) for row in rows], U64)
        threads = [self.trace.threads[self.trace.steps_thread(row["process"])] for row in rows]
        start_ns = np.array([row["start_ns"] for row in rows], np.int64)
        dur_ns = np.array([row["dur_ns"] for row in rows], np.int64)
        numbers = ("step", *_PHASE_COLUMNS)
        words = np.empty((len(rows), 6 + 2 * len(numbers)), U64)
        arguments = 1 + len(numbers)
        more = _COMPLETE << 16 | arguments << 20 | self._string("steps") << 32
        words[:, 0] = names << U64(48) | U64(_header(_EVENT, words.shape[1], more))
        words[:, 1] = self.at(start_ns)
        words[:, -1] = self.at(start_ns + dur_ns)
        words[:, 2] = [thread.pid for thread in threads]
        words[:, 3] = [thread.tid for thread in threads]
        words[:, 4] = self._head("rule", _ARG_STRING) | rules << U64(32)
        for column, name in enumerate(numbers):
            words[:, 5 + 2 * column] = self._head(name, _ARG_INT64, 2)
            words[:, 6 + 2 * column] = np.array([row[name] for row in rows], np.int64)
        self.stream.write(words.data)

    def moment(self, moment: Moment) -> None:
        """A mark or a loss."""
        self._make_room(_ARGUMENTS)
        main = TraceThread(moment.pid, moment.pid, "", 0)
        thread = main if moment.thread is None else self.trace.threads[moment.thread]
        given = [(key, value) for key, value in moment.arguments.items() if value is not None]
        arguments = b"".join(self._argument(key, value) for key, value in given)
        more = (
            _INSTANT << 16
            | len(given) << 20
            | self._string(moment.category) << 32
            | self._string(moment.name) << 48
        )
        head = _header(_EVENT, (4 * 8 + len(arguments)) // 8, more)
        self.stream.write(
            struct.pack("<4Q", head, self.at(moment.at_ns), thread.pid, thread.tid) + arguments
        )

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
        self.stream.write(
            struct.pack("<QQ", _header(_KERNEL_OBJECT, 2 + len(of) // 8, more), number) + of
        )
