"""The windows of PyTorch's own profiler, recorded where nothing better could be.

`inside/pytorch_windows.py` leaves a folder for each process: windows.jsonl, and a trace for each
window. Their spans are read behind the raw file of the process, as the agent would have recorded
them. What lies across the edge of a window is left out: nobody knows when it began, or ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from layerscope.model.clocks import Conversion
from layerscope.model.distinct import distinct
from layerscope.model.errors import ReadError
from layerscope.model.events import Problem
from layerscope.model.layers import OPERATORS
from layerscope.model.secrets import mask
from layerscope.rawfile import dtypes, layout, raw_file
from layerscope.rawfile.log_files import raw_file_of_windows
from layerscope.rawfile.sums import RawTotals
from layerscope.sources.kineto_window import KinetoTrace, read_trace
from layerscope.sources.raw.decoder import Decoder
from layerscope.sources.raw.late_spans import name_chunks
from layerscope.sources.span_depths import depths

CHUNK_RECORDS = 50_000
# Numbers of rings and segments that no agent gives.
FIRST_RING, SEGMENT = 1 << 20, 1 << 20
MARK_NAME = "window"
REMEDY = "follow the remedy of the other problem, so that the agent can record, and record again"
EVERYTHING = "operators, ranges, optimizer steps and loader waits"
LOST = (
    "operators outside of the windows and across their edges, modules, shapes of inputs, lines of "
    "ranges, and what was open when the program ended"
)


class StockWindows:
    """The windows of one process, listed in the file at `path`.

    `about`: what the process said of itself; empty where it could not write that. `windows`: in the
    order of time. `over`: why they ended; `error`: with which exception. `damaged`: sentences about
    traces that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.about: dict[str, Any] = {}
        self.windows: list[dict[str, Any]] = []
        self.over = self.error = ""
        self.damaged: list[str] = []
        self.raw_file = raw_file_of_windows(path)
        self._traces: list[KinetoTrace] = []
        self._read_lines(path)
        self._read_traces(path.parent)

    def _read_lines(self, path: Path) -> None:
        content = path.read_bytes()
        for line in content.splitlines():
            try:
                fields = msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # the program was killed while it wrote
            if "pid" in fields:
                self.about = fields
            elif "file" in fields:
                self.windows.append(fields)
            else:
                self.over = fields.get("over", "")
                self.error = fields.get("error", "")

    def _read_traces(self, folder: Path) -> None:
        """Read the traces of all windows."""
        clock = Conversion()
        for window in self.windows:
            for run_ns, realtime_ns in (window["opened"], window["closed"]):
                clock.add(realtime_ns, run_ns)
        for window in self.windows:
            try:
                self._traces.append(read_trace(folder / window["file"], clock))
            except ReadError as error:
                self.damaged.append(f"{error}; the other windows are kept")

    def chunks(self) -> Iterator[raw_file.Chunk]:
        """The chunks that follow those of the raw file."""
        if not (self.about and self.windows):
            return
        before = Decoder()
        for chunk in raw_file.SpoolReader(self.raw_file).chunks():
            before.add(chunk)
        is_new = not before.about
        if is_new:
            yield raw_file.Chunk(raw_file.PROCESS, 0, 0, 0, self._process())
        readings = [
            _reading(*moment)
            for window in self.windows
            for moment in (window["opened"], window["closed"])
        ]
        if is_new:
            yield raw_file.Chunk(raw_file.POLL, 0, 0, 0, readings[0])
        yield from self._spans(before)
        # Each makes a reader look at what came before it: they come after all, in the order of
        # time.
        for reading in readings[1:] if is_new else readings[-1:]:
            yield raw_file.Chunk(raw_file.POLL, 0, 0, 0, reading)
        yield raw_file.Chunk(raw_file.END, 0, 0, 0, b"{}")

    def _process(self) -> bytes:
        about = {name: self.about[name] for name in ("pid", "ppid", "start_ns")}
        about["clock"] = "monotonic"
        about["kinds"] = layout.SPAN_KINDS
        words = [str(word) for word in self.about.get("argv", [])]
        about["argv"] = mask(words)
        return json.dumps(about).encode()

    def _spans(self, before: Decoder) -> Iterator[raw_file.Chunk]:
        """Names, then a ring for each thread, then the sums of them all. What an agent wrote keeps
        its numbers.
        """
        numbers = {MARK_NAME: len(before.names)}
        of_threads = {int(self.about["tid"]): [_marks(self.windows, numbers[MARK_NAME])]}
        thread_names: dict[int, str] = {}
        framework_threads: dict[int, int] = {}
        for trace in self._traces:
            thread_names |= trace.thread_names
            framework_threads |= trace.framework_threads
            for tid, records in _records(trace, numbers, len(before.names)):
                of_threads.setdefault(tid, []).append(records)
        yield from name_chunks([*before.names, *numbers], SEGMENT)
        to_ticks = before.to_ticks()
        first_track = max(before.tracks, default=0) + 1
        totals = RawTotals()
        for at, (tid, parts) in enumerate(of_threads.items()):
            begins = np.zeros(1, dtypes.RECORD)
            begins["kind"] = layout.THREAD_BEGIN
            begins["start"], begins["end"] = self.about["start_ns"], tid
            begins["seq"], begins["module"] = framework_threads.get(tid, -1), first_track + at
            records = np.concatenate([begins, *parts])
            _put_on_clock(records, to_ticks)
            totals.add(records)
            for first in range(0, len(records), CHUNK_RECORDS):
                rows = records[first : first + CHUNK_RECORDS]
                yield raw_file.Chunk(
                    raw_file.RECORDS, FIRST_RING + at, len(rows), first, rows.tobytes()
                )
        if thread_names:
            named = json.dumps(thread_names).encode()
            yield raw_file.Chunk(raw_file.THREADS, 0, 0, 0, named)
        yield raw_file.Chunk(raw_file.TOTALS, 0, 0, 0, totals.packed())


def _put_on_clock(records: np.ndarray, to_ticks: Conversion) -> None:
    """Take the times of records from the run's clock to that of the raw file, in place."""
    kind, start, end = records["kind"], records["start"], records["end"]
    is_span = kind < layout.FIRST_SPECIAL
    is_moment = np.isin(kind, (layout.MARK, layout.THREAD_BEGIN))
    has_start = is_span | is_moment
    start[has_start] = to_ticks.to_run(start[has_start])
    end[is_span] = to_ticks.to_run(end[is_span])


def _reading(run_ns: int, realtime_ns: int) -> bytes:
    ticks = error_ns = 0
    reading = np.array([ticks, run_ns, realtime_ns, error_ns], "<i8")
    return reading.tobytes()


def _marks(windows: list[dict[str, Any]], name: int) -> np.ndarray:
    """When windows opened and closed: by time, between steps that nobody counted."""
    marks = np.zeros(2 * len(windows), dtypes.RECORD)
    marks["kind"] = layout.MARK
    marks["name"] = name
    marks["seq"] = -1
    marks["end"] = layout.RULE_NONE | layout.WINDOW_BY_TIME
    opened, closed = marks[0::2], marks[1::2]
    opened["start"] = [window["opened"][0] for window in windows]
    opened["end"] |= layout.WINDOW_WAS_CLOSED
    opened["module"] = layout.MARK_OPENED
    closed["start"] = [window["closed"][0] for window in windows]
    closed["module"] = layout.MARK_CLOSED
    return marks


def _records(
    trace: KinetoTrace, numbers: dict[str, int], known: int
) -> Iterator[tuple[int, np.ndarray]]:
    """By thread, the spans of a trace in the order of their ends, as the agent writes them.
    `numbers`: of names.
    """
    new_numbers = [numbers.setdefault(text, known + len(numbers)) for text in trace.names]
    number = np.array(new_numbers, np.uint32)
    whole = np.flatnonzero(~trace.unfinished)
    tids, ends_ns = trace.tid[whole], trace.end_ns[whole]
    depth = depths(tids, trace.start_ns[whole], ends_ns)
    for tid in distinct(tids).tolist():
        of_thread = np.flatnonzero(tids == tid)
        order = np.argsort(ends_ns[of_thread], kind="stable")
        of_thread = of_thread[order]
        rows = whole[of_thread]
        forward_thread = trace.forward_thread[rows]
        has_forward = forward_thread > 0
        spans = np.zeros(len(rows), dtypes.RECORD)
        spans["start"] = trace.start_ns[rows]
        spans["end"] = trace.end_ns[rows]
        spans["name"] = number[trace.name[rows]]
        spans["seq"] = trace.seq[rows]
        spans["kind"] = trace.kind[rows]
        spans["depth"] = depth[of_thread]
        spans["flags"] = np.where(has_forward, layout.FLAG_EXTRA, 0)
        extras = np.zeros(int(has_forward.sum()), dtypes.RECORD)
        extras["kind"] = layout.EXTRA
        extras["name"] = layout.EXTRA_FORWARD_THREAD
        extras["start"] = forward_thread[has_forward]
        # An extra record comes behind its span.
        place = np.arange(len(rows)) + np.cumsum(has_forward) - has_forward
        records = np.zeros(len(spans) + len(extras), dtypes.RECORD)
        records[place] = spans
        records[place[has_forward] + 1] = extras
        yield int(tid), records


def problems_of_windows(processes: list[StockWindows], is_asked: bool) -> list[Problem]:
    """One sentence about all processes, and one about each window that cannot be read.

    `is_asked`: the user asked for a window, which these know nothing of.
    """
    processes = [process for process in processes if process.about]
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
        f"{open_s:.1f} s in {len(processes)} process{'es' if len(processes) > 1 else ''}), for "
        f"which the program waited {cost_s:.1f} s"
    )
    if any(process.over == "profiler" for process in processes):
        what += "; they ended when the program used a profiler of its own"
    errors = sorted({process.error for process in processes if process.error})
    what += f"; they ended with {errors[0]}" if errors else ""
    found.append(Problem(OPERATORS, "stock_windows", what, REMEDY, LOST))
    if is_asked:
        what = "windows of PyTorch's own profiler begin and end by themselves"
        found.append(
            Problem(
                OPERATORS, "window_not_as_asked", what, REMEDY, "the window as it was asked for"
            )
        )
    return found


def _without_windows(processes: list[StockWindows]) -> list[Problem]:
    """Why there is not a single window."""
    if not processes:
        return []
    what = "no window of PyTorch's own profiler had ended when the program did"
    if any(process.over == "profiler" for process in processes):
        what = "the program used PyTorch's own profiler before a window of it had ended"
    errors = sorted({process.error for process in processes if process.error})
    what += f" ({errors[0]})" if errors else ""
    return [Problem(OPERATORS, "no_stock_windows", what, REMEDY, EVERYTHING)]
