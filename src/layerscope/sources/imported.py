"""What a file holds that something else wrote: spans, samples or blocks of memory as columns, on
tracks of processes. Made by `sources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.events import Problem
from layerscope.model.layers import PHASES, THREAD


class ImportedTrack(Struct, frozen=True):
    """What carries spans and samples: its name and its process, an index into `Imported.processes`.

    `start_ns`, `end_ns`: when it was first seen and when it ended, None: not told.
    """

    process: int
    name: str
    tid: int | None = None
    start_ns: int = 0
    end_ns: int | None = None
    framework_thread: int = -1  # what the framework numbers it, for forward and backward
    kind: str = THREAD
    device: int | None = None  # of a stream
    number: int = 0  # what the profiler numbers it, where that is all there is


class ImportedProcess(Struct, frozen=True):
    """A process of the file: how the file calls it, "" if it does not, and its rank.

    `end_ns`: when it ended; None: with the last that the file tells. `about`: JSON, what the file
    tells of its job and its GPUs.
    """

    name: str = ""
    rank: int | None = None
    pid: int = 0
    ppid: int | None = None
    start_ns: int = 0
    end_ns: int | None = None
    about: str | None = None


class ImportedStacks(Struct):
    """Samples with their stacks: columns of the tables `frames`, `stacks` and `samples`, by name,
    without their keys.

    `frames`: name, layer, and what else is known. `stacks`: parent (-1: none), frame and depth.
    `samples`: at_ns, track, stack (-1: none), weight_ns, count, kind and state (indexes into
    SAMPLE_KINDS and SAMPLE_STATES of `model.layers`), idle, exact, and waker (-1: none). A track is
    an index into `Imported.tracks`. Waits whose state is `other` get the one that the functions of
    their stack tell.
    """

    frames: dict[str, Any]
    stacks: dict[str, np.ndarray]
    samples: dict[str, np.ndarray]


def _none() -> np.ndarray:
    return np.zeros(0, np.int64)


class ImportedMoments(Struct):
    """Values of counters and marks as columns. `name`: index into `Imported.names`, whose texts
    have the domain in a second line. `value`: of a counter. `is_mark`: a mark, which has none.
    """

    at_ns: np.ndarray = field(default_factory=_none)
    track: np.ndarray = field(default_factory=_none)
    name: np.ndarray = field(default_factory=_none)
    value: np.ndarray = field(default_factory=_none)
    is_mark: np.ndarray = field(default_factory=_none)


_OTHER_PHASE = PHASES.index("other")
_MEMORY = {
    "block": np.uint64,
    "bytes": np.int64,
    "is_release": np.bool_,
    "track": np.int32,
    "operator": np.int32,
    "line": np.int32,
    "device": np.int32,
    "allocator": np.uint8,
    "phase": np.uint8,
}


class ImportedMemory(Struct):
    """Allocations and releases as columns, in the order of time; where all rows have the same, one
    value is enough.

    `block`: its address, or another number that no two blocks have at the same time; an allocation
    and its release have the same one. `bytes`: of an allocation. `operator`, `line` and `device`:
    index into `Imported.names`, -1: not told. `phase`: index into PHASES of `model.layers`,
    `allocator`: into ALLOCATORS of `model.memory`.
    """

    at_ns: np.ndarray = field(default_factory=_none)
    block: np.ndarray | int = 0
    bytes: np.ndarray | int = 0
    is_release: np.ndarray | bool = False
    track: np.ndarray | int = 0
    operator: np.ndarray | int = -1
    line: np.ndarray | int = -1
    device: np.ndarray | int = -1
    allocator: np.ndarray | int = 0
    phase: np.ndarray | int = _OTHER_PHASE

    def column(self, name: str) -> np.ndarray:
        """One of the columns, with a value for each row."""
        values: np.ndarray = np.asarray(getattr(self, name), _MEMORY[name])
        return np.broadcast_to(values, self.at_ns.shape)

    def __len__(self) -> int:
        """How many allocations and releases there are."""
        return len(self.at_ns)


class Imported(Struct):
    """The spans or the samples of one file, its counters and marks, and its blocks of memory.

    `start_ns` of spans counts from the first one, at `realtime_ns` of CLOCK_REALTIME (None: the
    file does not tell times). `track`: index into `tracks`. `depth`: how many spans were open on
    the track when it started. `kind`: index into `model.layers.KINDS`. `name`: index into `names`.
    `args`: index into `args_texts`, JSON texts; -1: none. `more`:
    further fields of `sources.process.SPAN`. `first_ns`: the start of the first span on the file's
    own clock, where that begins with the recording of it. `realtime_at_ns`: the moment on the
    file's own clock that was `realtime_ns`. `lost`: (when, how many) samples nobody has. `host`:
    the machine it was recorded on. `command`: the command line of the recorder. `versions` and
    `environment`: what the file says about its libraries and the machine. `step_mark`: what spans
    that are steps are called, as the option of that name has it; "": it does not tell;
    `calls`: then, the names of operators each call of which may begin one, and how long what they
    asked for took.
    """

    start_ns: np.ndarray = field(default_factory=_none)
    dur_ns: np.ndarray = field(default_factory=_none)
    track: np.ndarray = field(default_factory=_none)
    depth: np.ndarray = field(default_factory=_none)
    kind: np.ndarray = field(default_factory=_none)
    name: np.ndarray = field(default_factory=_none)
    args: np.ndarray = field(default_factory=_none)
    more: dict[str, np.ndarray] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    args_texts: list[str] = field(default_factory=list)
    tracks: list[ImportedTrack] = field(default_factory=list)
    processes: list[ImportedProcess] = field(default_factory=list)
    stacks: ImportedStacks | None = None
    moments: ImportedMoments = field(default_factory=ImportedMoments)
    memory: ImportedMemory = field(default_factory=ImportedMemory)
    realtime_ns: int | None = None
    realtime_at_ns: int = 0
    first_ns: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    host: str = ""
    command: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    step_mark: str = ""
    calls: Mapping[str, int] = field(default_factory=dict)
