"""A window of torch.profiler that `inside/pytorch_windows.py` leaves: operators and ranges of one
trace as columns on the run's clock.

It is recorded where nothing of ours could be compiled, so it is read without `trace_scan`; files of
others are read by `kineto`. Kineto's clock is CLOCK_REALTIME in microseconds since
`baseTimeNanoseconds`, with three decimals.
"""

from __future__ import annotations

import gzip
import re
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from layerscope.model.clocks import Conversion
from layerscope.model.errors import ReadError
from layerscope.sources.kineto_meaning import kinds_of, shape_text
from layerscope.sources.span_depths import depths

OPERATOR, ANNOTATION, ARROW = "cpu_op", "user_annotation", "fwdbwd"
_OF_CPU = (OPERATOR, ANNOTATION)
# A century; and all sums of numbers fit into 64 bits.
_MOST_US, _MOST_NUMBER = Decimal(1 << 61) / 1000, 1 << 62
# Names are written as they are, with quotes and all; this is what stands before and after those of
# spans.
_NAME = re.compile(
    rb'("cat": "(?:cpu_op|user_annotation)",\s*"name": ")(.*?)(",\s*"pid": \S+\s*"tid":)', re.DOTALL
)
_WITHIN = re.compile(rb'["\\\x00-\x1f]')


class KinetoTrace(Struct, frozen=True):
    """The spans of one trace by thread, then start; of two that start together the longer one comes
    first.

    `start_ns`, `end_ns`: on the run's clock. `name`: index into `names`. `kind`: index into
    `model.layers.KINDS`. `depth`: how many spans were open on the thread when it started. `seq`:
    autograd sequence number, -1: none. `forward_thread`: the thread of the forward operator as
    RecordFunction numbers threads, 0: not told. `shapes`: index into `shape_texts`, JSON with
    shapes and dtypes of the inputs as layer `operators` has it (null: no tensor); -1: not told.
    `tid`: the system's number of the thread. `unfinished`: open when the trace ended, which is its
    end here. `thread_names` and `framework_threads`: by tid, its name and RecordFunction's number,
    as far as they are told.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    name: np.ndarray
    kind: np.ndarray
    depth: np.ndarray
    seq: np.ndarray
    forward_thread: np.ndarray
    shapes: np.ndarray
    tid: np.ndarray
    unfinished: np.ndarray
    names: list[str]
    shape_texts: list[str]
    thread_names: dict[int, str]
    framework_threads: dict[int, int]


class _Arguments(msgspec.Struct, gc=False):
    sequence: int | None = msgspec.field(default=None, name="Sequence number")
    forward_thread: int = msgspec.field(default=0, name="Fwd thread id")
    record_function: int | None = msgspec.field(default=None, name="Record function id")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"[]"), name="Input type")
    finished: bool = True
    name: str | int = ""


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    pid: int | str = 0
    # A double has no room for the nanoseconds of a number of microseconds that began months ago.
    ts: Decimal = Decimal(0)
    dur: Decimal = Decimal(0)
    cat: str = ""
    name: str = ""
    tid: int | str = 0
    id: int | str = 0
    args: _Arguments | None = None


class _File(msgspec.Struct, gc=False):
    events: list[_Event] = msgspec.field(name="traceEvents")
    base_ns: int = msgspec.field(default=0, name="baseTimeNanoseconds")


def read_trace(path: Path, clock: Conversion) -> KinetoTrace:
    """The trace at `path`; `clock` takes CLOCK_REALTIME to the run's."""
    return _columns(_file(path), clock)


def _file(path: Path) -> _File:
    """What a file has, packed or not."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        return _possible(_decode(content))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ReadError(f"{path} is damaged ({error}): copy it again, or record again") from error
    except OSError as error:
        raise ReadError(f"{path} cannot be read ({error.strerror})") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReadError(f"{path} is damaged ({error}): copy it again, or record again") from error


def _possible(file: _File) -> _File:
    """The file without events whose times or numbers are beyond what there can be."""
    file.events = [event for event in file.events if _is_possible(event)]
    if abs(file.base_ns) >= _MOST_NUMBER:
        file.base_ns = 0
    return file


def _decode(content: bytes) -> _File:
    decoder = msgspec.json.Decoder(_File, strict=True)
    try:
        return decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        escaped = _NAME.sub(_escaped, content)
        text = escaped.decode("utf-8", "replace")
        return decoder.decode(text.encode())


def _escaped(found: re.Match[bytes]) -> bytes:
    """A name as JSON wants it."""
    before, name, after = found.groups()
    escaped = _WITHIN.sub(_escaped_byte, name)
    parts = (before, escaped, after)
    return b"".join(parts)


def _escaped_byte(found: re.Match[bytes]) -> bytes:
    """A byte as JSON wants it."""
    byte = found[0][0]
    return b"\\u%04x" % byte


def _columns(file: _File, clock: Conversion) -> KinetoTrace:
    """The spans of a decoded trace."""
    rows = [event for event in file.events if event.ph == "X" and event.cat in _OF_CPU]
    start, end = _times_ns(rows, file.base_ns)
    window_ends = _moments_ns(file.events, "Record Window End", file.base_ns)
    unfinished = _unfinished(rows)
    end[unfinished] = max([int(end.max(initial=0)), *window_ends])
    tid = np.array([_number(event.tid) for event in rows], np.int64)
    order = np.lexsort((-end, start, tid))
    rows = [rows[at] for at in order.tolist()]
    start, end = start[order], end[order]
    tid, unfinished = tid[order], unfinished[order]
    names: dict[str, int] = {}
    name = np.array([names.setdefault(event.name, len(names)) for event in rows], np.int32)
    is_range = np.array([event.cat == ANNOTATION for event in rows], np.bool_)
    arguments = [event.args or _Arguments() for event in rows]
    forward_thread = np.array([args.forward_thread for args in arguments], np.int64)
    shapes, shape_texts = _shapes(arguments)
    return KinetoTrace(
        start_ns=clock.to_run(start),
        end_ns=clock.to_run(end),
        name=name,
        kind=kinds_of(name, list(names), is_range, forward_thread, tid),
        depth=depths(tid, start, end),
        seq=_sequence_numbers(arguments),
        forward_thread=forward_thread,
        shapes=shapes,
        tid=tid,
        unfinished=unfinished,
        names=list(names),
        shape_texts=shape_texts,
        thread_names=_thread_names(file.events),
        framework_threads=_framework_threads(file.events, tid, start, forward_thread, file.base_ns),
    )


def _sequence_numbers(arguments: list[_Arguments]) -> np.ndarray:
    """-1 where there is none, or one that is not possible."""
    told = [args.sequence for args in arguments]
    numbers = [-1 if number is None else number for number in told]
    seq = np.array(numbers, np.int64)
    most = np.iinfo(np.int32).max
    is_possible = (seq >= 0) & (seq <= most)
    seq[~is_possible] = -1
    return seq.astype(np.int32)


def _shapes(arguments: list[_Arguments]) -> tuple[np.ndarray, list[str]]:
    """By event the place of its shapes among the different ones (-1: none), and these as texts."""
    codes: dict[tuple[bytes, bytes], int] = {}
    shapes = []
    for args in arguments:
        dimensions = bytes(args.shapes)
        if dimensions:
            pair = dimensions, bytes(args.types)
            shapes.append(codes.setdefault(pair, len(codes)))
        else:
            shapes.append(-1)
    texts = [shape_text(*pair) for pair in codes]
    return np.array(shapes, np.int32), texts


def _is_possible(event: _Event) -> bool:
    """Whether the times and numbers of an event are not beyond what there can be."""
    if abs(event.ts) >= _MOST_US or abs(event.dur) >= _MOST_US:
        return False
    fields: list[int | str | None] = [event.tid, event.pid]
    if event.args is not None:
        fields += [event.args.sequence, event.args.forward_thread]
    numbers = [field for field in fields if isinstance(field, int)]
    return all(abs(number) < _MOST_NUMBER for number in numbers)


def _times_ns(rows: list[_Event], base_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and end in whole ns of CLOCK_REALTIME."""
    starts = [_ns(event.ts) for event in rows]
    durations = [_ns(event.dur) for event in rows]
    start_ns = np.array(starts, np.int64) + base_ns
    dur_ns = np.array(durations, np.int64)
    end_ns = start_ns + np.maximum(dur_ns, 0)
    return start_ns, end_ns


def _ns(microseconds: Decimal) -> int:
    return round(microseconds * 1000)


def _moments_ns(events: list[_Event], name: str, base_ns: int) -> list[int]:
    """When the instant events of this name happened."""
    moments_ns = []
    for event in events:
        is_instant = event.ph == "i"
        if is_instant and event.name == name:
            since_base_ns = _ns(event.ts)
            moments_ns.append(base_ns + since_base_ns)
    return moments_ns


def _unfinished(rows: list[_Event]) -> np.ndarray:
    """Spans that did not end. Newer builds say so; older ones give them no duration and no number,
    as no other has; before that (PyTorch 2.1, which tells microseconds) they are spans without a
    duration like any other.
    """
    arguments = [event.args or _Arguments() for event in rows]
    told = any(args.record_function is not None for args in arguments)
    return np.array(
        [
            not args.finished or (told and not event.dur and args.record_function is None)
            for event, args in zip(rows, arguments, strict=True)
        ],
        np.bool_,
    )


def _number(tid: int | str) -> int:
    if isinstance(tid, int):
        return tid
    return -1


def _thread_names(events: list[_Event]) -> dict[int, str]:
    """By tid. Kineto puts the number before the name of the thread: "thread 17 (python)"."""
    found = {}
    for event in events:
        if (
            event.ph == "M"
            and event.name == "thread_name"
            and event.args
            and isinstance(event.tid, int)
        ):
            text = str(event.args.name)
            within = re.fullmatch(r"thread -?\d+ \((.*)\)", text)
            found[event.tid] = within[1] if within else text
    return found


def _framework_threads(
    events: list[_Event],
    tid: np.ndarray,
    start: np.ndarray,
    forward_thread: np.ndarray,
    base_ns: int,
) -> dict[int, int]:
    """RecordFunction's numbers of threads by tid: an arrow comes from the thread that its backward
    function names.
    """
    comes_from = {
        event.id: _number(event.tid) for event in events if event.cat == ARROW and event.ph == "s"
    }
    ends: dict[tuple[int, int], Any] = {
        (_number(event.tid), _ns(event.ts) + base_ns): event.id
        for event in events
        if event.cat == ARROW and event.ph == "f"
    }
    found: dict[int, int] = {}
    rows = np.flatnonzero(forward_thread > 0)
    for at in rows.tolist():
        arrow = ends.get((int(tid[at]), int(start[at])))
        if arrow in comes_from:
            number = int(forward_thread[at])
            source = comes_from[arrow]
            found.setdefault(source, number)
    return found
