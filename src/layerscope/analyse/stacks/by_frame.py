"""Tables of functions, lines and symbols: the CPU time of each from samples, with the error of
sampling.

A time from n samples is known to about one part in the root of n. The interval of a share is
Wilson's for 95 %, with as many samples as would say as much if all weighed alike (Kish). It takes
each sample for a draw of its own, as samples that come by chance are. CPU time of which no stack is
known may be of any row: the upper end has it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn, of_arrow
from layerscope.analyse.stacks.frames import (
    KERNEL,
    NATIVE,
    NO_LINE,
    OTHER,
    PYTHON,
    FrameTable,
    StackFrame,
)
from layerscope.analyse.stacks.innermost import innermost, is_seen, of_program
from layerscope.analyse.stacks.sample_reader import (
    PAGEFAULTS,
    WALL,
    Choice,
    SampleColumns,
    StackColumns,
    read_samples,
    read_stacks,
)
from layerscope.analyse.stacks.tree import (
    NONE,
    FrameTree,
    Ints,
    by_level,
    grouped,
    merged,
    nearest,
    of_frames,
    summed,
    without,
)
from layerscope.analyse.tables.modules import OUTSIDE
from layerscope.analyse.tables.threads import THREAD_NAMES
from layerscope.model.distinct import distinct
from layerscope.model.units import duration
from layerscope.recording.arrow_columns import arrow_array

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

FUNCTIONS, LINES, SYMBOLS, OBJECTS = "functions", "lines", "symbols", "objects"
UNKNOWN = "not known"
NO_OPERATOR = "outside any operator"
BY = ("thread", "module", "operator", "step")
_OUTSIDE = {
    FUNCTIONS: StackFrame(OTHER, "outside Python"),
    LINES: StackFrame(OTHER, "outside Python"),
    SYMBOLS: StackFrame(OTHER, "outside native code"),
    OBJECTS: StackFrame(OTHER, "", "outside native code"),
}
_OTHERS = StackFrame(OTHER, "outside the program's own files")
_UNKNOWN = StackFrame(OTHER, UNKNOWN)
# The column of weights that counts page faults.
_FAULTS = 3
# 95 % of a normal distribution.
_SURE = 1.96
TIMES = (
    ResultColumn("self_ns", "int64", NS, "CPU time in it and in nothing that it called"),
    ResultColumn(
        "self_share", "float64", SHARE, "self_ns as a fraction of all CPU time of the recording"
    ),
    ResultColumn("self_share_low", "float64", SHARE, "self_share lies with 95 % between this"),
    ResultColumn("self_share_high", "float64", SHARE, "and this"),
    ResultColumn("total_ns", "int64", NS, "CPU time in it and in what it called"),
    ResultColumn(
        "total_share", "float64", SHARE, "total_ns as a fraction of all CPU time of the recording"
    ),
    ResultColumn("wait_ns", "int64", NS, "time it waited off the CPU, in nothing that it called"),
    ResultColumn("samples", "int64", COUNT, "samples of self_ns"),
    ResultColumn("faults", "int64", COUNT, "page faults in it and in nothing that it called"),
    ResultColumn("total_faults", "int64", COUNT, "page faults in it and in what it called"),
)
BY_COLUMNS = {
    "thread": ResultColumn("thread", "string", "", "name and id of the thread"),
    "module": ResultColumn("module", "string", "", "path of the innermost module"),
    "operator": ResultColumn("operator", "string", "", "the innermost operator"),
    "step": ResultColumn("step", "int64", "", "number of the step; none outside steps"),
}


class _Counted(Struct, frozen=True):
    """Rows: their group, their frame, and weights (CPU time, samples, waiting, page faults) of
    their own and in total.
    """

    group: Ints
    frame: list[StackFrame]
    own: Ints
    totals: Ints


def interval(
    share: NDArray[np.float64], samples: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Between what shares lie with 95 % that were found among so many samples: Wilson's
    interval.
    """
    if not samples:
        return np.zeros_like(share), np.ones_like(share)
    more = _SURE**2 / samples
    middle = (share + more / 2) / (1 + more)
    variance = share * (1 - share) / samples + more / (4 * samples)
    half = _SURE / (1 + more) * np.sqrt(variance)
    low = np.maximum(middle - half, 0)
    high = np.minimum(middle + half, 1)
    return low, high


def _intervals(
    counted: _Counted, whole: int, samples: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of the share of each row in the whole. Where no stack is known, none was drawn."""
    own = counted.own[:, 0]
    is_unknown = np.array(
        [UNKNOWN in (frame.name, frame.file) for frame in counted.frame], np.bool_
    )
    unknown = int(own[is_unknown].sum()) / whole
    known = max(1 - unknown, 1 / whole)
    of_known = np.minimum(own / (whole * known), 1)
    low, high = interval(of_known, samples * known)
    low, high = low * known, np.minimum(high * known + unknown, 1)
    low[is_unknown] = high[is_unknown] = own[is_unknown] / whole
    return low, high


def _is_unknown(frame: StackFrame) -> bool:
    return frame.layer == OTHER and UNKNOWN in (frame.name, frame.file)


def effective_samples(weight: Ints) -> float:
    """How many samples of the same weight say as much as these."""
    weights = weight.astype(np.float64)
    squares = float((weights**2).sum())
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def _whole_samples(samples: SampleColumns) -> Ints:
    """The CPU time of each sample: that in the kernel may have a row of its own."""
    is_cpu = ~samples.is_wait
    is_last = samples.is_counted[is_cpu]
    return np.bincount(np.cumsum(is_last) - is_last, samples.weight[is_cpu]).astype(np.int64)


def build(
    reader: Reader,
    what: str,
    columns: tuple[ResultColumn, ...],
    by: str | None,
    is_mine: bool = False,
) -> Result:
    """One row for each function, line, symbol or object, or for each of them and `by`; most time of
    its own first.

    `columns`: those before the times. They are called after fields of the frame: name, file, line,
    function, object. `is_mine`: only what lies in files of the program; what it calls in libraries
    counts for the line that called it.
    """
    frames = FrameTable()
    stacks = read_stacks(reader, frames)
    samples = read_samples(reader, stacks, frames, WALL, Choice(), with_place=True)
    group, texts = _groups(reader, stacks, samples, frames, by)
    counted = _counted(what, stacks, samples, frames, group, is_mine)
    faults = read_samples(reader, stacks, frames, PAGEFAULTS, Choice(), with_place=True)
    if len(faults.weight):
        group, more = _groups(reader, stacks, faults, frames, by)
        texts = {**texts, **more}
        counted = _with_faults(counted, _counted(what, stacks, faults, frames, group, is_mine))
    cpu = samples.weight[~samples.is_wait]
    whole = max(int(cpu.sum()), 1)
    self_ns = counted.own[:, 0]
    total_ns = counted.totals[:, 0]
    wait_ns = counted.own[:, 2]
    own_faults = counted.own[:, _FAULTS]
    total_faults = counted.totals[:, _FAULTS]
    share = self_ns / whole
    low, high = _intervals(counted, whole, effective_samples(_whole_samples(samples)))
    values: dict[str, Any] = {
        "self_ns": self_ns,
        "self_share": share,
        "self_share_low": low,
        "self_share_high": high,
        "total_ns": total_ns,
        "total_share": total_ns / whole,
        "wait_ns": wait_ns,
        "samples": counted.own[:, 1],
        "faults": own_faults,
        "total_faults": total_faults,
    }
    for column in columns:
        values[column.name] = [_ABOUT[column.name](frame) for frame in counted.frame]
    if by is not None:
        values[by] = [texts[number] for number in counted.group.tolist()]
        columns = (BY_COLUMNS[by], *columns)
    columns = (*columns, *TIMES)
    keys = (
        -total_faults,
        -own_faults,
        -total_ns,
        -wait_ns,
        -self_ns,
    )
    order = np.lexsort(keys)
    data = pa.table(
        [_in_order(values[column.name], order, column.type) for column in columns],
        names=[column.name for column in columns],
    )
    return of_arrow(what, columns, data, notes=notes(samples))


def _in_order(values: np.ndarray | list[Any], order: np.ndarray, kind: str) -> pa.Array:
    """What `pa.array(...).take` does, without the 60 ms that its imports take."""
    if isinstance(values, np.ndarray):
        return arrow_array(values[order])
    return pa.array([values[place] for place in order.tolist()], pa.type_for_alias(kind))


def _with_faults(counted: _Counted, faults: _Counted) -> _Counted:
    """The rows of both, the weights of `faults` as page faults."""
    of_times, of_faults = _keys(counted), _keys(faults)
    every = list(dict.fromkeys([*of_times, *of_faults]))
    row_of = {key: row for row, key in enumerate(every)}
    rows = [row_of[key] for key in of_times]
    fault_rows = [row_of[key] for key in of_faults]
    own = np.zeros((len(every), _FAULTS + 1), np.int64)
    totals = np.zeros_like(own)
    own[rows] = counted.own
    totals[rows] = counted.totals
    own[fault_rows, _FAULTS] = faults.own[:, 0]
    totals[fault_rows, _FAULTS] = faults.totals[:, 0]
    groups = np.array([group for group, _ in every], np.int64)
    frames = [frame for _, frame in every]
    return _Counted(groups, frames, own, totals)


def _keys(counted: _Counted) -> list[tuple[int, StackFrame]]:
    """What the rows are of: group and frame."""
    groups = counted.group
    frames = counted.frame
    numbers = groups.tolist()
    pairs = zip(numbers, frames, strict=True)
    return list(pairs)


def notes(samples: SampleColumns) -> tuple[str, ...]:
    """What must be said of samples."""
    if not samples.idle_weight:
        return ()
    return (
        f"{duration(samples.idle_weight)} that threads of pools waited without work are not in "
        "wait_ns.",
    )


_ABOUT: dict[str, Callable[[StackFrame], str | None]] = {
    "name": lambda frame: frame.name,
    "file": lambda frame: frame.file or None,
    "line": lambda frame: frame.place or frame.name,
    "function": lambda frame: frame.name if frame.layer == PYTHON else None,
    "object": lambda frame: frame.file or None,
}


def _identity(what: str, frame: StackFrame) -> StackFrame:
    """What a frame is counted as."""
    if what == OBJECTS:
        return (
            StackFrame(NATIVE, "", frame.file)
            if frame.layer == NATIVE
            else StackFrame(KERNEL, "", "kernel")
        )
    return frame if what == LINES else frame._replace(line=NO_LINE)


def _counted(
    what: str,
    stacks: StackColumns,
    samples: SampleColumns,
    frames: FrameTable,
    group: Ints,
    is_mine: bool = False,
) -> _Counted:
    """Weights by group and by what frames are counted as."""
    layers = (PYTHON,) if what in (FUNCTIONS, LINES) else (NATIVE, KERNEL)
    wanted = np.isin(stacks.layer, layers)
    if is_mine and len(wanted):
        wanted &= of_program(frames)[stacks.frame]
    levels = by_level(stacks.up)
    every = frames.all()
    own_frames = FrameTable()
    outside = own_frames.number(_OTHERS if is_mine else _OUTSIDE[what])
    unknown = own_frames.number(_UNKNOWN if what != OBJECTS else StackFrame(OTHER, "", UNKNOWN))
    code = own_frames.numbers(
        _identity(what, frame) if frame.layer in layers else _OUTSIDE[what] for frame in every
    )
    size = len(stacks.up)
    # Behind the stacks: one that is outside, one of which no function is known, and for symbols one
    # in each stack that ends outside native code.
    up = np.where(wanted, without(stacks.up, wanted, levels), NONE)
    frame = code[stacks.frame] if size else stacks.frame
    up, frame = np.append(up, (NONE, NONE)), np.append(frame, (outside, unknown))
    into = nearest(stacks.up, wanted, levels)
    is_unknown = (into < 0) & ~is_seen(stacks, levels)
    if layers != (PYTHON,):
        up = np.concatenate((up, into))
        frame = np.concatenate((frame, np.full(size, outside)))
        into = np.where(wanted, into, size + 2 + np.arange(size))
    else:
        into[into < 0] = size
    into[is_unknown] = size + 1
    node = np.append(into, size + 1)[samples.stack]
    is_cpu = ~samples.is_wait
    # A sample in the kernel and before counts in both, if they are not counted as one thing.
    is_sample = is_cpu & (samples.is_counted | np.append(node[:-1] != node[1:], True)[: len(node)])
    columns = [samples.weight * is_cpu, is_sample, samples.weight * samples.is_wait]
    weights = np.stack([*columns, np.zeros_like(samples.weight)], axis=1).astype(np.int64)
    tree, place = merged(up, frame, summed(len(up), node, weights), len(own_frames))
    has_weight = np.asarray(weights.any(axis=1))
    return _of_groups(
        tree, place[node[has_weight]], group[has_weight], weights[has_weight], own_frames
    )


def _of_groups(
    tree: FrameTree, node: Ints, group: Ints, weights: Ints, frames: FrameTable
) -> _Counted:
    known, at = np.unique(group, return_inverse=True)
    forest, of_node = grouped(tree, node, at, weights, len(known))
    # A frame of one group is another one than the same frame of another group.
    code = of_node * len(frames) + forest.frame
    pairs, pair = np.unique(code, return_inverse=True)
    of_pairs = FrameTree(forest.parent, pair, forest.own, forest.levels)
    own, totals = of_frames(of_pairs, len(pairs))
    place, number = np.divmod(pairs, len(frames))
    every = frames.all()
    found = [every[at] for at in number.tolist()]
    groups = pairs
    if len(pairs):
        groups = known[place]
    return _Counted(groups, found, own, totals)


def _groups(
    reader: Reader, stacks: StackColumns, samples: SampleColumns, frames: FrameTable, by: str | None
) -> tuple[Ints, dict[int, Any]]:
    """The group of each sample, and what groups are called."""
    if by is None:
        return np.zeros(len(samples.weight), np.int64), {0: None}
    if by == "thread":
        return samples.track, thread_names(reader)
    if by == "step":
        return samples.step, {
            step: None if step < 0 else step for step in distinct(samples.step).tolist()
        }
    numbers = innermost(stacks, frames).of(by, samples.stack)
    every = frames.all()
    none = OUTSIDE if by == "module" else NO_OPERATOR
    return numbers, {
        number: none if number < 0 else every[number].name for number in distinct(numbers).tolist()
    }


def thread_names(reader: Reader) -> dict[int, str]:
    """What each thread is called, by its track."""
    return dict(reader.connection().sql(THREAD_NAMES).fetchall())
