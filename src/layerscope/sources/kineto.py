"""Chrome JSON as torch.profiler writes it (Kineto): operators and ranges of one trace as columns on
the run's clock.

Of the CPU: operators, ranges, names of threads, and the arrows from forward to backward; memory of
all devices (`kineto_memory`); work of GPUs is counted and said. `read` opens a file of its own,
`read_trace` also the windows that `inside/pytorch_windows.py` leaves. Kineto's clock is
CLOCK_REALTIME in microseconds since `baseTimeNanoseconds`, with three decimals.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from layerscope.model.clocks import Conversion, Identity
from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.frameworks import kind_of
from layerscope.model.layers import KINDS, OPERATORS
from layerscope.model.stored_json import decoded
from layerscope.sources import kineto_memory
from layerscope.sources.imported import Imported, ImportedProcess, ImportedTrack
from layerscope.sources.memory_counters import MemoryCounters
from layerscope.sources.span_depths import depths

FUNCTION, BACKWARD, RANGE = (KINDS.index(kind) for kind in ("function", "backward", "range"))
OPTIMIZER, LOADER = KINDS.index("optimizer"), KINDS.index("loader")
# Kineto calls dtypes as C++ does.
DTYPES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "bool": "bool",
    "signed char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "long int": "int64",
    "unsigned char": "uint8",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}
OPERATOR, ANNOTATION, ARROW = "cpu_op", "user_annotation", "fwdbwd"
MEANING = "a trace of torch.profiler (Kineto, Chrome JSON)"
_OF_CPU = (OPERATOR, ANNOTATION)
_OF_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
# What Kineto writes before the events, or what only its events have.
_KINETO = re.compile(
    rb'"(deviceProperties|distributedInfo|baseTimeNanoseconds|cpu_op|user_annotation)"'
)
# A century; and all sums of numbers fit into 64 bits.
_MOST_US, _MOST_NUMBER = Decimal(1 << 61) / 1000, 1 << 62
# What the autograd engine opens around a backward function, whose name follows.
ENGINE = "autograd::engine::evaluate_function: "
# Names are written as they are, with quotes and all; this is what stands before and after those of
# spans.
_NAME = re.compile(
    rb'("cat": "(?:cpu_op|user_annotation)",\s*"name": ")(.*?)(",\s*"pid": \S+\s*"tid":)', re.DOTALL
)
_WITHIN = re.compile(rb'["\\\x00-\x1f]')


@dataclass(frozen=True, slots=True)
class KinetoTrace:
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
    # Of the events of memory; other events may have something else by these names.
    address: Any = msgspec.field(default=None, name="Addr")
    bytes: Any = msgspec.field(default=None, name="Bytes")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    reserved: Any = msgspec.field(default=0, name="Total Reserved")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device: Any = msgspec.field(default=-1, name="Device Id")


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
    rejected: int = msgspec.field(default=0, name="layerscope rejected")
    distributed: dict[str, Any] = msgspec.field(default_factory=dict, name="distributedInfo")


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a trace of torch.profiler."""
    if not head.lstrip().startswith(b"{"):
        return False
    return _KINETO.search(head) is not None


def read(path: Path) -> Imported:
    """The spans of the CPU and the memory in the trace at `path`, which may be packed with gzip."""
    file = _file(path)
    trace = _columns(file, Identity())
    memory = kineto_memory.memory_events(file.events, file.base_ns)
    starts_ns = np.append(trace.start_ns, memory.at_ns[:1])
    first_ns = int(starts_ns.min()) if len(starts_ns) else 0
    tids = np.unique(np.append(trace.tid, memory.tid))
    track = np.searchsorted(tids, trace.tid)
    process, pids = _processes(file.events, tids.tolist())
    names = {name: number for number, name in enumerate(trace.names)}
    of_memory = np.searchsorted(tids, memory.tid).astype(np.int32)
    blocks = kineto_memory.blocks(memory, trace, of_memory, names)
    memory.at_ns -= first_ns
    counters = MemoryCounters("PyTorch", names)
    kineto_memory.add_counters(memory, counters, of_memory)
    rank = file.distributed.get("rank")
    return Imported(
        start_ns=trace.start_ns - first_ns,
        dur_ns=trace.end_ns - trace.start_ns,
        track=track.astype(np.int32),
        depth=trace.depth,
        kind=trace.kind,
        name=trace.name,
        args=trace.shapes,
        more={
            "seq": trace.seq,
            "origin": trace.forward_thread,
            "unfinished": trace.unfinished,
        },
        names=list(names),
        args_texts=trace.shape_texts,
        moments=counters.moments(),
        memory=blocks,
        tracks=[
            ImportedTrack(
                of,
                trace.thread_names.get(tid, f"thread {tid}"),
                tid,
                framework_thread=trace.framework_threads.get(tid, -1),
            )
            for tid, of in zip(tids.tolist(), process, strict=True)
        ],
        processes=[
            ImportedProcess(rank=rank if isinstance(rank, int) else None, pid=pid) for pid in pids
        ],
        realtime_ns=first_ns,
        problems=[*_problems(file, memory.rejected), *kineto_memory.problems(memory)],
    )


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
    before = len(file.events)
    events = [event for event in file.events if _is_possible(event)]
    file.events = events
    file.rejected = before - len(events)
    if abs(file.base_ns) >= _MOST_NUMBER:
        file.base_ns = 0
    return file


def _processes(events: list[_Event], tids: list[int]) -> tuple[list[int], list[int]]:
    """By thread the place of its process, and the number of each process."""
    pid_of = {}
    for event in events:
        if event.cat in _OF_CPU or event.name == kineto_memory.NAME:
            tid = _number(event.tid)
            pid_of[tid] = _number(event.pid)
    pid_of_thread = [pid_of[tid] for tid in tids]
    pids = sorted(set(pid_of_thread)) or [0]
    places = [pids.index(pid) for pid in pid_of_thread]
    return places, pids


def _problems(file: _File, rejected: int) -> list[Problem]:
    """What the trace has and the recording has not; `rejected`: events of memory."""
    of_gpu = _of_gpu(file.events)
    rejected += file.rejected
    if not rejected:
        return list(of_gpu)
    what = f"{rejected:,} events of the trace have times or numbers that cannot be"
    told = Problem(OPERATORS, "events_rejected", what, "record again", "these events")
    return [told, *of_gpu]


def _of_gpu(events: list[_Event]) -> list[Problem]:
    of_gpu = sum(event.cat in _OF_GPU for event in events if event.ph == "X")
    if not of_gpu:
        return []
    what = f"{of_gpu:,} kernels and copies of GPUs in this trace are not read"
    remedy = "open the trace in Perfetto to see them"
    lost = "the work of GPUs: operators have the time of their launch"
    return [Problem(OPERATORS, "gpu_unread", what, remedy, lost)]


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
    name = _WITHIN.sub(_escaped_byte, name)
    return before + name + after


def _escaped_byte(found: re.Match[bytes]) -> bytes:
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
        kind=_kinds(name, list(names), is_range, forward_thread, tid),
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
    numbers = [-1 if args.sequence is None else args.sequence for args in arguments]
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
    texts = [_shape_text(*pair) for pair in codes]
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


def _shape_text(shapes: bytes, types: bytes) -> str:
    """Both lists as JSON, with the names that torch gives its dtypes in Python."""
    try:
        sizes = decoded(shapes, list[Any])
        kinds = decoded(types, list[str])
    except ValueError:
        return json.dumps({"shapes": None})
    missing = len(sizes) - len(kinds)
    kinds += [""] * missing
    of_tensors = []
    for size, kind in zip(sizes, kinds, strict=False):
        is_tensor = kind in DTYPES
        of_tensors.append(size if is_tensor else None)
    dtypes = [DTYPES.get(kind, kind or None) for kind in kinds]
    return json.dumps({"shapes": of_tensors, "dtypes": dtypes})


def _kinds(
    name: np.ndarray,
    names: list[str],
    is_range: np.ndarray,
    forward_thread: np.ndarray,
    tid: np.ndarray,
) -> np.ndarray:
    """What each span is. Kineto keeps no scope: a backward function has a forward thread, or is the
    first in the engine's span of the same name.
    """
    own = np.array([_kind_of(text) for text in names], np.uint8)[name]
    kind = np.where(is_range | (own == BACKWARD), own, FUNCTION).astype(np.uint8)
    kind[~is_range & (forward_thread > 0)] = BACKWARD
    codes = {text: code for code, text in enumerate(names)}
    inner = np.array(
        [
            codes.get(text.removeprefix(ENGINE), -1) if text.startswith(ENGINE) else -1
            for text in names
        ]
    )
    if len(name) > 1:
        kind[1:][(inner[name[:-1]] == name[1:]) & (tid[:-1] == tid[1:])] = BACKWARD
    return kind


def _kind_of(text: str) -> int:
    """By a name that the framework itself gives."""
    kind = kind_of(text)
    return KINDS.index(kind) if kind else RANGE


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
            found.setdefault(comes_from[arrow], int(forward_thread[at]))
    return found
