"""Fuchsia trace format for Perfetto: the quickest to write, a quarter of the size of JSON.

Little-endian words of 64 bits. A record begins with a word that holds its type in bits 0 to 3 and
its size in words in bits 4 to 15. Strings and threads are defined once and then named by small
numbers; when the numbers run out, they are given anew, and a block of spans that needs more than
there are is cut in two. Times are CLOCK_REALTIME.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from layerscope.show.exports import Exported
from layerscope.show.exports.fxt_words import (
    EVENT,
    FLOW_WORDS,
    U64,
    FlowWords,
    MemberNumbers,
    SpanArgument,
    header,
)
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
_INITIALIZATION, _STRING, _THREAD, _KERNEL_OBJECT = 1, 2, 3, 7
_INSTANT, _COUNTER, _COMPLETE = 0, 1, 4
_ARG_INT32, _ARG_INT64, _ARG_STRING, _ARG_KOID, _ARG_BOOL = 1, 3, 6, 8, 9
_OBJECT_PROCESS, _OBJECT_THREAD = 1, 2
# Number 0 is the empty string, or a thread that is not in the table.
STRING_NUMBERS, THREAD_NUMBERS = 0x7FFF, 0xFF
# Of a block's strings, these are the names of arguments.
_ARGUMENTS = 16
# A record has at most 4,095 words.
_STRING_BYTES = 32_000
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
_STEP_NUMBERS = ("step", *_PHASE_COLUMNS)


def write(reader: Reader, stream: IO[bytes], steps: range | None = None) -> Exported:
    """Write the recording as one trace."""
    trace = TraceColumns(reader, steps)
    writer = _FxtWriter(trace, stream)
    stream.write(struct.pack("<QQQ", _MAGIC, header(_INITIALIZATION, 2), _TICKS_PER_SECOND))
    writer.spans()
    writer.steps()
    writer.counters()
    for moment in moments(trace, writer.arguments):
        writer.moment(moment)
    writer.objects()
    return Exported(trace.spans, trace.crossing, trace.notes)


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
        self._lists: defaultdict[str, MemberNumbers] = defaultdict(MemberNumbers)
        self._thread_numbers = MemberNumbers()
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
            head = header(_STRING, 1 + size, number << 16 | len(data) << 32)
            self.stream.write(struct.pack("<Q", head) + data.ljust(size * 8, b"\0"))
        return number

    def _string_numbers(self, texts: Iterable[str]) -> np.ndarray:
        numbers = [self._string(text) for text in texts]
        return np.array(numbers, U64)

    def _event_heads(
        self, names: np.ndarray, width: int, kind: int, arguments: int, category: str
    ) -> np.ndarray:
        """The first words of events of a kind that have `width` words each."""
        more = kind << 16 | arguments << 20 | self._string(category) << 32
        head = U64(header(EVENT, width, more))
        return names << U64(48) | head

    def _make_room(self, strings: int) -> None:
        """Let the next strings have numbers, and none of them the number of another."""
        if len(self._strings) + strings > STRING_NUMBERS:
            self._strings.clear()
            self._lists.clear()

    def _thread(self, place: int) -> int:
        """The number of a thread of the trace; it is defined where it has none."""
        known = self._threads
        number = known.get(place)
        if number is None:
            number = len(known) + 1
            known[place] = number
            thread = self.trace.threads[place]
            self.stream.write(
                struct.pack("<QQQ", header(_THREAD, 3, number << 16), thread.pid, thread.tid)
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
                self._thread_numbers = MemberNumbers()
            wanting = {
                name: self._lists[name].wanting(part[name], len(texts))
                for name, texts in lists.items()
            }
            unknown = self._thread_numbers.wanting(part["thread"], len(self.trace.threads))
            more_strings = sum(map(len, wanting.values())) + _ARGUMENTS
            strings = len(self._strings) + more_strings
            threads = len(self._threads) + len(unknown)
            if strings <= STRING_NUMBERS and threads <= THREAD_NUMBERS:
                break
        else:
            return False
        for name, places in wanting.items():
            texts = lists[name]
            numbers = [self._string(texts[place]) for place in places.tolist()]
            self._lists[name].of[places] = numbers
        numbers = [self._thread(place) for place in unknown.tolist()]
        self._thread_numbers.of[unknown] = numbers
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
            rows = len(piece.span)
            for first in range(0, rows, _ROWS):
                end = min(first + _ROWS, rows)
                self._block(piece, slice(first, end), lists, flows)

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
        ends = FlowWords.of([ends.within(rows) for ends in flows])
        if (count == 1 or ends.most * count <= _FLOW_ROOM) and self._numbered(part, lists):
            self.stream.write(self._records(part, ends))
            return
        half = (rows.start + rows.stop) // 2
        self._block(piece, slice(rows.start, half), lists, flows)
        self._block(piece, slice(half, rows.stop), lists, flows)

    def _records(self, part: Columns, ends: FlowWords) -> Any:
        """The words of all spans of a block and their flows.

        A table with a row for each span and a column for each word that some span has; what is
        there of it, row by row, are the records.
        """
        given = list(self._span_arguments(part))
        width = 3 + sum(len(argument.words) for argument in given)
        table, there = self._room(len(part["span"]), width + FLOW_WORDS * ends.most)
        there[:, :width] = True
        there[:, width:] = False
        who = self._who(part)
        head = who | U64(header(EVENT, 3, _COMPLETE << 16))
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
        table[:, 0] = head
        table[:, 1] = start
        table[:, width - 1] = start + part["dur_ns"]
        place = width + FLOW_WORDS * ends.rank
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
            self._words = np.empty(size, U64)
            self._booleans = np.empty(size, bool)
        words, booleans = self._words[:size], self._booleans[:size]
        return words.reshape(rows, width), booleans.reshape(rows, width)

    def _who(self, part: Columns) -> np.ndarray:
        """What the first words of the events of each span share: thread, category and name."""
        who = self._lists["name"].words(part["name"], 48)
        who |= self._lists["category"].words(part["category"], 32)
        who |= self._thread_numbers.words(part["thread"], 24)
        return who

    def _span_arguments(self, part: Columns) -> Iterator[SpanArgument]:
        """The arguments that some spans of a block have."""
        for name in ("module", "line", "phase", "args"):
            has = part[name] >= 0
            if has.any():
                yield SpanArgument(
                    has, [self._lists[name].words(part[name], 32, self._head(name, _ARG_STRING))]
                )
        for name, least in (("step", 0), ("sequence", 0), ("weight", 2)):
            has = part[name] >= least
            if has.any():
                yield SpanArgument(
                    has, [self._head(name, _ARG_INT32) | part[name].astype(U64) << U64(32)]
                )
        if part["unfinished"].any():
            yield SpanArgument(
                part["unfinished"], [self._head("unfinished", _ARG_BOOL) | U64(1 << 32)]
            )
        launched = part["correlation"]
        if (launched >= 0).any():
            yield SpanArgument(
                launched >= 0, [self._head("correlation", _ARG_INT64, 2), launched.astype(U64)]
            )

    def _head(self, name: str, kind: int, words: int = 1) -> np.uint64:
        """The first word of an argument without its value."""
        size = words << 4
        string = self._string(name) << 16
        return U64(kind | size | string)

    # -- the rest ----------------------------------------------------------------------------------

    def steps(self) -> None:
        """The steps, on a track of their own in each process."""
        for first in range(0, len(self.trace.steps), _ROWS):
            self._some_steps(self.trace.steps[first : first + _ROWS])

    def _some_steps(self, rows: list[dict[str, Any]]) -> None:
        self._make_room(_ARGUMENTS + len(rows))
        names = self._string_numbers(f"step {row['step']}" for row in rows)
        rules = self._string_numbers(row["rule"] for row in rows)
        start_ns = _numbers_in(rows, "start_ns")
        end_ns = start_ns + _numbers_in(rows, "dur_ns")
        width = 6 + 2 * len(_STEP_NUMBERS)
        arguments = 1 + len(_STEP_NUMBERS)
        words = np.empty((len(rows), width), U64)
        words[:, 0] = self._event_heads(names, width, _COMPLETE, arguments, "steps")
        words[:, 1] = self.at(start_ns)
        words[:, 2:4] = self._threads_of_steps(rows)
        words[:, 4] = self._head("rule", _ARG_STRING) | rules << U64(32)
        column = 5
        for name in _STEP_NUMBERS:
            words[:, column] = self._head(name, _ARG_INT64, 2)
            words[:, column + 1] = _numbers_in(rows, name)
            column += 2
        words[:, -1] = self.at(end_ns)
        self.stream.write(words.data)

    def _threads_of_steps(self, rows: list[dict[str, Any]]) -> np.ndarray:
        """Process and thread of each step."""
        ids = []
        for row in rows:
            place = self.trace.steps_thread(row["process"])
            thread = self.trace.threads[place]
            ids.append((thread.pid, thread.tid))
        return np.array(ids, U64)

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
        head = header(EVENT, (4 * 8 + len(arguments)) // 8, more)
        self.stream.write(
            struct.pack("<4Q", head, self.at(moment.at_ns), thread.pid, thread.tid) + arguments
        )

    def _argument(self, name: str, value: int | str) -> bytes:
        if isinstance(value, str):
            head = int(self._head(name, _ARG_STRING))
            string = self._string(value) << 32
            return struct.pack("<Q", head | string)
        head = int(self._head(name, _ARG_INT64, 2))
        return struct.pack("<Qq", head, value)

    def counters(self) -> None:
        """The counters of the processes."""
        columns = counters(self.trace)
        self._make_room(_ARGUMENTS + len(columns["name.names"]))
        names = self._string_numbers(columns["name.names"])
        words = np.empty((len(columns["at_ns"]), 7), U64)
        if not len(words):
            return
        counter_names = names[columns["name"]]
        words[:, 0] = self._event_heads(counter_names, 7, _COUNTER, 1, "counters")
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
        count = 0
        arguments = b""
        if process is not None:
            count = 1
            head = int(self._head("process", _ARG_KOID, 2))
            arguments = struct.pack("<QQ", head, process)
        words = 2 + len(arguments) // 8
        more = kind << 16 | self._string(name) << 24 | count << 40
        record = struct.pack("<QQ", header(_KERNEL_OBJECT, words, more), number)
        self.stream.write(record + arguments)


def _numbers_in(rows: list[dict[str, Any]], name: str) -> np.ndarray:
    """A column of whole numbers."""
    numbers = [row[name] for row in rows]
    return np.array(numbers, np.int64)
