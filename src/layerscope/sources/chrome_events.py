"""Events of Chrome JSON as columns, for traces that may be only a fragment of a file.

A profiler that writes its trace bit by bit leaves files that are no valid JSON when it is killed,
or when its output file is changed while it runs: the header is missing, or the end, or both. So the
file is cut between events into chunks, and each chunk is decoded by itself. Where that fails, its
events are decoded one by one, and those that are damaged are counted. Quotes and control characters
in names may stand there unescaped.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from layerscope.sources.text_chunks import parts

# Between the end of an event and the name of the first field of the next one.
_BORDER = re.compile(rb'\}(\s*,\s*)\{\s*"[A-Za-z]+"\s*:')
# The same where several traces were written into one file, or the next event is cut there.
_BORDERS = re.compile(
    rb"(?<=\})\s*(?:\]\s*(?:,[^\[\]{}]*)?\}\s*)?"
    rb'(?:\{\s*"traceEvents"\s*:\s*\[\s*|,\s*)?'
    rb'(?=\{\s*(?:"[A-Za-z]+"\s*:|"[A-Za-z]*"?\s*\Z|\Z))'
)
_HEADER = re.compile(rb'\s*(?:\{[^{}\[\]]*?"traceEvents"\s*:\s*)?\[')
_END = re.compile(rb"(?:^|(?<=[\[},]))\s*(\]\s*(?:,[^\[\]{}]*)?\}?\s*)$")
_EVENT_START = re.compile(rb'\{\s*"(?:name|ph)"\s*:')
# What may stand between events, or around the first and the last one. Zeros: the system crashed.
_BETWEEN = b" \t\r\n,\0"
# Where the last border of a chunk is looked for first, and how far the end of the file can reach.
_TAIL_BYTES = 1 << 12
# Something this long without a border between events is no event.
_MOST_BYTES = 1 << 24
# An event is shorter: in more than this texts are not searched for what is not escaped.
_MOST_EVENT_BYTES = 1 << 12
# What is shown of the first damaged event.
_EXAMPLE_BYTES = 200
# How many beginnings of events are tried in something damaged.
_MOST_TRIES = 4
# A century after 1970, in microseconds.
_MOST_US = 3_155_760_000_000_000
_MOST_VALUE, _LEAST_VALUE = 1 << 64, -(1 << 63)
# A text that was written as it is, and what stands before it.
_RAW_TEXTS = (
    re.compile(
        rb'("(?:name|cat)"\s*:\s*")(.*?)'
        rb'(?="\s*(?:,\s*"(?:name|cat|ph|ts|pid|tid|id|args|s)"\s*:|\}\s*[,}]|\}\s*$))',
        re.DOTALL,
    ),
    re.compile(rb'("args"\s*:\s*\{\s*")(.*?)(?="\s*:\s*-?[0-9][0-9.eE+-]*\s*\})', re.DOTALL),
)
_FORBIDDEN = re.compile(rb'["\\\x00-\x1f]')


class _ChromeEvent(msgspec.Struct, gc=False):
    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: int | float = -1
    pid: int | str = -1
    tid: int | str = -1
    args: dict[str, Any] | None = None


_EVENTS = msgspec.json.Decoder(list[_ChromeEvent])
_EVENT = msgspec.json.Decoder(_ChromeEvent)
_WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Codes(dict[Any, int]):
    """The number of each different value, in the order in which they came."""

    def __missing__(self, value: Any) -> int:
        code = len(self)
        self[value] = code
        return code

    def of(self, values: list[Any]) -> np.ndarray:
        """The numbers of these values."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))


# What is kept of each event. `phase`: the character. `value`: of a counter, if it has one.
_COLUMNS: dict[str, np.dtype[Any]] = {
    "phase": np.dtype(np.uint8),
    "name": np.dtype(np.int32),
    "category": np.dtype(np.int32),
    "at_ns": np.dtype(np.int64),
    "pid": np.dtype(np.int32),
    "tid": np.dtype(np.int32),
    "value": np.dtype(np.int64),
    "has_value": np.dtype(np.bool_),
}


@dataclass(slots=True)
class ChromeEvents:
    """The events of a file in its order, as columns; `name`, `category`, `pid` and `tid` are the
    numbers of the values in the tables of the same name.

    `process_names`: by the pid, as the trace names it. `rejected`: how many events could not be
    read, of which `example` was the first. `has_header`, `has_end`: whether the file has them.
    `is_cut`: it ends within an event.
    """

    names: Codes = field(default_factory=Codes)
    categories: Codes = field(default_factory=Codes)
    pids: Codes = field(default_factory=Codes)
    tids: Codes = field(default_factory=Codes)
    process_names: dict[int | str, str] = field(default_factory=dict)
    rejected: int = 0
    example: str = ""
    has_header: bool = False
    has_end: bool = False
    is_cut: bool = False
    _parts: list[dict[str, np.ndarray]] = field(default_factory=list)

    def columns(self) -> dict[str, np.ndarray]:
        """All columns by name. They are handed over, not copied for the next call."""
        parts_, self._parts = self._parts, []
        found = {}
        for name, kind in _COLUMNS.items():
            pieces = [part.pop(name) for part in parts_]
            found[name] = np.concatenate([np.zeros(0, kind), *pieces])
        return found

    def add(self, content: bytes, is_last: bool = False) -> None:
        """Take in events with commas between them; `is_last`: the file ends behind them."""
        content = content.strip(_BETWEEN)
        if not content:
            return
        try:
            events = _EVENTS.decode(b"[" + content + b"]")
        except _WRONG:
            events = self._one_by_one(content, is_last)
        self._take(events)

    def _one_by_one(self, content: bytes, is_last: bool) -> list[_ChromeEvent]:
        """The events of a chunk that are not damaged."""
        pieces = [piece.strip(_BETWEEN) for piece in _BORDERS.split(content)]
        events = []
        for number, piece in enumerate(pieces, 1):
            found, is_whole = _decoded(piece)
            events += found
            if is_whole:
                continue
            if is_last and number == len(pieces) and not self.has_end:
                self.is_cut = True
            else:
                beginning = piece[:_EXAMPLE_BYTES]
                self._reject(beginning.decode("utf-8", "replace"))
        return events

    def _reject(self, example: str) -> None:
        self.rejected += 1
        self.example = self.example or " ".join(example.split())

    def _take(self, events: list[_ChromeEvent]) -> None:
        """Append events as columns."""
        timed = [event for event in events if event.ph != "M"]
        if len(timed) < len(events):
            self._name_processes(events)
        timed = self._possible(timed)
        at_us = [event.ts for event in timed]
        phases = [event.ph for event in timed]
        values = [_value(event) if event.ph == "C" else None for event in timed]
        self._parts.append(
            {
                "phase": np.frombuffer("".join(phases).encode("latin-1"), np.uint8),
                "name": self.names.of([event.name for event in timed]),
                "category": self.categories.of([event.cat for event in timed]),
                "at_ns": _nanoseconds(at_us),
                "pid": self.pids.of([event.pid for event in timed]),
                "tid": self.tids.of([event.tid for event in timed]),
                "value": np.array([value or 0 for value in values], np.int64),
                "has_value": np.array([value is not None for value in values], np.bool_),
            }
        )

    def _name_processes(self, events: list[_ChromeEvent]) -> None:
        for event in events:
            if event.ph == "M" and event.name == "process_name":
                name = (event.args or {}).get("name")
                self.process_names[event.pid] = str(name)

    def _possible(self, events: list[_ChromeEvent]) -> list[_ChromeEvent]:
        """Those with a phase of one letter and a time that there can be."""
        kept = [
            event
            for event in events
            if 0 <= event.ts < _MOST_US and len(event.ph) == 1 and event.ph.isascii()
        ]
        if len(kept) < len(events):
            known = set(map(id, kept))
            for event in events:
                if id(event) not in known:
                    self._reject(f"{event.ph!r} {event.name!r} at {event.ts}")
        return kept


def read_events(path: Path) -> ChromeEvents:
    """The events of the file `path`, which may be packed with gzip. ReadError when it cannot be
    read.
    """
    events = ChromeEvents()
    chunks = _chunks(path)
    first = next(chunks)
    last = _without_header(events, first)
    for chunk in chunks:
        events.add(last)
        last = chunk
    events.add(_without_end(events, last), is_last=True)
    return events


def _chunks(path: Path) -> Iterator[bytes]:
    """The file in chunks that are cut between events. There is one at least."""
    rest = b""
    for fresh in parts(path):
        content = rest + fresh
        border = _last_border(content)
        if border is None:
            is_event = len(content) < _MOST_BYTES
            rest = content if is_event else b""
            if not is_event:
                yield content
            continue
        yield content[: border.start(1)]
        rest = content[border.end(1) :]
    yield rest


def _last_border(content: bytes) -> re.Match[bytes] | None:
    """The last border between events."""
    for start in (max(0, len(content) - _TAIL_BYTES), 0):
        borders = deque(_BORDER.finditer(content, start), maxlen=1)
        if borders:
            return borders.pop()
    return None


def _without_header(events: ChromeEvents, content: bytes) -> bytes:
    header = _HEADER.match(content)
    if header is None:
        return content
    events.has_header = True
    return content[header.end() :]


def _without_end(events: ChromeEvents, content: bytes) -> bytes:
    content = content.rstrip(_BETWEEN)
    start = max(0, len(content) - _TAIL_BYTES)
    end = _END.search(content, start)
    if end is None:
        return content
    events.has_end = True
    return content[: end.start(1)]


def _decoded(piece: bytes) -> tuple[list[_ChromeEvent], bool]:
    """The event that is this piece of a file, and whether it is no more than that. Of something
    damaged an event at its end is kept.
    """
    if not piece:
        return [], True
    event = _one(piece)
    if event is not None:
        return [event], True
    starts = [found.start() for found in _EVENT_START.finditer(piece, 1)]
    for start in starts[-_MOST_TRIES:]:
        event = _one(piece[start:])
        if event is not None:
            return [event], False
    return [], False


def _one(piece: bytes) -> _ChromeEvent | None:
    """The event that this is, with its texts as they are or else as JSON wants them."""
    try:
        return _EVENT.decode(piece)
    except _WRONG:
        pass
    if len(piece) > _MOST_EVENT_BYTES:
        return None
    for raw in _RAW_TEXTS:
        piece = raw.sub(_escaped, piece)
    text = piece.decode("utf-8", "replace")
    try:
        return _EVENT.decode(text.encode())
    except _WRONG:
        return None


def _escaped(found: re.Match[bytes]) -> bytes:
    """A text as JSON wants it."""
    before, text = found.groups()
    return before + _FORBIDDEN.sub(_escaped_byte, text)


def _escaped_byte(found: re.Match[bytes]) -> bytes:
    byte = found[0][0]
    return b"\\u%04x" % byte


def _value(event: _ChromeEvent) -> int | None:
    """What a counter says; None: nothing. It may have gone below zero, which profilers that count
    without a sign write as a number beyond 2^63.
    """
    args = event.args or {}
    value = args.get(event.name)
    if value is None and len(args) == 1:
        (value,) = args.values()
    if not isinstance(value, int | float) or not _LEAST_VALUE <= value < _MOST_VALUE:
        return None
    whole = round(value)
    return whole - _MOST_VALUE if whole > np.iinfo(np.int64).max else whole


def _nanoseconds(at_us: list[int | float]) -> np.ndarray:
    """Times in whole ns."""
    if float in set(map(type, at_us)):
        at_ns = [round(time * 1000) for time in at_us]
        return np.array(at_ns, np.int64)
    return np.array(at_us, np.int64) * 1000
