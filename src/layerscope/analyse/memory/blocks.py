"""The table `allocations` as NumPy columns: every block with its process, its step and its end.

A block is live from `at_ns` until `end_ns`, at which it is live no more. Names are numbers of their
texts (`Blocks.names`), so that millions of blocks are no Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from layerscope.analyse.columns import code_of
from layerscope.analyse.step_times import process_of_tracks
from layerscope.model.distinct import distinct

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

Array = NDArray[Any]
Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

NAMES = ("device", "allocator", "operator", "line", "phase")
_COLUMNS = ("track", "at_ns", "dur_ns", "bytes", "module", "is_lost", *NAMES)
# The step of what lies in none.
NO_STEP = -1


class Steps(Struct):
    """The steps of one process, in the order of their starts."""

    step: Int64s
    start_ns: Int64s
    end_ns: Int64s
    is_warmup: Bools

    @property
    def last_end_ns(self) -> int:
        """When the last step ends; 0 without steps."""
        return int(self.end_ns.max(initial=0))

    def places_at(self, at_ns: Int64s) -> Int64s:
        """The place of the step that each moment lies in, -1: in none. Of steps that overlap (of
        requests) the one that started last.
        """
        if not len(self.step):
            return np.full(len(at_ns), -1, np.int64)
        begun = np.searchsorted(self.start_ns, at_ns, side="right")
        # Before all of them it is compared with the last one, and lies before that too.
        place = begun - 1
        is_within = at_ns < self.end_ns[place]
        is_within &= begun > 0
        return np.where(is_within, place, -1)

    def numbers_at(self, at_ns: Int64s) -> Array:
        """The number of the step that each moment lies in, -1: none; `at_ns` is in order."""
        count = len(self.step)
        edges = np.searchsorted(at_ns, self.start_ns)
        edges = np.append(edges, len(at_ns))
        ends = np.searchsorted(at_ns, self.end_ns)
        # What lies before all steps, and then in each step and behind it.
        lengths = np.zeros(2 * count + 1, np.int64)
        lengths[0] = edges[0]
        lengths[1::2] = np.minimum(ends, edges[1:]) - edges[:-1]
        lengths[2::2] = np.diff(edges) - lengths[1::2]
        numbers = np.full(2 * count + 1, NO_STEP, np.int32)
        numbers[1::2] = self.step
        return np.repeat(numbers, lengths)


class Blocks(Struct):
    """Blocks in the order of `at_ns`, a row each in every array.

    `end_ns`: when it was released; of a block that never was, the end of its process' recording; of
    a block whose release was lost (`is_lost`), its start, because it ended at a moment that nobody
    knows: it is never counted as live. `is_open`: it was not released while recorded. `step`: the
    step it was allocated in, -1: none. `module`: -1 where none was open. Of `device`, `allocator`,
    `operator`, `line` and `phase` the number in `names`.
    """

    process: Array
    track: Array
    at_ns: Int64s
    end_ns: Int64s
    bytes: Int64s
    step: Array
    module: Array
    is_open: Bools
    is_lost: Bools
    device: Array
    allocator: Array
    operator: Array
    line: Array
    phase: Array
    names: dict[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.at_ns)

    def at(self, rows: Array) -> Blocks:
        """Those at these places, or where a mask is true."""
        columns = {}
        for name in _ROWS:
            values = getattr(self, name)
            columns[name] = values[rows]
        return Blocks(**columns, names=self.names)

    def texts(self, column: str) -> Array:
        """The text of each row of a column of names."""
        texts: Array = self.names[column][getattr(self, column)]
        return texts

    def has_name(self, column: str, text: str) -> Bools:
        """Which rows have this text in `column`."""
        number = code_of(self.names[column], text)
        numbers = getattr(self, column)
        found: Bools = numbers == number
        return found

    @property
    def lives(self) -> Bools:
        """Which are live at any moment: one that is released in the nanosecond in which it is
        allocated is not, and neither is one whose release was lost.
        """
        lives: Bools = self.end_ns > self.at_ns
        return lives

    def live_at(self, at_ns: int) -> Bools:
        """Which are live at this moment."""
        is_live: Bools = (self.at_ns <= at_ns) & (self.end_ns > at_ns)
        return is_live

    def heaps(self) -> Iterator[tuple[int, str, Blocks]]:
        """Of each process and each device its blocks: what can be added up."""
        names = self.names["device"].tolist()
        for process in _used(self.process):
            own = _chosen(self, self.process == process)
            for device in _used(own.device):
                heap = _chosen(own, own.device == device)
                yield process, names[device], heap


_ROWS = tuple(name for name in Blocks.__struct_fields__ if name != "names")


def _chosen(blocks: Blocks, is_chosen: Bools) -> Blocks:
    """The chosen ones, without a copy where that is all."""
    if is_chosen.all():
        return blocks
    return blocks.at(is_chosen)


def _used(numbers: Array) -> list[int]:
    """The different ones of small numbers: of millions of rows a sort would take long."""
    counts = np.bincount(numbers)
    used: list[int] = np.flatnonzero(counts).tolist()
    return used


def read_blocks(reader: Reader) -> Blocks:
    """All blocks of a recording."""
    columns = reader.arrays("allocations", list(_COLUMNS))
    tracks = reader.arrays("tracks", ["track", "process"])
    of_track = process_of_tracks(tracks).astype(np.int32)
    process = of_track[columns["track"]]
    at_ns = columns["at_ns"]
    dur_ns = columns["dur_ns"]
    is_lost = columns["is_lost"].astype(np.bool_)
    is_open = (dur_ns < 0) & ~is_lost
    # In place: each array of millions of blocks costs as much as a pass over them.
    end_ns = np.maximum(dur_ns, 0)
    end_ns += at_ns
    steps = steps_of(reader)
    for number, last_ns in _ends(reader, process, end_ns, steps).items():
        is_own = is_open & (process == number)
        end_ns[is_own] = last_ns
    blocks = Blocks(
        process=process,
        track=columns["track"],
        at_ns=at_ns,
        end_ns=end_ns,
        bytes=columns["bytes"],
        step=np.full(len(at_ns), NO_STEP, np.int32),
        module=columns["module"],
        is_open=is_open,
        is_lost=is_lost,
        names={name: columns[f"{name}.names"] for name in NAMES},
        **{name: columns[name] for name in NAMES},
    )
    is_earlier = at_ns[1:] < at_ns[:-1]
    if is_earlier.any():
        order = np.argsort(at_ns, kind="stable")
        blocks = blocks.at(order)
    _add_steps(blocks, steps)
    return blocks


def steps_of(reader: Reader) -> dict[int, Steps]:
    """The steps of each process that has some."""
    columns = reader.arrays("steps", ["process", "step", "start_ns", "dur_ns", "warmup"])
    found = {}
    for process in distinct(columns["process"]).tolist():
        rows = np.flatnonzero(columns["process"] == process)
        order = np.argsort(columns["start_ns"][rows], kind="stable")
        own = {name: values[rows[order]] for name, values in columns.items()}
        found[process] = Steps(
            step=own["step"],
            start_ns=own["start_ns"],
            end_ns=own["start_ns"] + own["dur_ns"],
            is_warmup=own["warmup"].astype(np.bool_),
        )
    return found


def _ends(
    reader: Reader,
    process: Array,
    last_ns: Int64s,
    steps: dict[int, Steps],
) -> dict[int, int]:
    """When the recording of each process ended: at the earliest just after its last block, which
    was allocated or released at `last_ns`, and just after its last step. Where nobody told, as of a
    program that was killed, that is the end.
    """
    about = reader.arrays("processes", ["process", "end_ns"])
    numbers = about["process"].tolist()
    known = dict(zip(numbers, about["end_ns"].tolist(), strict=True))
    found = {}
    for number in _used(process):
        of_process = last_ns[process == number]
        ends_ns = [known.get(number, -1), int(of_process.max(initial=0)) + 1]
        if number in steps:
            # What nobody released is live after the last step.
            ends_ns.append(steps[number].last_end_ns + 1)
        found[number] = max(ends_ns)
    return found


def _add_steps(blocks: Blocks, steps: dict[int, Steps]) -> None:
    for process, of_process in steps.items():
        is_own = blocks.process == process
        # Not a copy where there is one process alone.
        rows = slice(None) if is_own.all() else np.flatnonzero(is_own)
        blocks.step[rows] = of_process.numbers_at(blocks.at_ns[rows])
