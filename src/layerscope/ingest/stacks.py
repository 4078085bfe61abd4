"""What was sampled on its way into the tables `frames`, `stacks` and `samples`: names, tracks, open
spans, steps.

Samples meet the spans of their epoch when it ends; those of processes without spans at the end.
What they are fused with is then known, and how depends on the names of functions: that waits until
there are many samples, or no more come. So nearly always a program has ended before anything is
named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from layerscope.ingest import waiting
from layerscope.ingest.accounts import (
    counters_of_one_alone,
    counters_of_process,
    totals_of_threads,
    untold,
)
from layerscope.ingest.frames import FrameNames
from layerscope.ingest.open_spans import OpenSpans
from layerscope.ingest.phases import BACKWARD_PHASE
from layerscope.ingest.process import IngestedProcess, TrackKeys
from layerscope.ingest.sample_source import EVER, SampledStacks, SampleSource
from layerscope.ingest.sampler_files import Sampled
from layerscope.ingest.small_tables import SmallTables
from layerscope.ingest.spans import Columns, nullable
from layerscope.ingest.stack_tree import NONE, Fusion, chains_of
from layerscope.ingest.string_table import ProcessStrings, StringTable
from layerscope.model.layers import PHASES, SAMPLE_KINDS, SAMPLE_STATES, STACKS
from layerscope.recording.writer import TableWriter, codes_to_names, write_columns
from layerscope.sources.process import ProcessEvents, SourceProcess
from layerscope.sources.raw.folder import SamplerFile
from layerscope.sources.source import Source

if TYPE_CHECKING:
    from layerscope.sources.imported import ImportedStacks

_OF_WORKER = "_of_worker"
_KERNEL, _BACKWARD = SAMPLE_STATES.index("kernel"), SAMPLE_STATES.index("backward")

# Samples that wait for names: 20 MB of memory.
HELD_ROWS = 200_000

# Step and phase at times of tracks, -1 for none.
Assign = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# By process: itself, up to which time an epoch holds its samples, and what tells their steps.
Until = dict[int, tuple[IngestedProcess, int, Assign]]


class StackIngest:
    """The samples of one conversion. `tracks` gives their threads keys; `rows`: of its tables."""

    def __init__(self, source: Source, tables: Path, tracks: TrackKeys, texts: StringTable) -> None:
        self.tables = tables
        self.tracks = tracks
        self.texts = texts
        self.rows: dict[str, int] = {}
        self._source = source
        self._sources: list[SampleSource] = []
        # By number of a process of which nothing else is known: its file, and its number there.
        self._alone: dict[int, tuple[IngestedProcess, Sampled, int]] = {}
        self._fusion = Fusion()
        self._frames = FrameNames(texts, self._fusion.anchors)
        self._fusion.of_spans = self._frames.of_spans
        self._held: list[tuple[SampleSource, Columns]] = []
        self._sampled = SampledStacks(self._fusion, self._frames)
        self._writer = TableWriter(tables, "samples")

    @property
    def _files(self) -> list[Sampled]:
        """Those of our own sampler."""
        return [source for source in self._sources if isinstance(source, Sampled)]

    def advance(self) -> None:
        """Read what is new of the samples."""
        self._sources += [self._opened(one) for one in self._source.new_samples()]
        for source in self._sources:
            source.advance()

    def _opened(self, samples: SamplerFile | ImportedStacks) -> SampleSource:
        """What reads these samples."""
        if isinstance(samples, SamplerFile):
            return Sampled(samples.path, samples.rank, samples.shift_ns, self._sampled, self.tracks)
        from layerscope.ingest.foreign_stacks import NamedSamples

        return NamedSamples(samples, self._sampled)

    @property
    def size_bytes(self) -> int:
        """What the table of samples takes so far."""
        return self._writer.size_bytes

    def known_until_ns(self) -> int:
        """The time before which no more samples will come."""
        self.advance()
        return min((source.known_until_ns() for source in self._sources), default=EVER)

    # -- fusion ------------------------------------------------------------------------------------

    def fuse(
        self,
        columns: Columns,
        inside: np.ndarray,
        process_of: np.ndarray,
        links: Columns,
        until: Until,
    ) -> None:
        """Write the samples of an epoch whose spans are `columns`, by track, start and depth, with
        these `links`.

        `inside`: the row of the parent of each span, -1 for none. `process_of`: the process of each
        track. `until`: the processes whose samples belong to this epoch.
        """
        self.advance()
        spans = (
            OpenSpans(columns, inside, process_of, links, self._frames)
            if len(columns["span"])
            else None
        )
        until_ns = {number: cut_ns for number, (_, cut_ns, _) in until.items()}
        for source in self._sources:
            source.find_processes([process for process, _, _ in until.values()])
            for number, rows in source.take(until_ns):
                process, _, assign = until[number]
                columns = self._with_spans(source.columns(rows, process), process, spans, assign)
                self._held.append((source, columns))
        if sum(len(columns["at_ns"]) for _, columns in self._held) > HELD_ROWS:
            self._write_held()

    def _with_spans(
        self, columns: Columns, process: IngestedProcess, spans: OpenSpans | None, assign: Assign
    ) -> Columns:
        """Samples of one process, with what was open; and what was if they are of workers of a
        team, which only names tell.
        """
        at_ns, track = columns["at_ns"], columns["track"]
        for name in ("span", "chain", "span" + _OF_WORKER, "chain" + _OF_WORKER):
            columns[name] = np.full(len(at_ns), NONE, np.int64)
        if spans is not None:
            found = spans.at(track, at_ns)
            either = np.append(found, spans.worked_for(found, at_ns, process.number))
            chain = chains_of(either, spans.parent, spans.frames_of, self._fusion.chains)
            span = np.append(spans.span, NONE)[either]
            for name, values in (("span", span), ("chain", chain)):
                columns[name], columns[name + _OF_WORKER] = np.split(values, 2)
        step, columns["phase"] = assign(at_ns, track)
        columns["step"] = process.numbers(step)
        return columns

    def _write_held(self) -> None:
        """Write the samples that waited for names."""
        held, self._held = self._held, []
        for source in self._sources:
            source.name()
        named: list[Columns] = []
        rows = 0
        for source, columns in held:
            columns = source.with_names(columns)
            is_worker = columns.pop("evidence") & waiting.TEAM > 0
            for name in ("span", "chain"):
                of_worker = columns.pop(name + _OF_WORKER)
                columns[name] = np.where(is_worker, of_worker, columns[name])
            # The thread began to wait when no backward function had begun on the other one.
            in_backward = (columns["state"] == _BACKWARD) & (columns["phase"] >= 0)
            columns["phase"][in_backward] = BACKWARD_PHASE
            named.append(columns)
            rows += len(columns["at_ns"])
            if rows > HELD_ROWS:
                self._write_named(named)
                named, rows = [], 0
        self._write_named(named)

    def _write_named(self, parts: list[Columns]) -> None:
        """Write samples of some processes, of each its own columns, as one part of the table."""
        if not parts:
            return
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        columns["stack"] = self._fused(columns["stack"], columns.pop("chain"))
        self._add(self._with_kernel(columns))

    def _with_kernel(self, columns: Columns) -> Columns:
        """Samples of which a part was in the kernel become two rows: that follows the rest."""
        kernel_ns = columns.pop("kernel_ns")
        in_kernel = np.flatnonzero(kernel_ns)
        if not len(in_kernel):
            return columns
        columns["weight_ns"] = columns["weight_ns"] - kernel_ns
        more = {name: values[in_kernel] for name, values in columns.items()}
        more["weight_ns"] = kernel_ns[in_kernel]
        more["state"] = np.full(len(in_kernel), _KERNEL, np.int32)
        stacks, inverse = np.unique(more["stack"], return_inverse=True)
        more["stack"] = np.array([self._in_kernel(one) for one in stacks.tolist()])[inverse]
        # Which function was in the kernel was not seen by itself: both rows are one sample.
        columns["count"][in_kernel] = 0
        kept = np.flatnonzero((kernel_ns == 0) | (columns["weight_ns"] > 0))
        order = np.argsort(np.append(kept, in_kernel), kind="stable")
        return {
            name: np.append(values[kept], more[name])[order] for name, values in columns.items()
        }

    def _in_kernel(self, stack: int) -> int:
        """The stack of time in the kernel of which the sampler does not know more, or does
        already.
        """
        fused = self._fusion.fused
        if stack >= 0 and self._frames.is_kernel(fused.frame[stack]):
            return stack
        return fused.push(stack, self._frames.kernel)

    def _fused(self, stack: np.ndarray, chain: np.ndarray) -> np.ndarray:
        found = stack.copy()
        is_adopted = stack >= self._fusion.adopted
        rows = np.flatnonzero((chain != NONE) | is_adopted)
        pair_of_row = (stack[rows] + 1) << 32 | (chain[rows] + 1)
        pairs, inverse = np.unique(pair_of_row, return_inverse=True)
        sampled = (pairs >> 32) - 1
        spans = (pairs & 0xFFFFFFFF) - 1
        fused = self._fusion.stacks(sampled, spans)
        found[rows] = fused[inverse]
        return found

    def _add(self, columns: dict[str, np.ndarray]) -> None:
        order = np.argsort(columns["at_ns"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
        arrow: dict[str, Any] = {
            name: columns[name]
            for name in ("at_ns", "track", "weight_ns", "count", "idle", "exact")
        }
        columns["stack"] = columns["stack"].astype(np.int32)
        for name in ("stack", "span", "step", "waker", "rate_hz"):
            arrow[name] = nullable(columns[name])
        arrow["kind"] = codes_to_names(columns["kind"], pa.array(SAMPLE_KINDS))
        arrow["state"] = codes_to_names(columns["state"], pa.array(SAMPLE_STATES))
        phase = nullable(columns["phase"].astype(np.int32))
        arrow["phase"] = pa.DictionaryArray.from_arrays(phase, pa.array(PHASES))
        self._writer.add(arrow)

    # -- the end -----------------------------------------------------------------------------------

    def finish(self, processes: Sequence[IngestedProcess]) -> None:
        """Write what is left, and the tables of frames and stacks."""
        self.advance()
        place = len(processes)
        for source in self._files:
            source.find_processes(
                [*processes, *(process for process, _, _ in self._alone.values())]
            )
            later = source.programs_after()
            for number in source.file.processes:
                if number not in source.process_of and number not in later:
                    source.process_of[number] = place
                    self._alone[place] = self._only_sampled(place, source, number), source, number
                    place += 1
            for number in sorted(later, reverse=True):
                source.process_of.setdefault(number, source.process_of[later[number]])
        everyone = [*processes, *(process for process, _, _ in self._alone.values())]
        until: Until = {one.number: (one, EVER, _no_steps) for one in everyone}
        nothing = np.zeros(0, np.int64)
        self.fuse({"span": nothing}, nothing, nothing, {}, until)
        self._write_held()
        self.rows["samples"] = self._writer.rows
        tree = self._fusion.fused
        columns = {
            "stack": np.arange(tree.count, dtype=np.int32),
            "parent": nullable(tree.parent),
            "frame": tree.frame,
            "depth": tree.depth,
        }
        self.rows["stacks"] = write_columns(self.tables, "stacks", columns)
        self.rows["frames"] = write_columns(self.tables, "frames", self._frames.columns())

    def counts(self) -> dict[str, int]:
        """Samples that were lost, and the time that taking samples took inside the program."""
        kept = [source.file.quality for source in self._files]
        return {
            name: sum(int(quality[name]) for quality in kept) for name in ("lost", "handler_ns")
        }

    def add_accounts(self, small: SmallTables) -> None:
        """What the system accounted for threads and processes: columns of `tracks`, rows of
        `counters`.
        """
        of_track: dict[int, dict[str, int]] = {}
        for source in self._files:
            if not source.accounts:
                continue
            accounts = np.concatenate(source.accounts)
            without = untold(accounts, bool(source.file.settings.get("switches")))
            of_thread = totals_of_threads(accounts, without)
            # Of a thread that has run another program since, what was counted last.
            known = sorted(thread for thread in source.threads if thread in of_thread)
            of_track |= {source.threads[thread]: of_thread[thread] for thread in known}
            process = source.processes_of_threads()[accounts["thread"]]
            of_process = _split(accounts, process)
            whole = source.accounts_of_processes()
            whole_of_process = _split(whole, whole["process"])
            for number, mine in source.process_of.items():
                rows = of_process.get(number)
                if rows is None:
                    continue
                if mine in self._alone:
                    alone = whole_of_process.get(number, whole[:0])
                    columns = counters_of_one_alone(rows, alone, without)
                else:
                    columns = counters_of_process(rows, without)
                small.add_process_counters(mine, columns)
        for row in small.rows["tracks"]:
            row |= of_track.get(row["track"], {})

    def add_ends(self, small: SmallTables) -> None:
        """How processes ended whose end nobody else saw, and the command line of forked ones, which
        is that of their parent.
        """
        rows = {row["process"]: row for row in small.rows["processes"]}
        for source in self._files:
            for number, status in source.exits().items():
                row = rows.get(source.process_of.get(number, NONE))
                if row is not None and row["exit"] is None:
                    row["exit"] = status
            # A process that became another program is the last of its numbers.
            last = {place: number for number, place in sorted(source.process_of.items())}
            forked = sorted(source.forks() & set(last.values()))
            for number, parent in zip(forked, source.parents_of(forked), strict=True):
                place = source.process_of[number]
                if place in self._alone and parent in rows:
                    rows[place]["argv"] = rows[parent]["argv"]

    def _only_sampled(self, place: int, source: Sampled, number: int) -> IngestedProcess:
        """A process of which nothing but samples were recorded: a child that ran nothing of a
        framework.
        """
        row = source.file.processes[number]
        pid, start_ns = int(row["pid"]), int(row["start_ns"]) + source.shift_ns
        events = ProcessEvents(about={"pid": pid, "start_ns": start_ns})
        texts = ProcessStrings(self.texts, [])
        return IngestedProcess(place, SourceProcess(events, "", source.rank), texts, self.tracks)

    def process_rows(self, hosts: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
        """Rows of `processes` for those of which nothing else is known; `hosts`: by folder of the
        rank.
        """
        host_of = dict(hosts)
        found = []
        for source in self._files:
            of_source = {
                number: place
                for place, (_, other, number) in self._alone.items()
                if other is source
            }
            host = host_of.get(source.rank, "")
            rows = source.process_rows(of_source)
            for place, row in zip(of_source.values(), rows, strict=True):
                found.append({"process": place, "host": host, **row})
        return sorted(found, key=lambda row: int(row["process"]))

    def track_rows(self, known: set[int]) -> list[dict[str, Any]]:
        """Rows of `tracks` for threads that were sampled and of which nothing else is `known`."""
        rows: dict[int, dict[str, Any]] = {}
        for source in self._files:
            for thread, key in sorted(source.threads.items()):
                if key not in known:
                    row = {
                        "track": key,
                        "process": self.tracks.owners[key],
                        **source.track_row(thread),
                    }
                    since_ns = rows.get(key, row)["start_ns"]
                    rows[key] = row | {"start_ns": since_ns}
        return list(rows.values())

    def thread_names(self) -> dict[int, str]:
        """How the program calls its threads, by the key of their track."""
        return {
            source.threads[thread]: name
            for source in self._files
            for thread, name in source.file.names.items()
            if thread in source.threads
        }

    def gap_rows(self) -> list[dict[str, Any]]:
        """Rows of `gaps` for the time between one sampler and the next."""
        return [row for source in self._files if (row := source.gap_row())]

    def problems(self) -> list[dict[str, Any]]:
        """What the samplers could not record, what their files show, and why something has no
        name.
        """
        told = [problem for source in self._files for problem in source.problems()]
        told += [
            {key: getattr(one, key) for key in ("code", "what", "remedy", "lost")}
            for one in self._frames.problems()
        ]
        return [{"layer": STACKS, **problem} for problem in told]


def _no_steps(at_ns: np.ndarray, track: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Step and phase at each of these times where a program has no steps."""
    step = np.full(len(at_ns), -1, np.int32)
    phase = np.full(len(at_ns), -1, np.int8)
    return step, phase


def _split(rows: np.ndarray, key: np.ndarray) -> dict[int, np.ndarray]:
    """The rows of each key, in their order."""
    if not len(rows):
        return {}
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    return dict(zip(keys.tolist(), np.split(rows[order], first[1:]), strict=True))
