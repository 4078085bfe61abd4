"""The functions that called one, and those that it called, with the CPU time spent in it for each.

name         name of the calling, or of the called function
file         its source, or the library it lies in
total_ns     CPU time in the function that was asked for, while it was called by this one; or in
             this one, while it was called by the function that was asked for
total_share  total_ns as a fraction of all time in the function that was asked for
samples      number of samples of total_ns

The rows add up to all time in the function. Of one that calls itself the outermost call has the
caller, the innermost one the callee. "itself" is the function's own time, with native code that it
ran; "where its thread began" stands for no caller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from layerscope.analyse.losses import problems
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
from layerscope.analyse.stacks.sample_reader import (
    CPU,
    Choice,
    check_recorded,
    read_samples,
    read_stacks,
)
from layerscope.analyse.stacks.tree import NONE, Bools, Ints, by_level, nearest, summed, without
from layerscope.model.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

CALLERS, CALLEES = "callers", "callees"
# By table the layers of its functions.
_LAYERS = {"functions": (PYTHON,), "symbols": (NATIVE, KERNEL)}
_ITSELF = StackFrame(OTHER, "itself")
_BEGIN = StackFrame(OTHER, "where its thread began")
COLUMNS = (
    ResultColumn("name", "string", "", "name of the calling, or the called function"),
    ResultColumn("file", "string", "", "its source, or the library it lies in"),
    ResultColumn("total_ns", "int64", NS, "CPU time in the function for it, or in it"),
    ResultColumn("total_share", "float64", SHARE, "total_ns as a fraction of all in the function"),
    ResultColumn("samples", "int64", COUNT, "number of samples of total_ns"),
)


def build(reader: Reader, table: str, name: str, direction: str) -> Result:
    """The CALLERS or the CALLEES of the function `name`, as `table` (functions, symbols) shows it;
    UsageError when the table has none, or no function is called so.
    """
    if table not in _LAYERS:
        raise UsageError(
            f"{table} has no --{direction}: it is for the tables functions and symbols"
        )
    check_recorded(reader)
    frames = FrameTable()
    stacks = read_stacks(reader, frames)
    samples = read_samples(reader, stacks, frames, CPU, Choice())
    is_wanted = np.isin(stacks.layer, _LAYERS[table])
    levels = by_level(stacks.up)
    # The stacks of functions of this table alone.
    up = np.where(is_wanted, without(stacks.up, is_wanted, levels), NONE)
    functions = FrameTable()
    code = functions.numbers(frame._replace(line=NO_LINE) for frame in frames.all())
    function = code[stacks.frame] if len(stacks.up) else stacks.frame
    is_asked_for = is_wanted & _called(name, functions, _LAYERS[table])[function]
    other = (_callers if direction == CALLERS else _callees)(up, is_asked_for, function, functions)
    into = nearest(stacks.up, is_wanted, levels)
    found = np.append(other[into], NONE)[samples.stack]
    found[into[samples.stack] < 0] = NONE
    is_inside = (found >= 0) & (samples.stack >= 0)
    weights = np.stack([samples.weight, samples.is_counted], axis=1)[is_inside]
    totals = summed(len(functions), found[is_inside], weights)
    result = _result(direction, functions.all(), totals)
    return replace(result, problems=problems(reader))


def _called(name: str, functions: FrameTable, layers: tuple[int, ...]) -> Bools:
    """By frame: whether it is called `name`, or so with its file. UsageError when none is."""
    every = functions.all()
    is_called = [frame.layer in layers and name in (frame.name, frame.label) for frame in every]
    if not any(is_called):
        known = sorted({frame.name for frame in every if frame.layer in layers})
        raise UsageError(f"no function is called {name!r}.{did_you_mean(name, known)}")
    return np.array(is_called, np.bool_)


def _callers(up: Ints, is_asked_for: Bools, function: Ints, functions: FrameTable) -> Ints:
    """By stack what called the outermost call of the function in it; NONE without such a call."""
    begin = functions.number(_BEGIN)
    found = np.full(len(up), NONE, np.int64)
    for nodes in by_level(up):
        caller = up[nodes]
        has_caller = caller >= 0
        of_caller = np.where(has_caller, found[caller], NONE)
        by = np.where(has_caller, function[caller], begin)
        own = np.where(is_asked_for[nodes], by, NONE)
        found[nodes] = np.where(of_caller >= 0, of_caller, own)
    return found


def _callees(up: Ints, is_asked_for: Bools, function: Ints, functions: FrameTable) -> Ints:
    """By stack what the innermost call of the function in it called; NONE without such a call."""
    itself = functions.number(_ITSELF)
    found = np.full(len(up), NONE, np.int64)
    for nodes in by_level(up):
        caller = up[nodes]
        has_caller = caller >= 0
        of_caller = np.where(has_caller, found[caller], NONE)
        is_called = has_caller & is_asked_for[caller]
        below = np.where(is_called, function[nodes], of_caller)
        found[nodes] = np.where(is_asked_for[nodes], itself, below)
    return found


def _result(direction: str, functions: list[StackFrame], totals: Ints) -> Result:
    """The rows, most time first."""
    rows = np.flatnonzero(totals.any(axis=1))
    rows = rows[np.lexsort((rows, -totals[rows, 0]))]
    total_ns = totals[rows, 0]
    chosen = [functions[row] for row in rows.tolist()]
    values: dict[str, Any] = {
        "name": [frame.name for frame in chosen],
        "file": [frame.file or None for frame in chosen],
        "total_ns": total_ns,
        "total_share": total_ns / max(int(total_ns.sum()), 1),
        "samples": totals[rows, 1],
    }
    data = pa.table(
        [pa.array(values[column.name], pa.type_for_alias(column.type)) for column in COLUMNS],
        names=[column.name for column in COLUMNS],
    )
    return of_arrow(direction, COLUMNS, data)
