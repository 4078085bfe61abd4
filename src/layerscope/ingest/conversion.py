"""From a source to the tables of a recording, while the source still grows or long after.

Reads through `sources` and writes through `parts`. The same code converts beside a running program,
after it, an old recording again, and a file of another program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict

from layerscope.ingest.allocations import AllocationIngest
from layerscope.ingest.epochs import Epochs
from layerscope.ingest.limits import limits_of
from layerscope.ingest.parents import Keys, TrackNesting
from layerscope.ingest.parts import Parts
from layerscope.ingest.process import IngestedProcess, TrackKeys
from layerscope.ingest.ranks import problems_of_ranks, rank_of
from layerscope.ingest.small_tables import SmallTables
from layerscope.ingest.spans import (
    BACKWARD,
    EXECUTE,
    KERNEL,
    LAYERS,
    MODULE,
    SHARE,
    Columns,
    nullable,
)
from layerscope.ingest.stacks import StackIngest
from layerscope.ingest.string_table import ProcessStrings, StringTable
from layerscope.ingest.submissions import asked_ns
from layerscope.ingest.totals import SpanTotals
from layerscope.ingest.windows import problems as missed_windows
from layerscope.model.layers import KINDS, LAYER_OF_KIND, OPERATORS, SPAN_LAYERS
from layerscope.rawfile import windows
from layerscope.recording.arrow_columns import arrow_array
from layerscope.recording.writer import write_columns, write_rows
from layerscope.sources.process import SourceProcess, by_field
from layerscope.sources.raw.folder import RawRecording
from layerscope.sources.source import Source

# Below this a batch costs more in overhead than in work.
BATCH_RECORDS = 50_000
# What many processes together may let wait is bounded, so with them there are smaller ones.
LEAST_BATCH_RECORDS = 2_000
# Of a process that does little: some minutes.
BATCH_PIECES = 1_000
# Raw files are kept open until they are read: the converter beside a program may take spans out of
# them meanwhile.
MOST_OPEN_FILES = 256
# What may be kept, less what is still to come: the small tables, the last segment.
KEEP_SHARE = 0.9
HISTOGRAM = ("total", "from_ns", "count")
FIRST_SCOPE = KINDS.index("optimizer")


class RunConversion:
    """Converts a source into Parquet below `tables`.

    `memory_bytes`: what this process may take, None for plenty.
    """

    def __init__(self, source: Source, tables: Path, memory_bytes: int | None = None) -> None:
        self.source = source
        self.tables = tables
        self.processes: list[IngestedProcess] = []
        self.rows: dict[str, int] = {}
        # What all threads have used together.
        self.used = {"cpu_ns": 0, "faults_minor": 0, "faults_major": 0}
        self._keys = Keys()
        self._tracks = TrackKeys()
        self._texts = StringTable()
        self._totals = SpanTotals()
        self._window = windows.of_options(source.options)
        self._limits = limits = limits_of(source.options, memory_bytes)
        self._stripped: set[Path] = set()
        self.parts = Parts(tables, self._texts, self._totals, limits)
        self.stacks = StackIngest(source, tables, self._tracks, self._texts)
        self.allocations = AllocationIngest(tables, self._texts, limits.most_bytes)
        step_mark = source.options.get("step_mark", "")
        self._epochs = Epochs(self._texts, self._totals, self.parts, self.stacks, limits, step_mark)

    def advance(self, most: float = float("inf")) -> int:
        """Read what is new in the source, `most` spans or a few more of each process; returns how
        many were read.
        """
        self._add_processes(self.source.new_processes())
        self._epochs.step_mark = self.source.options.get("step_mark", "")
        self.stacks.advance()
        processes = self.processes
        before = [process.events.records for process in processes]
        # What is furthest behind goes on, so that the parts of all processes are in the order of
        # time.
        behind = [(process.events.read_until_ns, process.number) for process in processes]
        heapify(behind)
        streams: dict[int, Iterator[None]] = {}
        while behind:
            _, number = heappop(behind)
            process = processes[number]
            pieces = streams.get(number) or process.source.pieces()
            if len(streams) < MOST_OPEN_FILES:
                streams[number] = pieces
            if self._read_some(process, pieces) and process.events.records < before[number] + most:
                heappush(behind, (process.events.read_until_ns, number))
        return sum(process.events.records for process in processes) - sum(before)

    def _read_some(self, process: IngestedProcess, pieces: Iterator[None]) -> bool:
        """Read on in the files of a process, about a batch. False: there is no more."""
        share = LEAST_BATCH_RECORDS + 2 * self._limits.epoch_spans // len(self.processes)
        batch = min(BATCH_RECORDS, self._limits.epoch_spans, share)
        for count, _ in enumerate(pieces):
            if process.events.waiting >= batch:
                self._take(process)
                if self._epochs.is_full:
                    self._close_epoch()
                return True
            if count >= BATCH_PIECES:
                return True
        return False

    @property
    def is_wrong(self) -> bool:
        """Whether the source told something too late, so that it has to be read anew: not where
        spans were taken out of it.
        """
        return self.source.is_wrong and not self._stripped

    @property
    def most_bytes(self) -> float:
        """What the recording may take on disk."""
        return self._limits.most_bytes

    def backlog_share(self) -> float:
        """How much of the raw files is still to be read, as a share of what the recording may
        take.
        """
        return self.source.left_bytes() / self._limits.most_bytes

    def keep_within_size(self) -> None:
        """Take the spans out of raw files that were read, the oldest first, while the recording is
        too large.

        The first file of each process stays as long as there are others.
        """
        most_bytes = KEEP_SHARE * self._limits.most_bytes
        size_bytes = self.source.size_bytes() + self.stacks.size_bytes + self.allocations.size_bytes
        size_bytes += sum(part.size_bytes for part in self.parts.parts)
        if size_bytes <= most_bytes:
            return
        sources = [process.source for process in self.processes]
        read = [(source, file) for source in sources for file in source.read_files()]
        read = [(source, file) for source, file in read if file not in self._stripped]
        read.sort(key=lambda one: (one[0].is_first(one[1]), one[1].stat().st_mtime_ns))
        for source, file in read:
            if size_bytes <= most_bytes:
                return
            with suppress(OSError):  # it needs some space itself
                size_bytes -= source.strip(file)
                self._stripped.add(file)

    def _add_processes(self, sources: Sequence[SourceProcess]) -> None:
        for source in sources:
            texts = ProcessStrings(self._texts, source.events.names)
            process = IngestedProcess(len(self.processes), source, texts, self._tracks)
            process.windows.asked = self._window
            for track in source.events.tracks:  # those that are known before anything was read
                process.track_key(track)
            self.processes.append(process)

    def finish(self, session: dict[str, Any], keeps_within_size: bool = False) -> None:
        """Write everything that is left, and the tables that only the end knows."""
        self._add_processes(self.source.finish(session))
        self._epochs.step_mark = self.source.options.get("step_mark", "")
        self.advance()
        for process in self.processes:
            self._take(process, last=True)
            for nesting in process.nesting.values():
                nesting.finish()
        self._close_epoch(last=True)
        self.stacks.finish(self.processes)
        lost = [
            key
            for process in self.processes
            for n in process.nesting.values()
            for key in n.never_came
        ]
        if lost:
            self.parts.forget_parents(lost)
        self.parts.finish()
        self.rows |= {
            "spans": self.parts.rows,
            "links": self.parts.links,
            "primitives": self.parts.primitives,
        }
        self.rows |= self.stacks.rows
        self.allocations.finish()
        self.rows["allocations"] = self.allocations.rows
        self._write_steps()
        self._write_totals()
        if keeps_within_size:
            self.keep_within_size()
        self._write_small(session)

    def _close_epoch(self, last: bool = False) -> None:
        process_of_track = np.array(self._tracks.owners, np.int32)
        self._epochs.close(self.processes, process_of_track, last)

    # -- spans -------------------------------------------------------------------------------------

    def _take(self, process: IngestedProcess, last: bool = False) -> None:
        """Give the spans that can be judged now keys, parents and self times, and pass them on."""
        for track, rows in process.events.batches(last):
            self._take_track(process, track, rows)
        self.allocations.add(process, last)

    def _take_track(self, process: IngestedProcess, track: int, rows: np.ndarray) -> None:
        window = process.windows.known(process.events.window_marks)
        if window.known:
            rows = rows.compress(window.holds(asked_ns(rows)))
            if not len(rows):
                return
        spans = by_field(rows)
        nesting = process.nesting.setdefault(track, TrackNesting(self._keys, len(SPAN_LAYERS)))
        start, kind, origin = spans["start"], spans["kind"], spans["origin"]
        end = np.maximum(spans["end"], start)
        nested = nesting.add(start, end, spans["depth"], LAYERS.take(kind))
        codes, args = self._codes(process, spans)
        of_track = process.events.tracks.get(track)
        own = of_track.framework_thread if of_track else -1
        thread = np.array(own, np.int32)
        is_backward = kind == BACKWARD
        if is_backward.any():
            process.backward += int(np.count_nonzero(is_backward & (spans["unfinished"] == 0)))
            if origin.ndim:
                elsewhere = is_backward & (origin != 0)
                thread = np.where(elsewhere, origin, own).astype(np.int32)
        asked = np.broadcast_to(origin, kind.shape), rows["submitter"]
        process.submissions.add(kind, spans["seq"], nested.key, asked, process.track_key)
        process.device_work.add(rows, nested.key, nested.parent, process.track_key(track))
        process.has_spans = True
        process.has_scopes |= bool(((kind >= FIRST_SCOPE) & (kind <= MODULE)).any())
        self._epochs.add(
            {
                "span": nested.key,
                "track": np.array(process.track_key(track), np.int32),
                "parent": nested.parent,
                "depth": spans["depth"],
                "start_ns": start,
                "dur_ns": end - start,
                "self_ns": nested.self_ns,
                "kind_code": kind,
                "name_code": codes,
                "line_code": process.texts.lines(spans["line"]),
                "module": process.texts.modules(spans["module"]),
                "sequence": spans["seq"],
                "args": args,
                "unfinished": spans["unfinished"].astype(bool),
                "thread": thread,
                "optimizer": np.where(spans["optimizer"] != 0, spans["optimizer"], -1),
                "correlation": _correlations(kind, origin),
            }
        )

    def _codes(self, process: IngestedProcess, spans: Columns) -> tuple[np.ndarray, np.ndarray]:
        """The recording's own number for each of the process's names, and the keys of their
        arguments.
        """
        texts, kind, name, number = process.texts, spans["kind"], spans["name"], spans["args"]
        codes = texts.names(name)
        is_primitive = (kind >= EXECUTE) & (kind <= SHARE)
        told = np.flatnonzero((kind >= MODULE) & (kind < EXECUTE))
        has_args = bool(number.ndim)
        if not (len(told) or has_args):
            return codes, np.array(-1, np.int64)
        number = np.broadcast_to(number, kind.shape)
        args = np.full(len(kind), -1, np.int64)
        if has_args:
            args[:] = texts.args(np.where(is_primitive, 0, number))
            args[is_primitive] = texts.calls(number[is_primitive])
        if len(told):
            codes[told] = texts.first_lines(name[told])
            marked = told[
                (kind[told] != MODULE) & (number[told] == 0)
            ]  # the others tell their domain by themselves
            args[marked] = texts.domains(name[marked])
        return codes, args

    # -- what only the end knows -------------------------------------------------------------------

    def _write_steps(self) -> None:
        parts = []
        for process in self.processes:
            stepping = process.stepping
            if not stepping.count:
                continue
            found = stepping.columns()
            number = process.numbers(np.arange(stepping.count, dtype=np.int32))
            if number[0] > 0:  # recording began when the program was warm
                found["warmup"] = np.zeros(stepping.count, np.bool_)
            weight = np.ones(stepping.count, np.int32)
            known = self.parts.weights.get(process.number, weight[:0])
            is_known = number < len(known)
            weight[is_known] = known[number[is_known]]
            parts.append(
                {
                    "step": number,
                    "process": np.full(stepping.count, process.number),
                    "rule": np.full(stepping.count, stepping.rule, object),
                    "optimizer": np.full(
                        stepping.count, -1 if stepping.optimizer is None else stepping.optimizer
                    ),
                    **found,
                    "weight": weight,
                }
            )
        if not parts:
            self.rows["steps"] = write_rows(self.tables, "steps", [])
            return
        columns: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        columns["optimizer"] = nullable(columns["optimizer"].astype(np.int32))
        self.rows["steps"] = write_columns(self.tables, "steps", columns)

    def _write_totals(self) -> None:
        columns: dict[str, Any] = self._totals.columns()
        known = len(columns["total"])
        for process in self.processes:
            if process.events.stripped:
                unseen = self._unseen(process)
                columns = {
                    name: np.concatenate([values, unseen[name]]) for name, values in columns.items()
                }
        columns["total"] = np.arange(len(columns["total"]))
        is_unseen = columns["total"] >= known
        for name in ("self_ns", "min_ns", "max_ns"):
            columns[name] = arrow_array(columns[name], ~is_unseen)
        names, kind = np.array([*self._texts.names, ""], object), columns.pop("kind_code")
        columns["layer"] = np.array(SPAN_LAYERS, object)[np.array(LAYER_OF_KIND)[kind]]
        columns["kind"] = np.array(KINDS, object)[kind]
        columns["name"] = names[columns.pop("name_code")]
        columns["module"] = nullable(columns["module"].astype(np.int32))
        classes = np.where(is_unseen, 2, columns.pop("in_step"))
        columns["step_class"] = np.array(["outside", "step", "unknown"], object)[classes]
        self.rows["totals"] = write_columns(self.tables, "totals", columns)
        histograms = (
            self._totals.histogram_columns()
            if self.parts.is_thinned
            else dict.fromkeys(HISTOGRAM, ())
        )
        self.rows["histograms"] = write_columns(self.tables, "histograms", histograms)

    def _unseen(self, process: IngestedProcess) -> dict[str, np.ndarray]:
        """Rows of totals for the spans that were taken out of the raw files: the drainer's sums
        less what was read.
        """
        kind, number, count, ticks = process.events.unseen.T
        readings = process.events.clock.readings
        (its, run_ns), (last_its, last_ns) = (
            (readings[0], readings[-1]) if len(readings) > 1 else ((0, 0), (1, 1))
        )
        name = process.texts.names(number)
        told = kind >= MODULE
        name[told] = process.texts.first_lines(number[told])
        total_ns = np.rint(ticks * ((last_ns - run_ns) / (last_its - its))).astype(np.int64)
        # Names that were different in the program may be the same here.
        keys, row = np.unique(np.column_stack([kind, name]), axis=0, return_inverse=True)
        zeros = np.zeros(len(keys), np.int64)
        sums = np.zeros((len(keys), 2), np.int64)
        np.add.at(sums, row.ravel(), np.column_stack([count, np.maximum(total_ns, 0)]))
        return {
            "total": zeros,
            "process": zeros + process.number,
            "kind_code": keys[:, 0],
            "name_code": keys[:, 1],
            "module": zeros - 1,
            "in_step": zeros,
            "count": sums[:, 0],
            "total_ns": sums[:, 1],
            "self_ns": zeros,
            "min_ns": zeros,
            "max_ns": zeros,
        }

    def _unmatched(self) -> list[dict[str, Any]]:
        """The problem that what the user called a step never came."""
        mark = self._epochs.step_mark
        if not mark or any(process.stepping.rule == "mark" for process in self.processes):
            return []
        what = f"--step-mark {mark}: nothing was recorded by that name or line"
        remedy = (
            "see the names in `layerscope table spans`, or the lines in `layerscope table "
            "operators --by line`"
        )
        return [
            {
                "layer": OPERATORS,
                "code": "no_step_mark",
                "what": what,
                "remedy": remedy,
                "lost": "steps as asked",
            }
        ]

    def _windows_missed(self) -> list[dict[str, Any]]:
        """The problems of the windows that were asked for."""
        about = [
            (
                one.events.about.get("pid", 0),
                one.windows.known(one.events.window_marks),
                one.stepping.starts(),
            )
            for one in self.processes
        ]
        self.allocations.in_windows = any(one.known for _, one, _ in about)
        begun = max((one.events.final.get("window_steps", 0) for one in self.processes), default=0)
        has_spans = self.parts.rows > 0
        has_samples = self.stacks.rows.get("samples", 0) > 0
        return missed_windows(self._window, about, has_spans, begun, has_samples)

    def _of_source(self) -> list[dict[str, str]]:
        """What has to be said about the source itself."""
        problems = self.source.problems()
        return problems_of_ranks(
            {rank: [asdict(one) for one in found] for rank, found in problems.items()}
        )

    def _not_kept(self) -> list[dict[str, Any]]:
        """What is not there any more so that the recording stays within its size."""
        if not self._stripped:
            return []
        most = f"{self._limits.most_bytes / 1e6:,.0f} MB"
        what = (
            f"raw files were removed to keep the recording below {most}: their part cannot be "
            "converted again"
        )
        remedy = "nothing to do: the tables hold what was in them; to keep everything: run --full"
        return [
            {"layer": OPERATORS, "code": "raw_removed", "what": what, "remedy": remedy, "lost": ""}
        ]

    def _write_small(self, session: dict[str, Any]) -> None:
        """All that is not made of spans."""
        small = SmallTables(self._texts, len(self._tracks.owners))
        for process in self.processes:
            small.add_process(process, session)
        small.rows["processes"].extend(
            self.stacks.process_rows((one.source.rank, one.source.host) for one in self.processes)
        )
        small.rows["tracks"].extend(
            self.stacks.track_rows({row["track"] for row in small.rows["tracks"]})
        )
        self.stacks.add_ends(small)
        small.name_threads(self.stacks.thread_names())
        self.stacks.add_accounts(small)
        small.rows["gaps"].extend(self.stacks.gap_rows())
        small.add_texts()
        small.rows["problems"].extend(
            [*session.get("problems", []), *self._unmatched(), *self._windows_missed()]
        )
        small.rows["problems"].extend(self._of_source())
        small.rows["problems"].extend([*self._not_kept(), *self.stacks.problems()])
        small.rows["problems"].extend(map(asdict, self.allocations.problems()))
        small.add_problems(self.processes)
        self.used = {name: _sum_of(small.rows["tracks"], name) for name in self.used}
        self.rows.update(small.write(self.tables))


def _sum_of(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    total = 0
    for row in rows:
        total += row.get(name) or 0
    return total


def _correlations(kind: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """What ties work of GPUs to the call that launched it; -1: it has none."""
    none = np.array(-1, np.int64)
    if not (origin.ndim and kind.max(initial=0) >= KERNEL):
        return none
    return np.where((kind >= KERNEL) & (origin != 0), origin, none)


def conversion_of_raw(
    raw: Path,
    tables: Path,
    memory_bytes: int | None = None,
    follows: bool = False,
    loop: str = "",
) -> RunConversion:
    """The conversion of the raw files below `raw`. `follows`, `loop`: as of `RawRecording`."""
    source = RawRecording(raw, rank_of(raw), follows=follows, loop=loop)
    return RunConversion(source, tables, memory_bytes)
