"""One raw file of a sampler on its way into the tables: whose threads, stacks and samples these
are. Used by `stacks`.

A recording has one, of several ranks each has one, and a sampler that took the place of another
began a new one. Each counts its threads, frames and stacks by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layerscope.ingest import waiting
from layerscope.ingest.file_frames import FileFrames
from layerscope.ingest.process import SLACK_NS, IngestedProcess, TrackKeys
from layerscope.ingest.sample_source import EVER, MOST_ROWS, SampledStacks, SampleSource
from layerscope.ingest.spans import Columns
from layerscope.ingest.stack_tree import NONE
from layerscope.ingest.team_waits import at_barriers
from layerscope.model.layers import SAMPLE_STATES, WAITS
from layerscope.rawfile import sampler_file
from layerscope.sources.raw.stacks import SampledFile

_USER = SAMPLE_STATES.index("user")
_FIRST_WAIT = SAMPLE_STATES.index(WAITS[0])
_PROBLEM = ("code", "what", "remedy", "lost")


class Sampled(SampleSource):
    """What the file at `path` holds, of the rank in the folder `rank` (empty: there are none).

    Its times are its host's; with `shift_ns` they are the run's. `tracks` gives its threads keys.
    """

    def __init__(
        self, path: Path, rank: str, shift_ns: int, stacks: SampledStacks, tracks: TrackKeys
    ) -> None:
        self.path, self.rank, self.shift_ns = path, rank, shift_ns
        self.stacks, self.tracks = stacks, tracks
        self.file = SampledFile(path)
        self.threads: dict[int, int] = {}  # its number -> key of the track
        self.process_of: dict[int, int] = {}  # its number -> number of the process in the recording
        self.accounts: list[np.ndarray] = []
        self.process_accounts: list[np.ndarray] = []
        self.rejected = 0  # rows that name a thread or a stack which the file does not have
        self._frames = FileFrames(stacks.frames, self.file, path.parent)
        self._waiting: list[np.ndarray] = []
        self._new_stacks: list[np.ndarray] = []
        self._stacks = 0  # all that have come
        # Of those whose frames have names: its number -> stack in `fusion.sampled`
        self._stack_of = np.zeros(0, np.int64)
        # By thread the one that goes on in the program which its process became.
        self._later: dict[int, int] | None = None

    def advance(self) -> None:
        """Read what is new."""
        self.file.advance()
        self._later = None
        frames = self.file.take(sampler_file.FRAMES)
        self._frames.add(frames)
        stacks = self.file.take(sampler_file.STACKS)
        self._new_stacks.append(stacks)
        self._stacks += len(stacks)
        self.process_accounts.append(self.file.take(sampler_file.PROCESS_ACCOUNTS))
        for kind, known in (
            (sampler_file.SAMPLES, self._waiting),
            (sampler_file.ACCOUNTS, self.accounts),
        ):
            rows = self._possible(self.file.take(kind))
            if len(rows):
                if self.shift_ns:
                    shift_ns = np.uint64(self.shift_ns % (1 << 64))
                    rows = rows.copy()
                    rows["at_ns"] += shift_ns
                known.append(rows)

    def _possible(self, rows: np.ndarray) -> np.ndarray:
        """Rows whose thread and stack are in the file. Others are counted: a file of somebody else,
        or a fault of ours.
        """
        possible = np.isin(rows["thread"], list(self.file.threads))
        if "stack" in (rows.dtype.names or ()):
            stack = rows["stack"]
            possible &= (stack == sampler_file.NONE) | (stack < self._stacks)
        self.rejected += len(rows) - int(np.count_nonzero(possible))
        return rows if possible.all() else rows[possible]

    def known_until_ns(self) -> int:
        """The time of the run before which no more samples will come."""
        is_growing = self.file.settings and not self.file.ended
        return self.file.until_ns + self.shift_ns if is_growing else EVER

    def name(self) -> None:
        """Name the frames that have come, and push the stacks of them."""
        self._frames.name()
        if self._new_stacks:
            rows = np.concatenate(self._new_stacks)
            self._new_stacks.clear()
            self._push(rows["parent"].astype(np.int64), rows["frame"])

    def _push(self, parent: np.ndarray, frame: np.ndarray) -> None:
        """Push new stacks, by its own numbers of what is around them and of their frames."""
        rows = self._frames.rows_of(frame)
        # What is inlined lies in the row before it.
        around = -1 - np.arange(len(rows.key))
        first = np.append(0, rows.end)[:-1]
        around[first] = self._around(parent, rows.end)
        found = self.stacks.push_rows(around, rows.key, rows.is_outer, rows.evidence)
        last = found[rows.end - 1]
        self._stack_of = np.append(self._stack_of, last)

    def _around(self, parent: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The stacks around new ones, as `StackNodes.push_rows` takes them; `end`: where the rows
        of each new stack end.
        """
        known = len(self._stack_of)
        is_known = parent < known
        has_parent = parent != sampler_file.NONE
        is_new = has_parent & ~is_known
        around = np.full(len(parent), NONE, np.int64)
        around[is_known] = self._stack_of[parent[is_known]]
        place = parent[is_new] - known
        around[is_new] = -1 - end[place]  # the last row of each
        return around

    # -- whose -------------------------------------------------------------------------------------

    def find_processes(self, processes: Sequence[IngestedProcess]) -> None:
        """Which processes of the recording its own are."""
        for number, row in self.file.processes.items():
            if number in self.process_of:
                continue
            begins_ns = int(row["start_ns"]) + self.shift_ns
            end_ns = int(row["end_ns"]) + self.shift_ns if row["end_ns"] else EVER
            for process in processes:
                about = process.events.about
                start_ns = int(about.get("start_ns", -1))
                is_same = about.get("pid") == int(row["pid"]) and process.source.rank == self.rank
                if is_same and begins_ns - SLACK_NS <= start_ns <= end_ns:
                    self.process_of[number] = process.number
                    break

    def programs_after(self) -> dict[int, int]:
        """By process the one that it became by exec(3), which has its pid and begins when it
        ends.
        """
        return _gone_on(self.file.processes, "pid")

    def track_of(self, thread: int, process: IngestedProcess) -> int:
        """The key of the track of one of its threads."""
        if thread in self.threads:
            return self.threads[thread]
        if self._later is None:
            self._later = _gone_on(self.file.threads, "tid")
        later = self._later.get(thread)
        if (
            later is not None
            and self.process_of.get(int(self.file.threads[later]["process"])) == process.number
        ):
            self.threads[thread] = self.track_of(later, process)
            return self.threads[thread]
        row = self.file.threads[thread]
        tid, end_ns = int(row["tid"]), int(row["end_ns"]) + self.shift_ns if row["end_ns"] else EVER
        start_ns = int(row["start_ns"]) + self.shift_ns
        known = [
            number
            for number, track in process.events.tracks.items()
            if track.tid == tid
            and start_ns - SLACK_NS <= process.events.to_run(track.start) <= end_ns
        ]
        if known:
            key = process.track_key(max(known))
        else:
            key = self.tracks.take_sampled(process.number, tid, start_ns, end_ns)
        self.threads[thread] = key
        return key

    def processes_of_threads(self) -> np.ndarray:
        """By number of a thread that of its process, both its own; NONE for threads that it says
        nothing of.
        """
        found = np.full(max(self.file.threads, default=-1) + 1, NONE)
        for number, row in self.file.threads.items():
            found[number] = row["process"]
        return found

    # -- samples -----------------------------------------------------------------------------------

    def take(self, until_ns: dict[int, int]) -> Iterator[tuple[int, np.ndarray]]:
        """By process of the recording its samples from before a time; they are taken out. Rows of
        `sampled.SAMPLE`.
        """
        parts, self._waiting = self._waiting, []
        owner = np.array(
            [self.process_of.get(number, NONE) for number in self.processes_of_threads().tolist()]
        )
        for rows in _pieces(parts):
            number, at_ns = owner[rows["thread"]], rows["at_ns"].astype(np.int64)
            stays = np.ones(len(rows), np.bool_)
            for process, cut_ns in until_ns.items():
                mine = np.flatnonzero((number == process) & (at_ns < cut_ns))
                if len(mine):
                    stays[mine] = False
                    yield process, whole_waits(rows[mine])
            if stays.any():
                self._waiting.append(rows[stays])

    def columns(self, rows: np.ndarray, process: IngestedProcess) -> Columns:
        """The columns of samples that were taken out, but for what `with_names` adds."""
        kind, flags = rows["kind"].astype(np.int32), rows["flags"]
        kernel_ns = np.minimum(rows["kernel_ns"], rows["weight_ns"]).astype(np.int64)
        threads, inverse = np.unique(rows["thread"], return_inverse=True)
        tracks = [self.track_of(thread, process) for thread in threads.tolist()]
        return {
            "at_ns": rows["at_ns"].astype(np.int64),
            "track": np.array(tracks, np.int32)[inverse],
            "waker": self._wakers_of(rows, process),
            "number": rows["stack"].copy(),
            "weight_ns": rows["weight_ns"].astype(np.int64),
            "kernel_ns": kernel_ns * (kind == sampler_file.CPU),
            "count": np.where(kind == sampler_file.FAULT, rows["count"], 1).astype(np.int64),
            "kind": kind,
            "exact": flags & sampler_file.EXACT > 0,
            "system_call": rows["system_call"].copy(),
            "file": np.where(kind == sampler_file.OFFCPU, rows["file"], sampler_file.NO_FILE),
            "rate_hz": self._rates(rows, kind),
            "preempted": flags & sampler_file.PREEMPTED > 0,
        }

    def _rates(self, rows: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """How often samples were taken; the files of earlier versions have one rate for all."""
        rate_hz = rows["file"].astype(np.int32)
        rate_hz[rate_hz == 0] = self.file.settings.get("hz", NONE)
        rate_hz[kind != sampler_file.CPU] = NONE
        return rate_hz

    def with_names(self, columns: Columns) -> Columns:
        """The columns that names of functions decide, instead of what they follow from."""
        number, system_call, file, is_preempted = (
            columns.pop(name) for name in ("number", "system_call", "file", "preempted")
        )
        stack = np.full(len(number), NONE, np.int64)
        is_known = number != sampler_file.NONE
        stack[is_known] = self._stack_of[number[is_known]]
        evidence = np.append(self.stacks.evidence, np.int32(0))[stack].astype(np.int64)
        wait, _ = waiting.states(system_call, file, is_preempted, evidence)
        wait = at_barriers(columns, wait, evidence)
        is_wait = columns["kind"] == sampler_file.OFFCPU
        return {
            **columns,
            "stack": stack,
            "state": np.where(is_wait, _FIRST_WAIT + wait, _USER).astype(np.int32),
            "idle": is_wait & (wait == waiting.POOL_STATE),
            "evidence": evidence,
        }

    def _wakers_of(self, rows: np.ndarray, process: IngestedProcess) -> np.ndarray:
        """The keys of the tracks that ended these waits of `process`, NONE where nobody knows."""
        wakers, inverse = np.unique(rows["waker"], return_inverse=True)
        tracks = [self._waker(waker, process) for waker in wakers.tolist()]
        track_of_waker = np.array(tracks, np.int32)
        return track_of_waker[inverse]

    def _waker(self, thread: int, process: IngestedProcess) -> int:
        """The key of the track of a thread that ended a wait; NONE where nobody knows."""
        row = self.file.threads.get(thread)
        if (
            row is None
            or thread in self.threads
            or self.process_of.get(int(row["process"])) != process.number
        ):
            return self.threads.get(thread, NONE)
        return self.track_of(thread, process)

    # -- the end -----------------------------------------------------------------------------------

    def process_rows(self, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        """A row of `processes` for each of these, of which nothing but samples is known, all but
        its key and its host.
        """
        names: dict[tuple[int, int], bytes] = {}
        for one in self.file.threads.values():
            names[int(one["process"]), int(one["tid"])] = one["name"]
        exits = self.exits()
        for number in numbers:
            row = self.file.processes[number]
            pid = int(row["pid"])
            yield {
                "pid": pid,
                "ppid": int(row["ppid"]),
                "rank": int(self.rank) if self.rank.isdigit() else None,
                "argv": names.get((number, pid), b"").decode("utf-8", "replace"),
                "exit": exits.get(number),
                **self._times(row),
            }

    def exits(self) -> dict[int, int]:
        """How processes ended, by its own numbers: exit status, or minus the signal."""
        rows = self.accounts_of_processes()
        rows = rows[rows["flags"] & sampler_file.ENDED > 0]
        return dict(zip(rows["process"].tolist(), rows["exit"].tolist(), strict=True))

    def forks(self) -> set[int]:
        """Its own numbers of the processes that are still the program of their parent."""
        rows = self.accounts_of_processes()
        is_fork = rows["flags"] & sampler_file.FORKED > 0
        # What was said last: one may become another program within a moment.
        last = dict(zip(rows["process"].tolist(), is_fork.tolist(), strict=True))
        return {number for number, is_one in last.items() if is_one}

    def accounts_of_processes(self) -> np.ndarray:
        """All of them so far, with times of the run."""
        rows = np.concatenate([np.zeros(0, sampler_file.PROCESS_ACCOUNT), *self.process_accounts])
        rows["at_ns"] += np.uint64(self.shift_ns % (1 << 64))
        return rows

    def parents_of(self, numbers: Iterable[int]) -> Iterator[int]:
        """The process of the recording that is the parent of each of these of its own; NONE: it is
        not known.
        """
        of_pid: dict[int, list[tuple[int, int]]] = {}
        for one, row in self.file.processes.items():
            of_pid.setdefault(int(row["pid"]), []).append((int(row["start_ns"]), one))
        for number in numbers:
            row = self.file.processes[number]
            known = of_pid.get(int(row["ppid"]), ())
            there = [one for one in known if 0 <= one[0] <= row["start_ns"]]
            # Of several that had this number the last one; of one moment the first.
            _, parent = max(there, key=lambda one: one[0], default=(0, NONE))
            yield self.process_of.get(parent, NONE)

    def track_row(self, thread: int) -> dict[str, Any]:
        """The same of `tracks`, for one of its threads."""
        row = self.file.threads[thread]
        name = row["name"].decode("utf-8", "replace")
        return {"kind": "thread", "tid": int(row["tid"]), "name": name, **self._times(row)}

    def _times(self, row: np.void) -> dict[str, int | None]:
        end_ns = int(row["end_ns"])
        return {
            "start_ns": int(row["start_ns"]) + self.shift_ns,
            "end_ns": end_ns + self.shift_ns if end_ns else None,
        }

    def gap_row(self) -> dict[str, Any] | None:
        """A row of `gaps` for the time before it in which no sampler was there; None: there is
        none.
        """
        if self.file.gap_ns is None:
            return None
        start_ns, end_ns = (at_ns + self.shift_ns for at_ns in self.file.gap_ns)
        process = min(self.process_of.values(), default=None)
        return {
            "process": process,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "lost": None,
            "reason": "no_sampler",
        }

    def problems(self) -> list[dict[str, str]]:
        """What the sampler could not record, and what the file shows."""
        told = [{key: problem.get(key, "") for key in _PROBLEM} for problem in self.file.problems]
        if self.rejected:
            what = f"{self.rejected:,} samples name a thread or a stack that the file does not have"
            fields = ("samples_rejected", what, "please report it, with the recording", "they")
            told.append(dict(zip(_PROBLEM, fields, strict=True)))
        what = "the file of stacks is damaged"
        if self.file.settings and not self.file.ended and not self.file.is_damaged:
            what = "the sampler did not come to its end"
        elif not self.file.is_damaged:
            return told
        return [
            *told,
            dict(
                zip(
                    _PROBLEM,
                    ("stacks_cut", what, "record again", "the samples after that"),
                    strict=True,
                )
            ),
        ]


def _gone_on(rows: Mapping[int, np.void], name: str) -> dict[int, int]:
    """By number the row with the same `name` that begins when it ends."""
    begun = {}
    for number, row in rows.items():
        begun[int(row[name]), int(row["start_ns"])] = number
    found = {}
    for number, row in rows.items():
        later = begun.get((int(row[name]), int(row["end_ns"])), number)
        if later != number:
            found[number] = later
    return found


def _pieces(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The rows of `parts` in their order, so many at a time that the memory for their columns is
    bounded.
    """
    small = [part[at : at + MOST_ROWS] for part in parts for at in range(0, len(part), MOST_ROWS)][
        ::-1
    ]
    parts.clear()
    while small:
        piece = [small.pop()]
        while small and sum(map(len, piece)) + len(small[-1]) <= MOST_ROWS:
            piece.append(small.pop())
        yield np.concatenate(piece) if len(piece) > 1 else piece[0]


def whole_waits(rows: np.ndarray) -> np.ndarray:
    """Samples in which the parts of a long wait, which the sampler writes while it lasts, are
    one.
    """
    order = np.lexsort((rows["at_ns"], rows["thread"], rows["kind"]))
    rows = rows[order]
    ends = rows["at_ns"] + rows["weight_ns"]
    goes_on = (rows["kind"] == sampler_file.OFFCPU) & (rows["flags"] & sampler_file.UNFINISHED > 0)
    is_next = (rows["thread"][1:] == rows["thread"][:-1]) & (
        rows["stack"][1:] == rows["stack"][:-1]
    )
    is_next &= (
        (rows["kind"][1:] == sampler_file.OFFCPU) & (rows["at_ns"][1:] == ends[:-1]) & goes_on[:-1]
    )
    first = np.flatnonzero(np.append(True, ~is_next)) if len(rows) else np.zeros(0, np.intp)
    whole = rows[first]
    if len(whole) < len(rows):
        whole["weight_ns"] = np.add.reduceat(rows["weight_ns"], first)
        last = np.append(first[1:], len(rows)) - 1
        for name in ("flags", "waker"):
            whole[name] = rows[name][last]
    return whole
