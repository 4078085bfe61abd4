"""A recording while it grows: what is new in its raw files, summed up.

Nothing is written, and no table is made. What was read is not kept: memory follows the number of
different names and stacks.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import numpy as np

from layerscope.ingest.frames import FrameNames
from layerscope.ingest.live.buckets import Spread, oldest_bucket
from layerscope.ingest.live.paths import PathTable
from layerscope.ingest.live.rows import RowNumbers
from layerscope.ingest.live.samples import LiveSamples
from layerscope.ingest.live.spans import LiveSpans, TrackSums
from layerscope.ingest.string_table import StringTable
from layerscope.model.live import (
    BUCKET_NS,
    FUNCTIONS,
    OPERATORS,
    PRIMITIVES,
    STEP_RULES,
    SYMBOLS,
    THREADS,
    WAITS,
    Increment,
    KeyedSums,
    Known,
    ProcessLevel,
    counted,
)
from layerscope.rawfile import counters, windows
from layerscope.sources.raw.folder import RawRecording
from layerscope.sources.raw.growing import KeptSpoolReader, keep_open
from layerscope.sources.raw.process import RawProcess

_CPU = counters.NAMES.index("cpu_ns")
_LEVELS = {counters.NAMES.index(name): name for name in ("rss_bytes", "rss_peak_bytes", "threads")}


# Who is further behind than this has nothing more to say.
_MOST_LAG_NS = 4_000_000_000


class LiveRecording:
    """What is new in the raw folder `raw`, again and again. What ended `keep_ns` before the newest
    is not told apart by time. `known`: what the keys of increments stand for. `names_only`: an
    inlined function counts for the one that it is in, which saves reading debugging information.
    `every`: of so many records one is read, and stands for the others.
    """

    every = 1

    def __init__(self, raw: Path, keep_ns: int, names_only: bool = True) -> None:
        self.raw = raw
        self.known = Known()
        self._keep_ns = keep_ns
        self._source = RawRecording(raw, is_live=True)
        self._window = windows.of_options(self._source.options)
        self._closing = ExitStack()
        rows = {name: RowNumbers(labels) for name, labels in self.known.labels.items()}
        self._rows = rows
        frames = FrameNames(StringTable(), names_only=names_only)
        self._frames = frames
        self._paths = PathTable(frames, rows[FUNCTIONS], rows[SYMBOLS])
        self._processes: list[tuple[RawProcess, LiveSpans]] = []
        self._samplers: list[LiveSamples] = []
        self._cpu_ns: dict[int, tuple[int, int]] = {}  # by pid when its counters said what last
        self._end_ns = 0  # the end of the newest bucket that has something
        self._counting: set[int] = set()  # processes that have counters of their own

    def __enter__(self) -> LiveRecording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files."""
        self._closing.close()
        self._frames.close()

    def advance(self, last: bool = False, deadline: float = math.inf) -> Increment:
        """What has come since the last call. At `deadline` (time.monotonic) it stops, and goes on
        there the next time: `read_share` is less than 1 then. With `last`, nothing more will come:
        spans that never ended count too, once all is read.
        """
        self._find_new()
        found = Increment(every=self.every)
        before_ns = time.thread_time_ns()
        for process, spans in self._processes:
            self._read(process, spans, found, deadline)
        found.cpu_ns = time.thread_time_ns() - before_ns
        if last and found.read_share == 1.0:
            for _, spans in self._processes:
                for sums in spans.finish(self._keep_ns):
                    _add_spans(found, sums)
        for samples in self._samplers:
            self._add_samples(samples, found)
        self._add_steps(found)
        for part in (*chain(*found.counted.values()), *found.cpu):
            self._end_ns = max(self._end_ns, (int(part.bucket.max()) + 1) * BUCKET_NS)
        found.until_ns = self._until_ns(last and found.read_share == 1.0)
        self.known.lost = sum(self._lost(process) for process, _ in self._processes)
        return found

    def _read(
        self, process: RawProcess, spans: LiveSpans, found: Increment, deadline: float
    ) -> None:
        """Read on in the files of a process."""
        for sums in spans.advance(self._keep_ns, self.every):
            _add_spans(found, sums)
            if time.monotonic() > deadline:
                left = self._source.left_bytes()
                found.read_share = min(1 - left / max(self._source.size_bytes(), 1), 0.99)
                break
        self._add_counters(process, found)

    def _until_ns(self, last: bool) -> int:
        """All that ended before this is read. Samples come behind: a wait is told at its end, or
        once a second. With `last` it is when the program ended.
        """
        of_spans = max((one.events.read_until_ns for one, _ in self._processes), default=-1)
        of_samples = max((one.until_ns for one in self._samplers), default=-1)
        later_ns = max(of_spans, of_samples)
        earlier_ns = min(of_spans, of_samples)
        if last:
            return min(later_ns + BUCKET_NS, self._end_ns or later_ns)
        lags = earlier_ns >= 0 and later_ns - earlier_ns <= _MOST_LAG_NS
        return earlier_ns if lags else later_ns

    def _find_new(self) -> None:
        """Processes and samplers that were not there before."""
        step_mark = str(self._source.options.get("step_mark", ""))
        for process in self._source.new_processes():
            reader: KeptSpoolReader = keep_open(process)
            self._closing.callback(reader.close)
            rows = self._rows[OPERATORS], self._rows[PRIMITIVES]
            spans = LiveSpans(process, reader, *rows, self._window, step_mark)
            self._processes.append((process, spans))
        for sampler in self._source.new_samples():
            rows = self._rows[THREADS], self._rows[WAITS]
            self._samplers.append(LiveSamples(sampler, self._paths, *rows))

    def _add_samples(self, samples: LiveSamples, found: Increment) -> None:
        for sums in samples.advance(self._keep_ns):
            self.known.has_samples = True
            _add(found, FUNCTIONS, sums.functions)
            _add(found, SYMBOLS, sums.symbols)
            _add(found, THREADS, sums.threads)
            _add(found, WAITS, sums.waits)
        _add(found, THREADS, samples.accounts(self._keep_ns))
        for level in samples.levels():
            if level.pid in self._counting:
                self.known.processes[level.pid].is_over |= level.is_over
            else:
                self.known.processes[level.pid] = level
        for pid in samples.ended():
            if pid in self.known.processes:
                self.known.processes[pid].is_over = True

    def _add_counters(self, process: RawProcess, found: Increment) -> None:
        """CPU time and memory by the counters of a process, which are not kept."""
        events = process.events
        pid = int(events.about.get("pid", 0))
        if pid in self._counting:
            self.known.processes[pid].is_over = events.ended
        if not events.counters:
            return
        rows = np.concatenate(events.counters)
        events.counters.clear()
        level = self.known.processes.setdefault(pid, ProcessLevel(pid))
        self._counting.add(pid)
        level.is_over = events.ended
        for counter, name in _LEVELS.items():
            values = rows["value"][rows["counter"] == counter]
            if len(values):
                setattr(level, name, int(values[-1]))
        of_cpu = rows[rows["counter"] == _CPU]
        if not len(of_cpu):
            return
        at_ns, values = of_cpu["at_ns"].astype(np.int64), of_cpu["value"].astype(np.int64)
        read_ns, before_ns = self._cpu_ns.get(pid, (max(int(at_ns[0] - values[0]), 0), 0))
        self._cpu_ns[pid] = int(at_ns[-1]), int(values[-1])
        begin_ns = np.append(read_ns, at_ns[:-1])
        spread = Spread(begin_ns, at_ns, oldest_bucket(int(at_ns[-1]), self._keep_ns))
        grown = spread.parts(np.maximum(np.diff(values, prepend=before_ns), 0))
        found.cpu.append(counted(spread.bucket, np.full(len(grown), pid), grown))

    def _add_steps(self, found: Increment) -> None:
        """Where steps of all processes have ended."""
        taken = [spans.steps.take() for _, spans in self._processes]
        for rule in STEP_RULES:
            parts = [ends[rule] for ends in taken if rule in ends]
            if parts:
                found.step_ends[rule] = np.concatenate(parts)

    def _lost(self, process: RawProcess) -> int:
        events = process.events
        return sum(loss.lost or 0 for loss in events.losses)


def _add_spans(found: Increment, sums: TrackSums) -> None:
    _add(found, OPERATORS, sums.operators)
    _add(found, PRIMITIVES, sums.primitives)


def _add(found: Increment, table: str, sums: KeyedSums | None) -> None:
    """Add the rows of a table; None: there are none."""
    if sums is None or not len(sums.key):
        return
    parts = found.counted.setdefault(table, [])
    parts.append(sums)
