"""Chrome JSON as torch.profiler writes it (Kineto), of every year since 2021: operators and ranges,
calls of runtimes, work of GPUs by stream, functions of Python, memory and counters.

What something is, its category says: a Triton operator has an argument `stream` and is no work of a
GPU. Times are microseconds since `baseTimeNanoseconds` (CLOCK_REALTIME), or since 1970 in older
files, taken as decimals.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import MEMORY, OPERATORS
from layerscope.sources import kineto_memory
from layerscope.sources.imported import Imported, ImportedProcess
from layerscope.sources.kineto_spans import KinetoSpans, framework_threads, spans_of
from layerscope.sources.kineto_tracks import KinetoTracks
from layerscope.sources.memory_counters import MemoryCounters
from layerscope.sources.trace_moments import joined, marks_of, values_of
from layerscope.sources.trace_rows import TraceRows, gather
from layerscope.sources.trace_scan import NONE, Columns, ScannedTrace

MEANING = "a trace of torch.profiler (Kineto, Chrome JSON)"
# What Kineto writes before the events, or what only its events have.
_KINETO = re.compile(
    rb'"(schemaVersion|deviceProperties|distributedInfo)"\s*:|'
    rb'"cat"\s*:\s*"(cpu_op|user_annotation|cuda_runtime|cuda_driver|kernel|gpu_memcpy|'
    rb'python_function|cpu_instant_event|Operator|Runtime|Kernel)"'
)
_EVENTS = "traceEvents"
_WINDOW_END = "Record Window End"
_RANK = re.compile(r"rank[-_ ]?(\d{1,9})(?!\d)", re.IGNORECASE)
_MOST_NUMBER = 1 << 61
_MOST_RANK = np.iinfo(np.int32).max
# What of the file is kept with the process: not tables of stacks.
_MOST_ABOUT = 1 << 20
_NO_EVENTS = Problem(OPERATORS, "no_events", "the trace has no event", "record again", "everything")


def recognises(head: bytes) -> bool:
    """Whether a file that begins so is a trace of torch.profiler."""
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return False
    return _KINETO.search(head) is not None


def read(path: Path) -> Imported:
    """What is in the trace at `path`, which may be packed with gzip, and may be cut."""
    trace, rows = gather(path, numbers=True)
    if not trace.has_header:
        raise ReadError(
            f"{path} is damaged (it has no list of events): copy it again, or record again"
        )
    base_ns = _base_ns(trace)
    tracks = KinetoTracks(trace, rows.columns("names"))
    instants = rows.columns("instants")
    pid = _pid(trace)
    spans = spans_of(trace, tracks, _window_end_ns(trace, instants))
    threads = framework_threads(spans, trace, rows.columns("arrows"), tracks)
    # Names may be there twice: as they are meant, and with what JSON escapes.
    names: dict[str, int] = {}
    name_of = np.array(
        [names.setdefault(name, len(names)) for name in [*trace.names, ""]], np.int32
    )
    memory = kineto_memory.memory_events(instants, trace.names)
    of_memory = tracks.threads(memory.pid, memory.tid)
    of_memory_name = kineto_memory.name_in(trace.names)
    is_mark = instants["name"] != of_memory_name
    marks = {name: values.compress(is_mark) for name, values in instants.items()}
    counters = rows.columns("counters")
    first_ns = _first_ns(spans.start_ns, instants["time_ns"], counters["time_ns"])
    blocks = kineto_memory.blocks(memory, spans, of_memory, names)
    blocks = replace(blocks, at_ns=blocks.at_ns - first_ns)
    of_blocks = MemoryCounters("PyTorch", names)
    kineto_memory.add_counters(memory, of_blocks, of_memory)
    moments = joined(
        [
            of_blocks.moments(),
            marks_of(trace, marks, tracks.threads, names),
            values_of(trace, counters, tracks.threads, names),
        ]
    )
    spans.start_ns -= first_ns
    process = _process(path, trace, pid)
    problems = _problems(trace, rows, spans, memory)
    problems += kineto_memory.problems(memory)
    return Imported(
        start_ns=spans.start_ns,
        dur_ns=spans.dur_ns,
        track=spans.track,
        depth=spans.depth,
        kind=spans.kind,
        name=name_of[spans.name],
        args=spans.args,
        more=spans.more,
        names=list(names),
        args_texts=spans.args_texts,
        moments=replace(moments, at_ns=moments.at_ns - first_ns),
        memory=blocks,
        tracks=tracks.with_numbers(threads),
        processes=[process],
        realtime_ns=first_ns + base_ns,
        problems=problems,
        step_mark=spans.step_mark,
    )


def _window_end_ns(trace: ScannedTrace, instants: Columns) -> int:
    """When the profile ended, if it is told."""
    if _WINDOW_END not in trace.names:
        return 0
    code = trace.names.index(_WINDOW_END)
    is_end = instants["name"] == code
    ends_ns = instants["time_ns"][is_end]
    return int(ends_ns.max(initial=0))


def _first_ns(*starts: np.ndarray) -> int:
    """When the first event of all happened."""
    return min((int(at_ns.min()) for at_ns in starts if len(at_ns)), default=0)


def _base_ns(trace: ScannedTrace) -> int:
    """How many ns after 1970 the times of the file begin."""
    told: Any = trace.beside.get("baseTimeNanoseconds")
    if not isinstance(told, int):
        return 0
    return told if abs(told) < _MOST_NUMBER else 0


def _process(path: Path, trace: ScannedTrace, pid: int) -> ImportedProcess:
    """The one process of the trace, with what the file tells of the job."""
    about = {key: value for key, value in trace.beside.items() if key != _EVENTS}
    text = json.dumps(about, ensure_ascii=False)
    is_kept = bool(about) and len(text) < _MOST_ABOUT
    kept = text if is_kept else None
    rank = _rank(path, trace)
    return ImportedProcess(rank=rank, pid=pid, about=kept)


def _pid(trace: ScannedTrace) -> int:
    """The number that most spans have; those of GPUs have the number of the GPU."""
    places = trace.spans.places
    spans = np.bincount(trace.spans.columns["place"], minlength=len(places))
    is_on_cpu = (places["stream"] == NONE) & (places["pid"] >= 0)
    counts = np.bincount(places["pid"][is_on_cpu], spans[is_on_cpu])
    codes = np.argsort(-counts, kind="stable")
    for code in codes[counts[codes] > 0].tolist():
        number = trace.scalars[code]
        if not isinstance(number, int):
            continue
        if 0 < number <= _MOST_RANK:
            return number
    return 0


def _rank(path: Path, trace: ScannedTrace) -> int:
    """The rank in the file, else the one in its name, else 0."""
    distributed = trace.beside.get("distributedInfo")
    told: Any = distributed.get("rank") if isinstance(distributed, dict) else None
    if isinstance(told, int):
        is_possible = 0 <= told <= _MOST_RANK
        if is_possible:
            return told
    named = _RANK.search(path.name)
    if named is None:
        return 0
    return min(int(named[1]), _MOST_RANK)


def _problems(
    trace: ScannedTrace, rows: TraceRows, spans: KinetoSpans, memory: kineto_memory.MemoryEvents
) -> list[Problem]:
    """What the trace has and the recording has not."""
    found = []
    rejected = rows.rejected + memory.rejected
    if rejected:
        what = f"{rejected:,} events of the trace have times or numbers that cannot be"
        found.append(Problem(OPERATORS, "events_rejected", what, "record again", "these events"))
    if memory.without_address:
        what = (
            f"{memory.without_address:,} allocations and releases of the trace do not tell their "
            "block, as an old PyTorch writes them"
        )
        remedy = "record with PyTorch 1.11 or later"
        found.append(Problem(MEMORY, "blocks_untold", what, remedy, "memory over time"))
    if trace.damaged:
        lost = "these events"
        what = f"{trace.damaged:,} events of the trace are damaged, first: {trace.example[:120]}"
        remedy = "copy the trace again, or record again"
        found.append(Problem(OPERATORS, "events_damaged", what, remedy, lost))
    if not trace.has_end:
        within = ", within an event" if trace.is_cut else ""
        what = f"the trace has no end: it was cut{within}"
        remedy = (
            "copy it again; a program that is killed while it writes its trace leaves such a one"
        )
        found.append(Problem(OPERATORS, "trace_cut", what, remedy, "what stood behind the cut"))
    if rows.unknown:
        count = sum(rows.unknown.values())
        letters = ", ".join(sorted(rows.unknown))
        what = f"{count:,} events are of a kind that torch.profiler does not write ({letters})"
        remedy = "open the file as its program wrote it"
        found.append(Problem(OPERATORS, "phases_unknown", what, remedy, "these events"))
    if spans.negative:
        what = f"{spans.negative:,} spans end before they begin: their duration is 0 here"
        found.append(Problem(OPERATORS, "durations_negative", what, "record again", "durations"))
    has_events = len(spans.start_ns) or len(memory.at_ns)
    if not has_events:
        found.append(_NO_EVENTS)
    return found
