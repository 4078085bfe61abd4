"""What was sampled on its way into the tables `frames`, `stacks` and `samples`: names, tracks, open spans, steps.

Samples are fused epoch by epoch, with the spans of the epoch; those of processes without spans at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from layerscope.analyse import waiting
from layerscope.cli._accounts import counters_of_process, totals_of_threads
from layerscope.cli._frames import Frames
from layerscope.cli._primitives import PRIMITIVE_SHARE
from layerscope.cli._process import Process, TrackKeys
from layerscope.cli._small_tables import SmallTables
from layerscope.cli._spans import BACKWARD, EXECUTE, LAYERS, SHARE, Columns, rows_of
from layerscope.cli._texts import ProcessTexts, Texts
from layerscope.collect import sampled, spool
from layerscope.collect.layers.operators import Decoder
from layerscope.collect.layers.stacks import SampledFile
from layerscope.model.layers import PHASES, SAMPLE_KINDS, SAMPLE_STATES, STACKS, WAITS
from layerscope.store.stacking import NONE, Fusion, chains_of, innermost
from layerscope.store.writer import TableWriter, codes_to_names, write_columns

# A thread may be sampled a little before it says that it has begun.
SLACK_NS = 50_000_000
_EVER = np.iinfo(np.int64).max
_USER, _KERNEL = SAMPLE_STATES.index("user"), SAMPLE_STATES.index("kernel")
_FIRST_WAIT = SAMPLE_STATES.index(WAITS[0])

_PROBLEM = ("code", "what", "remedy", "lost")

# Step and phase at times of tracks, -1 for none.
Assign = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# By process: itself, up to which time an epoch holds its samples, and what tells their steps.
Until = dict[int, tuple[Process, int, Assign]]


@dataclass(slots=True)
class Stacks:
    """The samples of one conversion. `tracks` gives their threads keys."""

    raw: Path
    tables: Path
    tracks: TrackKeys
    texts: Texts
    rows: dict[str, int] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)  # number of the sampler -> key of the track
    alone: dict[int, Process] = field(default_factory=dict)  # by number of the sampler
    file: SampledFile = field(init=False)
    _fusion: Fusion = field(default_factory=Fusion)
    _frames: Frames = field(init=False)
    _waiting: list[np.ndarray] = field(default_factory=list)
    _accounts: list[np.ndarray] = field(default_factory=list)
    _process_of: dict[int, int] = field(default_factory=dict)  # number of the sampler -> of the recording
    _stack_of: list[int] = field(default_factory=list)  # number of the sampler -> stack in `_fusion.sampled`
    _evidence: list[int] = field(default_factory=list)  # of each of those, what its functions tell of a wait
    _writer: TableWriter = field(init=False)

    def __post_init__(self) -> None:
        self.file = SampledFile(self.raw / sampled.FILE)
        self._frames = Frames(self.file, self.raw, self.texts, self._fusion.anchors)
        self._writer = TableWriter(self.tables, "samples")

    def advance(self) -> None:
        """Read what is new in the file of the sampler."""
        self.file.advance()
        self._frames.add(self.file.take(sampled.FRAMES))
        self._add_stacks(self.file.take(sampled.STACKS))
        for kind, known in ((sampled.SAMPLES, self._waiting), (sampled.ACCOUNTS, self._accounts)):
            rows = self.file.take(kind)
            if len(rows):
                known.append(rows)

    def is_behind(self, now_ns: int) -> bool:
        """Whether samples from before this time may still come."""
        self.advance()
        return bool(self.file.settings) and not self.file.ended and self.file.until_ns < now_ns

    def _add_stacks(self, rows: np.ndarray) -> None:
        tree, outer = self._fusion.sampled, self._fusion.outer
        for parent, frame in zip(rows["parent"].tolist(), rows["frame"].tolist(), strict=True):
            around = self._stack_of[parent] if parent != sampled.NONE else NONE
            stack = tree.push(around, self._frames.key(frame))
            self._stack_of.append(stack)
            if stack == len(outer):
                inherited = outer[around] if around >= 0 else NONE
                outer.append(stack if self._frames.is_outer(frame) else inherited)
                of_around = self._evidence[around] if around >= 0 else 0
                self._evidence.append(waiting.deeper(of_around, self._frames.evidence(frame)))

    # -- threads -----------------------------------------------------------------------------------

    def _find_processes(self, processes: list[Process]) -> None:
        """Which processes of the recording those of the sampler are."""
        for number, row in self.file.processes.items():
            if number in self._process_of:
                continue
            end_ns = int(row["end_ns"]) or _EVER
            for process in processes:
                about = process.decoder.about
                start_ns = int(about.get("start_ns", -1))
                is_same = about.get("pid") == int(row["pid"]) and not process.rank
                if is_same and int(row["start_ns"]) - SLACK_NS <= start_ns <= end_ns:
                    self._process_of[number] = process.number
                    break

    def _track_of(self, thread: int, process: Process) -> int:
        """The key of the track of one of the sampler's threads."""
        if thread in self.threads:
            return self.threads[thread]
        row = self.file.threads[thread]
        tid, start_ns, end_ns = int(row["tid"]), int(row["start_ns"]) - SLACK_NS, int(row["end_ns"]) or _EVER
        known = [
            number
            for number, track in process.decoder.tracks.items()
            if track.tid == tid and start_ns <= process.decoder.to_run(track.start) <= end_ns
        ]
        if known:
            key = process.track_key(max(known))
        else:
            key = self.tracks.take_sampled(process.number, tid, start_ns, end_ns)
        self.threads[thread] = key
        return key

    # -- fusion ------------------------------------------------------------------------------------

    def fuse(self, columns: Columns, process_of: np.ndarray, links: Columns, until: Until) -> None:
        """Write the samples of an epoch whose spans are `columns`, by track, start and depth, with these `links`.

        `process_of`: the process of each track. `until`: the processes whose samples belong to this epoch.
        """
        self.advance()
        self._find_processes([process for process, _, _ in until.values()])
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        owner = np.array([self._process_of.get(int(row["process"]), NONE) for row in self.file.threads.values()])
        number, at_ns = owner[rows["thread"]], rows["at_ns"].astype(np.int64)
        stays = np.ones(len(rows), np.bool_)
        spans = _Open(columns, process_of, links, self._frames) if len(columns["span"]) else None
        for process, cut_ns, assign in until.values():
            mine = np.flatnonzero((number == process.number) & (at_ns < cut_ns))
            if len(mine):
                stays[mine] = False
                self._write(rows[mine], process, spans, assign)
        self._waiting = [rows[stays]] if stays.any() else []

    def _write(self, rows: np.ndarray, process: Process, spans: _Open | None, assign: Assign) -> None:
        """Write samples of one process."""
        rows = whole_waits(rows)
        at_ns = rows["at_ns"].astype(np.int64)
        threads, inverse = np.unique(rows["thread"], return_inverse=True)
        keys = np.array([self._track_of(thread, process) for thread in threads.tolist()], np.int32)
        track = keys[inverse]
        known = rows["stack"] != sampled.NONE
        stack = np.full(len(rows), NONE, np.int64)
        stack[known] = np.array(self._stack_of, np.int64)[rows["stack"][known]]
        span, chain = np.full(len(rows), NONE, np.int64), np.full(len(rows), NONE, np.int64)
        evidence = np.array([*self._evidence, 0])[stack]
        if spans is not None:
            found = spans.at(track, at_ns, process.number, evidence & waiting.TEAM > 0)
            chain = chains_of(found, spans.parent, spans.frame_of, self._fusion.chains)
            span = np.append(spans.span, NONE)[found]
        step, phase = assign(at_ns, track)
        of: dict[str, np.ndarray] = {"span": span, "step": process.numbers(step), "phase": phase}
        self._write_rows(rows, track, self._fused(stack, chain), evidence, of)

    def _write_rows(
        self, rows: np.ndarray, track: np.ndarray, fused: np.ndarray, evidence: np.ndarray, of: dict[str, np.ndarray]
    ) -> None:
        kind, flags = rows["kind"].astype(np.int64), rows["flags"]
        wait, is_idle = waiting.states(rows["system_call"], rows["file"], flags & sampled.PREEMPTED > 0, evidence)
        is_wait = kind == sampled.OFFCPU
        kernel_ns = np.minimum(rows["kernel_ns"], rows["weight_ns"]).astype(np.int64) * (kind == sampled.CPU)
        columns: dict[str, np.ndarray] = {
            "at_ns": rows["at_ns"].astype(np.int64), "track": track, "stack": fused,
            "weight_ns": rows["weight_ns"].astype(np.int64) - kernel_ns,
            "count": np.where(kind == sampled.FAULT, rows["count"], 1).astype(np.int64),
            "kind": kind.astype(np.int32), "state": np.where(is_wait, _FIRST_WAIT + wait, _USER).astype(np.int32),
            "idle": is_wait & is_idle, "exact": flags & sampled.EXACT > 0,
            "waker": np.array([self.threads.get(one, NONE) for one in rows["waker"].tolist()], np.int32), **of,
        }  # fmt: skip
        in_kernel = np.flatnonzero(kernel_ns)
        if len(in_kernel):
            more = {name: values[in_kernel] for name, values in columns.items()}
            more["weight_ns"] = kernel_ns[in_kernel]
            more["state"] = np.full(len(in_kernel), _KERNEL, np.int32)
            kernel = self._frames.kernel
            more["stack"] = np.array([self._fusion.fused.push(one, kernel) for one in fused[in_kernel].tolist()])
            all_in_kernel = np.zeros(len(rows), np.bool_)
            all_in_kernel[in_kernel] = columns["weight_ns"][in_kernel] == 0
            columns = {name: np.concatenate([values[~all_in_kernel], more[name]]) for name, values in columns.items()}
        self._add(columns)

    def _fused(self, stack: np.ndarray, chain: np.ndarray) -> np.ndarray:
        pairs, inverse = np.unique(np.stack([stack, chain]), axis=1, return_inverse=True)
        of_pair = [self._fusion.stack(one, around) for one, around in pairs.T.tolist()]
        found: np.ndarray = np.array(of_pair, np.int64)[inverse.ravel()]
        return found

    def _add(self, columns: dict[str, np.ndarray]) -> None:
        order = np.argsort(columns["at_ns"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
        arrow: dict[str, Any] = {
            name: columns[name] for name in ("at_ns", "track", "weight_ns", "count", "idle", "exact")
        }
        for name in ("stack", "span", "step", "waker"):
            arrow[name] = pa.array(columns[name], mask=columns[name] < 0)
        arrow["kind"] = codes_to_names(columns["kind"], pa.array(SAMPLE_KINDS))
        arrow["state"] = codes_to_names(columns["state"], pa.array(SAMPLE_STATES))
        phase = columns["phase"].astype(np.int32)
        arrow["phase"] = pa.DictionaryArray.from_arrays(pa.array(phase, mask=phase < 0), pa.array(PHASES))
        self._writer.add(arrow)

    # -- the end -----------------------------------------------------------------------------------

    def finish(self, processes: Sequence[Process]) -> None:
        """Write what is left, and the tables of frames and stacks."""
        self.advance()
        self._find_processes(list(processes))
        unknown = [number for number in self.file.processes if number not in self._process_of]
        for place, number in enumerate(unknown, len(processes)):
            self.alone[number] = self._alone(place)
            self._process_of[number] = place
        until: Until = {one.number: (one, _EVER, _no_steps) for one in (*processes, *self.alone.values())}
        self.fuse({"span": np.zeros(0, np.int64)}, np.zeros(0, np.int64), {}, until)
        self.rows["samples"] = self._writer.rows
        tree = self._fusion.fused
        parent = np.array(tree.parent, np.int32)
        columns = {
            "stack": np.arange(len(parent), dtype=np.int32), "parent": pa.array(parent, mask=parent < 0),
            "frame": np.array(tree.frame, np.int32), "depth": np.array(tree.depth, np.int32),
        }  # fmt: skip
        self.rows["stacks"] = write_columns(self.tables, "stacks", columns)
        self.rows["frames"] = write_columns(self.tables, "frames", self._frames.columns())

    def counts(self) -> dict[str, int]:
        """Samples that were lost, and the time that taking samples took inside the program."""
        return {name: int(self.file.quality[name]) for name in ("lost", "handler_ns")}

    def add_accounts(self, small: SmallTables) -> None:
        """What the system accounted for threads and processes: columns of `tracks`, rows of `counters`."""
        if not self._accounts:
            return
        accounts = np.concatenate(self._accounts)
        of_thread = totals_of_threads(accounts)
        of_track = {key: of_thread[thread] for thread, key in self.threads.items() if thread in of_thread}
        for row in small.rows["tracks"]:
            row |= of_track.get(row["track"], {})
        process = np.array([int(row["process"]) for row in self.file.threads.values()])[accounts["thread"]]
        for number, mine in self._process_of.items():
            if (process == number).any():
                small.add_process_counters(mine, counters_of_process(accounts[process == number]))

    def _alone(self, number: int) -> Process:
        """A process of which nothing but samples were recorded: a child that ran nothing of a framework."""
        return Process(
            number, "", spool.SpoolReader(self.raw), ProcessTexts(self.texts, []), Decoder(), self.tracks
        )  # fmt: skip

    def process_rows(self, host: str) -> list[dict[str, Any]]:
        """Rows of `processes` for those of which nothing else is known; with nothing but samples it is `host`'s."""
        rows = []
        for number, process in self.alone.items():
            row = self.file.processes[number]
            names = [one["name"] for one in self.file.threads.values() if int(one["tid"]) == int(row["pid"])]
            rows.append(
                {
                    "process": process.number, "pid": int(row["pid"]), "ppid": int(row["ppid"]), "host": host,
                    "argv": names[-1].decode("utf-8", "replace") if names else "",
                    "start_ns": int(row["start_ns"]), "end_ns": int(row["end_ns"]) or None,
                }
            )  # fmt: skip
        return rows

    def track_rows(self, known: set[int]) -> list[dict[str, Any]]:
        """Rows of `tracks` for threads that were sampled and of which nothing else is `known`."""
        rows = []
        for number, key in self.threads.items():
            if key not in known:
                row = self.file.threads[number]
                rows.append(
                    {
                        "track": key, "process": self.tracks.owners[key], "kind": "thread", "tid": int(row["tid"]),
                        "name": row["name"].decode("utf-8", "replace"), "start_ns": int(row["start_ns"]),
                        "end_ns": int(row["end_ns"]) or None,
                    }
                )  # fmt: skip
        return rows

    def problems(self) -> list[dict[str, Any]]:
        """What the sampler could not record, and what the file shows."""
        told = [{key: problem.get(key, "") for key in _PROBLEM} for problem in self.file.problems]
        if self.file.is_damaged or (self.file.settings and not self.file.ended):
            what = (
                "the sampler did not come to its end" if not self.file.is_damaged else "the file of stacks is damaged"
            )
            told.append(
                dict(zip(_PROBLEM, ("stacks_cut", what, "record again", "the samples after that"), strict=True))
            )
        told += [{key: getattr(problem, key) for key in _PROBLEM} for problem in self._frames.problems()]
        return [{"layer": STACKS, **problem} for problem in told]


def whole_waits(rows: np.ndarray) -> np.ndarray:
    """Samples in which the parts of a long wait, which the sampler writes while it lasts, are one."""
    order = np.lexsort((rows["at_ns"], rows["thread"], rows["kind"]))
    rows = rows[order]
    ends = rows["at_ns"] + rows["weight_ns"]
    goes_on = (rows["kind"] == sampled.OFFCPU) & (rows["flags"] & sampled.UNFINISHED > 0)
    is_next = (rows["thread"][1:] == rows["thread"][:-1]) & (rows["stack"][1:] == rows["stack"][:-1])
    is_next &= (rows["kind"][1:] == sampled.OFFCPU) & (rows["at_ns"][1:] == ends[:-1]) & goes_on[:-1]
    first = np.flatnonzero(np.append(True, ~is_next)) if len(rows) else np.zeros(0, np.intp)
    whole = rows[first]
    if len(whole) < len(rows):
        whole["weight_ns"] = np.add.reduceat(rows["weight_ns"], first)
        whole["flags"] = rows["flags"][np.append(first[1:], len(rows)) - 1]
    return whole


def _no_steps(at_ns: np.ndarray, track: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.full(len(at_ns), -1, np.int32), np.full(len(at_ns), -1, np.int8)


class _Open:
    """Which spans of an epoch are open when, and as frames of stacks."""

    def __init__(self, columns: Columns, process_of: np.ndarray, links: Columns, frames: Frames) -> None:
        self.span = columns["span"]
        self._start_ns = columns["start_ns"]
        self._end_ns = self._start_ns + columns["dur_ns"]
        self._track = columns["track"]
        self._kind = columns["kind_code"]
        self._inside = rows_of(self.span, columns["parent"])  # on its own track
        self.parent = self._inside.copy()  # of a share the primitive that it works for
        is_share = links["kind_code"] == PRIMITIVE_SHARE
        share, of = (rows_of(self.span, links[name][is_share]) for name in ("to_span", "from_span"))
        self.parent[share] = of
        self._process_of = process_of
        self._tracks, first = np.unique(self._track, return_index=True)
        self._bounds = np.append(first, len(self._track))
        self._name = columns["name_code"]
        self._frames = frames

    def frame_of(self, row: int) -> int:
        """The frame of a span. A share is of the primitive that it works for, and no frame of its own."""
        kind = int(self._kind[row])
        return NONE if kind == SHARE else self._frames.of_span(int(LAYERS[kind]), int(self._name[row]))

    def _rows(self, track: int) -> slice:
        place = int(np.searchsorted(self._tracks, track))
        if place == len(self._tracks) or self._tracks[place] != track:
            return slice(0, 0)
        return slice(int(self._bounds[place]), int(self._bounds[place + 1]))

    def at(self, track: np.ndarray, at_ns: np.ndarray, process: int, is_worker: np.ndarray) -> np.ndarray:
        """The innermost open span of each sample, NONE for none; of `is_worker`, what its team works for."""
        found = np.full(len(track), NONE, np.int64)
        for key in np.unique(track).tolist():
            mine = np.flatnonzero(track == key)
            found[mine] = self._at(key, at_ns[mine])
        alone = np.flatnonzero(is_worker & (found == NONE))
        if len(alone):
            found[alone] = self._worked_for(process, at_ns[alone])
        return found

    def _at(self, track: int, at_ns: np.ndarray) -> np.ndarray:
        rows = self._rows(track)
        first = rows.start
        inside = self._inside[rows]
        inside = np.where(inside >= 0, inside - first, NONE)
        found = innermost(self._start_ns[rows], self._end_ns[rows], inside, at_ns)
        return np.where(found >= 0, found + first, NONE)

    def _worked_for(self, process: int, at_ns: np.ndarray) -> np.ndarray:
        """The innermost operator or primitive that is open on the one thread of the process that has one open."""
        found, count = np.full(len(at_ns), NONE, np.int64), np.zeros(len(at_ns), np.int64)
        works = (self._kind <= BACKWARD) | (self._kind >= EXECUTE)
        for key in self._tracks.tolist():
            rows = self._rows(key)
            if self._process_of[key] != process or not works[rows].any():
                continue
            here = self._at(key, at_ns)
            busy = (here >= 0) & works[here] & (self._kind[here] != SHARE)
            found[busy] = here[busy]
            count[busy] += 1
        found[count != 1] = NONE
        return found
