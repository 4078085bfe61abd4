"""A recording as the viewers of traces want it: processes and threads with unique numbers, spans
that nest, moments.

Shared by the formats that are traces. Everything that comes by the million is a column; the few
processes, threads and steps are objects. Times stay on the run's clock; `TraceColumns.origin_ns` is
what a file may take as its zero, and `TraceColumns.realtime_ns` is that same moment on
CLOCK_REALTIME.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.distinct import distinct
from layerscope.model.errors import UsageError
from layerscope.model.schema import TABLES
from layerscope.show.exports.trace_lanes import TrackLanes
from layerscope.show.exports.wall_clock import realtime_of

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

Columns = dict[str, np.ndarray]
# By track, when the last of some spans ends.
LatestEnds = dict[int, int]

# Numbers that the operating system gives to no process and no thread (it stops at 4,194,304).
FIRST_MADE_UP = 10_000_000
STEPS = "steps"
# Depth takes this many bits of the key that spans are sorted by; deeper ones are equal. 52 days fit
# into the others.
_DEPTH_BITS = 10
_KEY_NS = 1 << 62 - _DEPTH_BITS
# Rows.
_AT_ONCE = 1 << 15
# What decides where a span is drawn.
_PLACE = ["span", "track", "depth", "start_ns", "dur_ns", "step"]


class TraceProcess(Struct, frozen=True):
    """A process: `pid` is its own unless another process of the recording has it too. `order` is
    its place.
    """

    pid: int
    name: str
    labels: str
    order: int


class TraceThread(Struct, frozen=True):
    """What a viewer shows as a thread: a thread, one lane of it, or the steps of a process."""

    pid: int
    tid: int
    name: str
    order: int


class Piece(Struct, frozen=True):
    """Spans, sorted by track and start, outer ones before inner ones; `order` are their rows in
    `columns`.
    """

    columns: Columns
    order: np.ndarray | None
    span: np.ndarray
    thread: np.ndarray

    def part(self, rows: slice) -> Columns:
        """Some rows, with `thread`: their places in the trace's threads."""
        where: slice | np.ndarray = rows
        if self.order is not None:
            where = self.order[rows]
            if (where[1:] - where[:-1] == 1).all():
                where = slice(int(where[0]), int(where[-1]) + 1)
        part = {
            name: values if name.endswith(".names") else values[where]
            for name, values in self.columns.items()
        }
        return part | {"thread": self.thread[rows]}


class TraceRange(Struct):
    """Which part of the run is wanted: some steps, and the time they take in each process. None:
    all of it.
    """

    steps: range | None = None
    process_ns: dict[int, tuple[int, int]] = field(default_factory=dict)

    def holds(self, process: int, at_ns: int) -> bool:
        """Whether a moment of a process is wanted."""
        if self.steps is None:
            return True
        first_ns, end_ns = self.process_ns.get(process, (0, 0))
        return first_ns <= at_ns < end_ns


class TraceColumns:
    """One recording. `threads` grows while `pieces` meets spans that cross others."""

    def __init__(self, reader: Reader, steps: range | None = None) -> None:
        self.reader = reader
        self.window = TraceRange(steps)
        self.processes = _processes(reader)
        self.threads: list[TraceThread] = []
        self.spans = 0
        self.crossing = 0
        self._used: set[tuple[int, int]] = set()
        self._tracks: dict[int, dict[str, Any]] = {}
        self._lane_thread: dict[tuple[int, int], int] = {}
        self._steps_thread: dict[int, int] = {}
        self.steps = self._find_steps()
        self._find_threads()
        self._ends = _ends_by_piece(reader)
        starts = [row["start_ns"] for row in rows_of(reader, "processes")]
        starts += [step["start_ns"] for step in self.steps]
        starts += [start for start, _ in self._ends]
        self.origin_ns = min(starts, default=0)
        self.realtime_ns, self.notes = realtime_of(reader, self.origin_ns)

    def _find_steps(self) -> list[dict[str, Any]]:
        """The wanted steps, with the time that they take in each process in `window`."""
        rows = rows_of(self.reader, "steps", "process", "step")
        wanted = self.window.steps
        if wanted is None:
            return rows
        chosen = [row for row in rows if row["step"] in wanted]
        if not chosen:
            has = (
                f"it has the steps 0 to {max(row['step'] for row in rows)}"
                if rows
                else "it has no steps"
            )
            raise UsageError(
                f"--steps {wanted.start}:{wanted.stop} holds no step of the recording: {has}"
            )
        for row in chosen:
            first_ns, end_ns = self.window.process_ns.get(row["process"], (row["start_ns"], 0))
            self.window.process_ns[row["process"]] = (
                first_ns,
                max(end_ns, row["start_ns"] + row["dur_ns"]),
            )
        return chosen

    def wanted_ns(self, process: int) -> tuple[int, int]:
        """The wanted time of a process, half-open."""
        first_ns, end_ns = self.reader.since_ns, self.reader.until_ns
        if self.window.steps is not None:
            first, end = self.window.process_ns.get(process, (0, 0))
            first_ns, end_ns = max(first_ns, first), min(end_ns, end)
        return first_ns, end_ns

    # -- threads -----------------------------------------------------------------------------------

    def _find_threads(self) -> None:
        for process in sorted({row["process"] for row in self.steps}):
            self._steps_thread[process] = self._add_thread(process, None, STEPS)
        for row in rows_of(self.reader, "tracks", "process", "start_ns", "track"):
            self._tracks[row["track"]] = row
            if row["kind"] != "counter":
                self.thread_of(row["track"])

    def _add_thread(
        self, process: int, tid: int | None, name: str, order: int | None = None
    ) -> int:
        pid = self.pid(process)
        # Traces of others may have any number: readers of exports know none below 1.
        if tid is None or tid < 1 or (pid, tid) in self._used:
            tid = FIRST_MADE_UP + len(self.threads)
        self._used.add((pid, tid))
        self.threads.append(
            TraceThread(pid, tid, name, len(self.threads) if order is None else order)
        )
        return len(self.threads) - 1

    def thread_of(self, track: int, lane: int = 0) -> int:
        """Where in `threads` the spans of a lane of a track go. A lane stands below its thread."""
        known = self._lane_thread.get((track, lane))
        if known is not None:
            return known
        row = self._tracks.get(track, {"process": 0, "tid": None, "name": f"track {track}"})
        if lane:
            main = self.threads[self.thread_of(track)]
            number = f" {lane}" if lane > 1 else ""
            made = self._add_thread(
                row["process"], None, f"{main.name} (crossing{number})", main.order
            )
        else:
            made = self._add_thread(row["process"], row["tid"], row["name"] or "thread")
        self._lane_thread[track, lane] = made
        return made

    def steps_thread(self, process: int) -> int:
        """Where in `threads` the steps of a process go."""
        return self._steps_thread[process]

    def process_of(self, track: int) -> int:
        """The process of a track."""
        return int(self._tracks[track]["process"]) if track in self._tracks else 0

    def pid(self, process: int) -> int:
        """The number by which the file knows a process."""
        return self.processes[process].pid if process in self.processes else FIRST_MADE_UP + process

    # -- spans -------------------------------------------------------------------------------------

    def pieces(self, columns: Sequence[str]) -> Iterator[Piece]:
        """The wanted spans with these columns, newest piece first."""
        lanes: dict[int, TrackLanes] = {}
        number = len(self._ends)
        for piece in self.reader.pieces(
            "spans", list(dict.fromkeys([*_PLACE, *columns])), newest_first=True
        ):
            number -= 1
            order = _order(piece, self.window.steps)
            if not len(piece["span"] if order is None else order):
                continue
            span, track, depth, start, dur = (
                piece[name] if order is None else piece[name][order]
                for name in _PLACE
                if name != "step"
            )
            older = self._ends[number - 1][1] if number else {}
            thread = self._threads_of(track, start, start + dur, depth, lanes, older)
            self.spans += len(span)
            yield Piece(piece, order, span, thread)

    def _threads_of(
        self,
        track: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        depth: np.ndarray,
        lanes: dict[int, TrackLanes],
        older: LatestEnds,
    ) -> np.ndarray:
        """The thread of every span; spans that cross others go to a lane of their own.

        `older`: by track, when the last span of the pieces that are still to come ends.
        """
        threads = np.empty(len(track), np.int32)
        for rows in _runs(track):
            key = int(track[rows.start])
            track_lanes = lanes.setdefault(key, TrackLanes())
            older_end_ns = older.get(key, _NEVER)
            lane = track_lanes.assign(start[rows], end[rows], older_end_ns, depth[rows])
            others = distinct(lane[lane > 0]).tolist()
            thread = self.thread_of(key)
            size = rows.stop - rows.start
            is_whole = len(track) == size
            if is_whole and not others:
                return np.broadcast_to(np.int32(thread), len(track))
            threads[rows] = thread
            for other in others:
                crossing = rows.start + np.flatnonzero(lane == other)
                threads[crossing] = self.thread_of(key, other)
                self.crossing += len(crossing)
        return threads


_NEVER = np.iinfo(np.int64).min


def _processes(reader: Reader) -> dict[int, TraceProcess]:
    """By key, in the order in which a viewer should show them: by rank, then as they came."""
    rows = rows_of(reader, "processes", "start_ns", "process")
    rows.sort(key=lambda row: (row["rank"] is None, row["rank"]))
    found: dict[int, TraceProcess] = {}
    used: set[int] = set()
    hosts = {row["host"] for row in rows}
    for order, row in enumerate(rows):
        pid = row["pid"]
        if pid < 1 or pid in used:
            pid = FIRST_MADE_UP + row["process"]
        used.add(pid)
        labels = []
        name = row["argv"] or "process"
        if row["rank"] is not None:
            labels.append(f"rank {row['rank']}")
            name = f"rank {row['rank']}: {name}"
        elif row["role"]:
            labels.append(row["role"])
            name = f"{row['role']}: {name}"
        if len(hosts) > 1:
            labels.append(row["host"])
        if pid != row["pid"]:
            labels.append(f"pid {row['pid']}")
        found[row["process"]] = TraceProcess(pid, name, ", ".join(labels), order)
    return found or {0: TraceProcess(FIRST_MADE_UP, "process", "", 0)}


def _ends_by_piece(reader: Reader) -> list[tuple[int, LatestEnds]]:
    """For each piece: its earliest start, and by track the latest end in this piece and all older
    ones.
    """
    found = []
    latest: LatestEnds = {}
    for piece in reader.pieces("spans", ["track", "start_ns", "dur_ns"]):
        start, dur, track = piece["start_ns"], piece["dur_ns"], piece["track"]
        for rows in _runs(track):
            last_ns = _latest_end(start[rows], dur[rows])
            key = int(track[rows.start])
            latest[key] = max(last_ns, latest.get(key, last_ns))
        earliest_ns = int(start.min(initial=np.iinfo(np.int64).max))
        found.append((earliest_ns, dict(latest)))
    return found


def _runs(track: np.ndarray) -> Iterator[slice]:
    """The rows of each run of equal tracks: the spans of a track stand together."""
    if not len(track):
        return
    changes = np.flatnonzero(track[1:] != track[:-1]) + 1
    borders = [0, *changes.tolist(), len(track)]
    for first, behind in pairwise(borders):
        yield slice(first, behind)


def _latest_end(start: np.ndarray, dur: np.ndarray) -> int:
    """When the last of some spans ends. What is computed for it stays in the cache."""
    latest = []
    for first in range(0, len(start), _AT_ONCE):
        rows = slice(first, first + _AT_ONCE)
        ends = start[rows] + dur[rows]
        latest.append(int(ends.max()))
    return max(latest)


def _order(piece: Columns, steps: range | None) -> np.ndarray | None:
    """The wanted rows of a piece by track, start and depth. None: all as they stand, which most
    recordings allow.
    """
    wanted: np.ndarray | None = None
    track, start, depth = piece["track"], piece["start_ns"], piece["depth"]
    if steps is not None:
        in_steps = (piece["step"] >= steps.start) & (piece["step"] < steps.stop)
        wanted = np.flatnonzero(in_steps)
        track, start, depth = track[wanted], start[wanted], depth[wanted]
    starts_later = start[1:] > start[:-1]
    lies_deeper = (start[1:] == start[:-1]) & (depth[1:] >= depth[:-1])
    later = starts_later | lies_deeper
    one_track = _is_constant(track)
    in_order = later.all() if one_track else _sorted(track, later)
    if in_order:
        return wanted
    since = start - start.min()
    if since.max() >= _KEY_NS:
        order = np.lexsort((depth, start, track))
    else:
        deepest = (1 << _DEPTH_BITS) - 1
        key = (since << _DEPTH_BITS) | np.minimum(depth, deepest)
        # One track: the spans come by their end, which is nearly their order by start, and that
        # sorts fast.
        order = np.argsort(key, kind="stable") if one_track else np.lexsort((key, track))
    return order if wanted is None else wanted[order]


def _is_constant(values: np.ndarray) -> bool:
    """Whether there are values, and all are the same."""
    if not len(values) or values[0] != values[-1]:
        return False
    return bool((values[1:] == values[:-1]).all())


def _sorted(track: np.ndarray, later: np.ndarray) -> bool:
    """Whether rows stand by track, and on each track in order. `later`: whether each row but the
    first may stand behind the one before it.
    """
    next_track = track[1:] > track[:-1]
    same_track = track[1:] == track[:-1]
    in_order = next_track | (same_track & later)
    return bool(in_order.all())


def rows_of(reader: Reader, table: str, *by: str) -> list[dict[str, Any]]:
    """The rows of a small table, sorted by some of its columns, without the database: loading that
    takes longer.
    """
    columns = {column.name: column for column in TABLES[table].columns}
    arrays = reader.arrays(table, list(columns))
    lists = {}
    for name, column in columns.items():
        values = arrays[name].tolist()
        if column.type == "name":
            names = arrays[f"{name}.names"]
            values = [names[code] if code >= 0 else None for code in values]
        elif column.nullable:
            values = [None if value == -1 else value for value in values]
        lists[name] = values
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return sorted(rows, key=lambda row: [row[name] for name in by])
