"""What is new in a recording that grows: sums by key, in the order in which they are read.

`ingest.live` makes them, `analyse.live` adds them up.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

# What happened within one bucket of the run's clock is summed up together. A shift takes a fifth of
# the time of a division.
BUCKET_BITS = 27
BUCKET_NS = 1 << BUCKET_BITS
FUNCTIONS, OPERATORS, PRIMITIVES, SYMBOLS, THREADS, WAITS = (
    "functions",
    "operators",
    "primitives",
    "symbols",
    "threads",
    "waits",
)
# By table the sums of each of its rows, as the tables of a finished recording define them. A thread
# is `ready` while it could run and has no CPU.
SUMS = {
    FUNCTIONS: ("self_ns", "total_ns", "wait_ns", "samples"),
    OPERATORS: ("count", "total_ns", "self_ns"),
    PRIMITIVES: ("count", "total_ns", "self_ns"),
    SYMBOLS: ("self_ns", "total_ns", "wait_ns", "samples"),
    THREADS: ("cpu_ns", "ready_ns", "wait_ns", "idle_ns"),
    WAITS: ("count", "total_ns"),
}
# By table the texts that say what a row is about.
LABELS = {
    FUNCTIONS: ("name", "file"),
    OPERATORS: ("name", "kind"),
    PRIMITIVES: ("name", "implementation", "kind"),
    SYMBOLS: ("name", "object"),
    THREADS: ("thread", "process"),
    WAITS: ("state", "function"),
}
# Rules by which steps are told while they happen, the strongest first.
STEP_RULES = ("mark", "optimizer", "loader", "served", "request")
# The state of waits of a thread of a pool that has no work.
IDLE = "idle"


class KeyedSums(Struct):
    """Sums to be added: of each row its bucket (time // BUCKET_NS), its key and one column for each
    of `SUMS`. Keys are places in the labels of the table.
    """

    bucket: np.ndarray
    key: np.ndarray
    sums: np.ndarray


class ProcessLevel(Struct):
    """What was last read of a process; None: not known. `is_over`: it has ended."""

    pid: int
    rss_bytes: int | None = None
    rss_peak_bytes: int | None = None
    threads: int | None = None
    is_over: bool = False


class Increment(Struct):
    """What has come since the increment before.

    `until_ns`: all that ended before this time of the run is in it. `counted`: by table.
    `cpu`: CPU time of processes as their counters tell it, with the process as key.
    `step_ends`: by rule, when steps ended. `read_share`: how much of the files is read. `every`: of
    so many records one was read and stands for the others. `cpu_ns`: what reading records took.
    """

    until_ns: int = -1
    counted: dict[str, list[KeyedSums]] = field(default_factory=dict)
    cpu: list[KeyedSums] = field(default_factory=list)
    step_ends: dict[str, np.ndarray] = field(default_factory=dict)
    read_share: float = 1.0
    every: int = 1
    cpu_ns: int = 0


class Known(Struct):
    """What keys stand for, which grows with the recording: by table the texts of each key, and the
    processes by pid, the program's first. `lost`: records that were lost or taken out by then.
    """

    labels: dict[str, list[tuple[str, ...]]] = field(
        default_factory=lambda: {name: list[tuple[str, ...]]() for name in SUMS}
    )
    processes: dict[int, ProcessLevel] = field(default_factory=dict)
    lost: int = 0
    has_samples: bool = False


def buckets_of(window_ns: int) -> int:
    """How many whole buckets a window of about this length has."""
    return max(round(window_ns / BUCKET_NS), 1)


def counted(bucket: np.ndarray, key: np.ndarray, *columns: np.ndarray) -> KeyedSums:
    """Sums of which each column is given."""
    return KeyedSums(bucket, key, np.column_stack(columns).astype(np.int64, copy=False))
