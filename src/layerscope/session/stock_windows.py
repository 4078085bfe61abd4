"""After the program: the windows of PyTorch's own profiler, where nothing better could record,
become records.

`inside/pytorch_windows.py` leaves a folder for each process: windows.jsonl, and a trace for each
window. Their spans go into the raw file of the process, as the agent would have recorded them, so
that whoever reads raw files finds them there. What lies across the edge of a window is left out:
nobody knows when it began, or ended.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from layerscope.model.clocks import Conversion
from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.model.secrets import mask
from layerscope.rawfile import layout, raw_file
from layerscope.rawfile.sums import RawTotals
from layerscope.sources.kineto import KinetoTrace, depths, read
from layerscope.sources.raw.decoder import Decoder

LINES, TAKEN = "windows.jsonl", "windows.taken.jsonl"
CHUNK_RECORDS = 50_000
NAMES_BYTES = 1 << 20  # of one chunk
# Numbers of rings and segments that no agent gives.
FIRST_RING, SEGMENT = 1 << 20, 1 << 20
MARK_NAME = "window"
NOT_AS_ASKED = "window_not_as_asked"
REMEDY = "make the agent work, as another problem here says, and record again"
EVERYTHING = "operators, ranges, optimizer steps and loader waits"
LOST = (
    "operators outside of the windows and across their edges, modules, shapes of inputs, lines of "
    "ranges, "
    "and what was open when the program ended"
)


@dataclass(slots=True)
class _Windowed:
    """One process: what it said of itself, and its windows in the order of time."""

    folder: Path
    about: dict[str, Any] = field(default_factory=dict)
    windows: list[dict[str, Any]] = field(default_factory=list)
    over: str = ""
    error: str = ""
    traces: list[KinetoTrace] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def take(raw: Path, is_asked: bool = False) -> list[Problem]:
    """Put the windows below `raw` that were not taken yet into the raw files; what has to be said
    about them.

    `is_asked`: the user asked for a window, which these know nothing of.
    """
    processes = []
    for path in sorted(raw.glob(f"*/{LINES}")):
        process = _read(path)
        if not process.about:
            continue
        if process.windows:
            _append(process, _raw_file(process))
        path.rename(path.with_name(TAKEN))
        processes.append(process)
    return _problems(processes, is_asked)


def _read(path: Path) -> _Windowed:
    """Everything that one process left."""
    process = _Windowed(path.parent)
    for line in path.read_bytes().splitlines():
        try:
            told = msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # the program was killed while it wrote
        if "pid" in told:
            process.about = told
        elif "file" in told:
            process.windows.append(told)
        else:
            process.over, process.error = told.get("over", ""), told.get("error", "")
    clock = Conversion()
    for window in process.windows:
        for run_ns, realtime_ns in (window["opened"], window["closed"]):
            clock.add(realtime_ns, run_ns)
    for window in process.windows:
        try:
            process.traces.append(read(path.parent / window["file"], clock))
        except ReadError as error:
            process.damaged.append(str(error))
    return process


def _raw_file(process: _Windowed) -> Path:
    """That of the process, if the drainer has begun one; else the windows get their own."""
    own = process.folder.name
    host_and_pid, _, begun_ns = own.rpartition("-")
    known = {
        int(path.parent.name.rpartition("-")[2]): path
        for path in process.folder.parent.glob(f"{host_and_pid}-*/spool")
        if path.parent.name.rpartition("-")[2].isdigit()
    }
    earlier = [start_ns for start_ns in known if start_ns <= int(begun_ns)]
    return known[max(earlier)] if earlier else process.folder / "spool"


def _append(process: _Windowed, path: Path) -> None:
    """Write the spans of all windows behind what the raw file at `path` has."""
    before = Decoder()
    is_new = not path.exists()
    if not is_new:
        for chunk in raw_file.SpoolReader(path).chunks():
            before.add(chunk)
    file = raw_file.SpoolWriter(path)
    try:
        if is_new:
            about = {key: process.about[key] for key in ("pid", "ppid", "start_ns")}
            argv = mask([str(word) for word in process.about.get("argv", [])])
            file.write(
                raw_file.PROCESS, json.dumps({**about, "argv": argv, "clock": "monotonic"}).encode()
            )
        readings = [
            _reading(*moment)
            for window in process.windows
            for moment in (window["opened"], window["closed"])
        ]
        if is_new and readings:
            file.write(raw_file.POLL, readings[0])
        _write_spans(process, before, file)
        # Each makes a reader look at what came before it: they come after all, in the order of
        # time.
        for reading in readings[1:] if is_new else readings[-1:]:
            file.write(raw_file.POLL, reading)
        file.write(raw_file.END, b"{}")
    finally:
        file.close()


def _reading(run_ns: int, realtime_ns: int) -> bytes:
    return np.array([0, run_ns, realtime_ns, 0], "<i8").tobytes()


def _write_spans(process: _Windowed, before: Decoder, file: raw_file.SpoolWriter) -> None:
    """Names, then a ring for each thread, then the sums of them all. What an agent wrote keeps its
    numbers.
    """
    numbers = {MARK_NAME: len(before.names)}
    of_threads: dict[int, list[np.ndarray]] = {
        int(process.about["tid"]): [_marks(process, numbers[MARK_NAME])]
    }
    thread_names: dict[int, str] = {}
    framework_threads: dict[int, int] = {}
    for trace in process.traces:
        thread_names |= trace.thread_names
        framework_threads |= trace.framework_threads
        for tid, records in _records(trace, numbers, len(before.names)):
            of_threads.setdefault(tid, []).append(records)
    _write_names(numbers, file)
    to_ticks = before.to_ticks().to_run
    first_track = max(before.tracks, default=0) + 1
    totals = RawTotals()
    for at, (tid, parts) in enumerate(of_threads.items()):
        begins = np.zeros(1, layout.RECORD)
        begins["kind"], begins["start"], begins["end"] = (
            layout.THREAD_BEGIN,
            process.about["start_ns"],
            tid,
        )
        begins["seq"], begins["module"] = framework_threads.get(tid, -1), first_track + at
        records = np.concatenate([begins, *parts])
        is_span = records["kind"] < layout.FIRST_SPECIAL
        has_time = (
            is_span | (records["kind"] == layout.MARK) | (records["kind"] == layout.THREAD_BEGIN)
        )
        records["start"][has_time] = to_ticks(records["start"][has_time])
        records["end"][is_span] = to_ticks(records["end"][is_span])
        totals.add(records)
        for first in range(0, len(records), CHUNK_RECORDS):
            chunk = records[first : first + CHUNK_RECORDS]
            file.write(raw_file.RECORDS, chunk.tobytes(), FIRST_RING + at, len(chunk), first)
    if thread_names:
        file.write(raw_file.THREADS, json.dumps(thread_names).encode())
    file.write(raw_file.TOTALS, totals.packed())


def _marks(process: _Windowed, name: int) -> np.ndarray:
    """When windows opened and closed: by time, between steps that nobody counted."""
    marks = np.zeros(2 * len(process.windows), layout.RECORD)
    marks["kind"], marks["name"], marks["seq"] = layout.MARK, name, -1
    for which, of, bits in (
        ("opened", layout.MARK_OPENED, layout.WINDOW_WAS_CLOSED),
        ("closed", layout.MARK_CLOSED, 0),
    ):
        rows = marks[of - layout.MARK_OPENED :: 2]
        rows["start"] = [window[which][0] for window in process.windows]
        rows["end"], rows["module"] = layout.RULE_NONE | layout.WINDOW_BY_TIME | bits, of
    return marks


def _records(
    trace: KinetoTrace, numbers: dict[str, int], known: int
) -> Iterator[tuple[int, np.ndarray]]:
    """By thread, the spans of a trace in the order of their ends, as the agent writes them.
    `numbers`: of names.
    """
    number = np.array(
        [numbers.setdefault(text, known + len(numbers)) for text in trace.names], np.uint32
    )
    whole = np.flatnonzero(~trace.unfinished)
    depth = depths(trace.tid[whole], trace.start_ns[whole], trace.end_ns[whole])
    for tid in np.unique(trace.tid[whole]).tolist():
        mine = np.flatnonzero(trace.tid[whole] == tid)
        mine = mine[np.argsort(trace.end_ns[whole[mine]], kind="stable")]
        rows = whole[mine]
        has_forward = trace.forward_thread[rows] > 0
        place = np.arange(len(rows)) + np.cumsum(has_forward) - has_forward
        records = np.zeros(len(rows) + int(has_forward.sum()), layout.RECORD)
        spans = np.zeros(len(rows), layout.RECORD)
        spans["start"], spans["end"] = trace.start_ns[rows], trace.end_ns[rows]
        spans["name"], spans["seq"], spans["kind"] = (
            number[trace.name[rows]],
            trace.seq[rows],
            trace.kind[rows],
        )
        spans["depth"], spans["flags"] = depth[mine], np.where(has_forward, layout.FLAG_EXTRA, 0)
        records[place] = spans
        extras = records[place[has_forward] + 1]
        extras["kind"], extras["name"] = layout.EXTRA, layout.EXTRA_FORWARD_THREAD
        extras["start"] = trace.forward_thread[rows[has_forward]]
        records[place[has_forward] + 1] = extras
        yield int(tid), records


def _write_names(numbers: dict[str, int], file: raw_file.SpoolWriter) -> None:
    """All names, as the agent's segments have them."""
    written, data = 0, bytearray()
    for text, number in numbers.items():
        coded = text.encode()[: layout.NAME_BYTES]
        data += struct.pack("<II", number, len(coded)) + coded + bytes(-len(coded) % 8 or 8)
        if len(data) >= NAMES_BYTES:
            file.write(raw_file.NAMES, bytes(data), SEGMENT, 0, written)
            written, data = written + len(data), bytearray()
    file.write(raw_file.NAMES, bytes(data), SEGMENT, 0, written)


def _problems(processes: list[_Windowed], is_asked: bool) -> list[Problem]:
    """One sentence about all processes, and one about each window that cannot be read."""
    found = [
        Problem(OPERATORS, "window_damaged", sentence, "record again", "this window")
        for process in processes
        for sentence in process.damaged
    ]
    windows = [window for process in processes for window in process.windows]
    too_old = sorted(
        {process.about["torch"] for process in processes if process.over == "old_profiler"}
    )
    for torch in too_old:
        what = (
            f"the profiler of PyTorch {torch} records one thread only, so no windows of it were "
            "recorded either"
        )
        found.append(Problem(OPERATORS, "no_stock_windows", what, REMEDY, EVERYTHING))
    if not windows:
        return [
            *found,
            *_without_windows([process for process in processes if process.over != "old_profiler"]),
        ]
    processes = [process for process in processes if process.windows]
    open_s = sum(window["closed"][0] - window["opened"][0] for window in windows) / 1e9
    cost_s = sum(window["cost_ns"] for window in windows) / 1e9
    what = (
        f"only windows of PyTorch's own profiler could be recorded ({len(windows)} with "
        f"{open_s:.1f} s in "
        f"{len(processes)} process{'es' if len(processes) > 1 else ''}), for which the program "
        f"waited {cost_s:.1f} s"
    )
    if any(process.over == "profiler" for process in processes):
        what += "; they ended when the program used a profiler of its own"
    errors = sorted({process.error for process in processes if process.error})
    what += f"; they ended with {errors[0]}" if errors else ""
    found.append(Problem(OPERATORS, "stock_windows", what, REMEDY, LOST))
    if is_asked:
        what = "windows of PyTorch's own profiler begin and end by themselves"
        found.append(
            Problem(OPERATORS, NOT_AS_ASKED, what, REMEDY, "the window as it was asked for")
        )
    return found


def _without_windows(processes: list[_Windowed]) -> list[Problem]:
    """Why there is not a single window."""
    if not processes:
        return []
    what = "no window of PyTorch's own profiler had ended when the program did"
    if any(process.over == "profiler" for process in processes):
        what = "the program used PyTorch's own profiler before a window of it had ended"
    errors = sorted({process.error for process in processes if process.error})
    what += f" ({errors[0]})" if errors else ""
    return [Problem(OPERATORS, "no_stock_windows", what, REMEDY, EVERYTHING)]
