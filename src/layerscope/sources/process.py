"""One process of a source: what ingest asks of it, whatever file its events come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.clocks import Conversion, Identity
from layerscope.model.compiled import compiled
from layerscope.model.layers import THREAD
from layerscope.rawfile import dtypes

# Tracks and records (`dtypes.RECORD`) with times in ns of the run.
Marks = tuple[np.ndarray, np.ndarray]
# A span on its way into the tables. Texts are numbers into `ProcessEvents.names`; 0: none. `origin`
# is, of a backward function, the framework's number of the thread of its operator; of an operator
# that was submitted, when that was, and `submitter` the track that did so; of a call of a runtime
# and of work of a GPU the correlation. Of that work, and of the operator that asked for it,
# `submitter` is a number that they have in common. 0: nothing is known.
# Every field lies where its type is aligned, which NumPy reads in half the time. Rows of it are
# chosen by `take` and `compress`, which copy bytes; an index, as in `spans[rows]`, takes 30 times
# as long.
SPAN = np.dtype(
    [
        ("start", "<i8"),
        ("end", "<i8"),
        ("origin", "<i8"),
        ("name", "<u4"),
        ("module", "<u4"),
        ("seq", "<i4"),
        ("track", "<i4"),
        ("depth", "<i4"),
        ("optimizer", "<i4"),
        ("line", "<u4"),
        ("args", "<u4"),
        ("submitter", "<i4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("unfinished", "u1"),
    ],
    align=True,
)

# An allocation, or the release of one, in ns of the run. Texts are numbers into
# `ProcessEvents.names`; 0: none, of `device` the CPU. `phase`: as in PHASES, `allocator`: as in
# ALLOCATORS of `model/memory.py`. `is_release`: STOP where recording stopped, and what became of
# the blocks is not known. Of a release only the time, the address and the track are known.
STOP = 2
MEMORY = np.dtype(
    [
        ("at_ns", "<i8"),
        ("address", "<u8"),
        ("bytes", "<i8"),
        ("operator", "<u4"),
        ("module", "<u4"),
        ("line", "<u4"),
        ("device", "<u4"),
        ("track", "<i4"),
        ("phase", "u1"),
        ("allocator", "u1"),
        ("is_release", "u1"),
    ],
    align=True,
)


# Those that are asked for of all rows, as lc_split of native/tables has them.
_FIELDS = (
    "start",
    "end",
    "origin",
    "name",
    "module",
    "seq",
    "depth",
    "optimizer",
    "line",
    "args",
    "kind",
    "unfinished",
)


def joined_rows(pieces: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all pieces, of which there is at least one, of the same type."""
    if len(pieces) == 1:
        return pieces[0]
    # As bytes: NumPy copies rows with fields field by field, which takes 70 times as long.
    whole = map(np.ascontiguousarray, pieces)
    data = np.concatenate([piece.view(np.uint8) for piece in whole])
    row_type = pieces[0].dtype
    return data.view(row_type)


# What few spans have. The bit of each is that of lc_split.
_RARE = ("origin", "optimizer", "line", "args", "unfinished")


def by_field(rows: np.ndarray) -> dict[str, np.ndarray]:
    """The fields of rows of `SPAN` as columns, which are quicker to go through many times. Of what
    none of them has there is one zero for all.
    """
    library = compiled()
    if library is None:
        columns = {name: np.ascontiguousarray(rows[name]) for name in _FIELDS}
        has = sum(bool(columns[name].any()) << bit for bit, name in enumerate(_RARE))
    else:
        columns = {name: np.empty(len(rows), SPAN[name]) for name in _FIELDS}
        has = library.call("split", np.ascontiguousarray(rows), len(rows), *columns.values())
    for bit, name in enumerate(_RARE):
        if not has >> bit & 1:
            columns[name] = np.zeros((), SPAN[name])
    return columns


class SourceTrack(Struct):
    """A thread of a process, or a stream of a GPU; times are of the source's clock
    (`ProcessEvents.to_run`).
    """

    number: int
    tid: int | None
    framework_thread: int
    start: int
    end: int | None = None
    name: str = ""
    kind: str = THREAD
    device: int | None = None  # of a stream


# The reason of a loss: the framework's own profiler did not record.
NO_SEGMENT = "no_segment"


class Loss(Struct):
    """Records that were lost, in times of the source's clock. Track 0: not known which. `lost`:
    None where nobody could count them.
    """

    track: int
    start: int
    end: int
    lost: int | None
    reason: str
    final: bool = False  # not told by a record but by the drainer's last word


def _no_sums() -> np.ndarray:
    return np.zeros((0, 4), np.int64)


class ProcessEvents(Struct):
    """The events of one process, as far as they were read. What a source does not have stays empty.

    `about`: pid, ppid, rank, argv, start_ns, end_ns. `names`: texts by number. `counters`: rows of
    `rawfile.counters`. `readings`: (ticks, run_ns, realtime_ns, error_ns). `totals`: exact sums of
    all spans, (kind, name, count, ticks); `unseen`: the same of spans that were taken out of the
    source, which are `stripped`. `records`: number of spans so far. `waiting`: number of spans that
    the next batches would look at. `ended`: no more will come. `unknown_kinds`: kinds of spans that
    only a newer layerscope knows. `outside`: what was marked from outside, (ns of the run, name).
    `silent`: from when to when, in ns of the run, nothing was recorded of what steps may be.
    """

    about: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=lambda: ["(other names)"])
    tracks: dict[int, SourceTrack] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    counters: list[np.ndarray] = field(default_factory=list)
    readings: list[tuple[int, int, int, int]] = field(default_factory=list)
    clock: Conversion = field(default_factory=Identity)
    final: dict[str, Any] = field(default_factory=dict)
    totals: np.ndarray = field(default_factory=_no_sums)
    unseen: np.ndarray = field(default_factory=_no_sums)
    ended: bool = False
    records: int = 0
    stripped: int = 0
    waiting: int = 0
    unknown_kinds: list[str] = field(default_factory=list)
    outside: list[tuple[int, str]] = field(default_factory=list)
    silent: list[tuple[int, int]] = field(default_factory=list)

    @property
    def read_until_ns(self) -> int:
        """All that ended before this was read."""
        if not self.readings:
            return -1
        _, run_ns, *_ = self.readings[-1]
        return run_ns

    def batches(self, last: bool = False) -> Iterator[tuple[int, np.ndarray]]:
        """By track, the spans that can be judged now: `SPAN` rows, times in ns of the run.

        With `last`, everything that is left, and the spans that never ended.
        """
        yield from ()

    def moments(self) -> Marks:
        """What the program counted and marked, in the order of time."""
        return no_marks()

    def memory(self, last: bool = False) -> np.ndarray:
        """Allocations and releases that can be judged now, in the order of time, as rows of
        `MEMORY`; each is given once. With `last`, everything that is left.
        """
        return np.zeros(0, MEMORY)

    def step_marks(self) -> Marks:
        """Where the program marked the end of a step."""
        return no_marks()

    def window_marks(self) -> Marks:
        """Where windows opened and closed."""
        return no_marks()

    @property
    def has_step_marks(self) -> bool:
        """Whether the program has marked the end of a step."""
        return bool(len(self.step_marks()[0]))

    @property
    def clock_end_ns(self) -> int:
        """All that ended before this was given out by `batches`."""
        return self.to_run(self.clock.last)

    def clock_doubt(self) -> str:
        """What was wrong with the clock of the source; empty: nothing."""
        return ""

    def to_run(self, ticks: int) -> int:
        """One moment of the source's clock in ns of the run."""
        return int(self.clock.to_run(np.array([ticks], np.int64))[0])


def no_marks() -> Marks:
    """Where a process has none."""
    tracks = np.zeros(0, np.int32)
    records = np.zeros(0, dtypes.RECORD)
    return tracks, records


class SourceProcess:
    """A process and how its events are read. Of one that has no file of its own there is nothing
    to read.

    `rank`: the folder of its rank, where several recordings are read as one. `has_shares`: a
    primitive may be recorded once more on each thread that works for it.
    """

    __slots__ = ("events", "has_shares", "host", "rank")

    def __init__(
        self, events: ProcessEvents, host: str = "", rank: str = "", has_shares: bool = False
    ) -> None:
        self.events = events
        self.host = host
        self.rank = rank
        self.has_shares = has_shares

    def pieces(self) -> Iterator[None]:
        """Read on, and stop after each piece after which `batches` has more."""
        yield from ()

    @property
    def left_bytes(self) -> int:
        """How much is still to be read."""
        return 0

    @property
    def is_damaged(self) -> bool:
        """Whether something in its file cannot be read."""
        return False

    def read_files(self) -> list[Path]:
        """The files of it that were read to their end and that nobody writes to any more."""
        return []

    def is_first(self, file: Path) -> bool:
        """Whether `file` is the one that its recording begins with."""
        return True

    def strip(self, file: Path) -> int:
        """Take the spans out of one of `read_files`; returns how many bytes that frees."""
        return 0
