"""The rows of `step_samples`: the samples in measured steps with the names of where they were, and
of `stack_frames`: all frames of their stacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from layerscope.analyse.columns import dictionary_of
from layerscope.analyse.stacks.frames import StackFrame
from layerscope.analyse.stacks.innermost import innermost, labelled, named
from layerscope.analyse.stacks.sample_reader import places_of, stacks_once
from layerscope.analyse.stacks.tree import Ints
from layerscope.model.distinct import distinct, with_places
from layerscope.recording.arrow_columns import arrow_array

if TYPE_CHECKING:
    from layerscope.analyse.findings.workload import Workload
    from layerscope.recording.reader import Reader

_NAMES = ("kind", "state", "phase")
_COLUMNS = ("at_ns", "track", "stack", "weight_ns", "count", "idle", "exact", "step", "waker")


def sample_rows(workload: Workload) -> pa.Table:
    """The samples of all threads of the process in its measured steps."""
    reader = workload.reader
    samples = reader.arrays("samples", [*_COLUMNS, *_NAMES])
    mine = _in_steps(workload, samples["track"], samples["step"])
    numbers = {name: samples[name][mine] for name in _COLUMNS}
    if not workload.has_steps:
        numbers["step"] = np.full(len(mine), workload.step[0], np.int64)
    numbers["is_critical"] = np.isin(numbers["track"], workload.tracks)
    columns: dict[str, Any] = {name: arrow_array(values) for name, values in numbers.items()}
    for name in _NAMES:
        texts = samples[f"{name}.names"].tolist()
        columns[name] = dictionary_of(samples[name][mine], texts)
    columns |= _places(reader, numbers["stack"].astype(np.int64))
    return pa.table(columns)


def _places(reader: Reader, stack: Ints) -> dict[str, pa.DictionaryArray]:
    """What samples with these stacks were in, innermost."""
    columns = {}
    stacks, frames = stacks_once(reader)
    place = stacks.place(stack)
    inner, every = innermost(stacks, frames), frames.all()
    for name in ("line", "symbol", "operator", "module"):
        columns[name] = _texts(every, inner.of(name, place), named)
    columns["function"] = _texts(every, inner.of("function", place), labelled)
    leaf = inner.of("symbol", place)
    columns["object"] = _texts(every, leaf, _objects)
    return columns


def frames_of_stacks(workload: Workload) -> pa.Table:
    """The frames of every stack that a sample in measured steps has."""
    reader = workload.reader
    samples = reader.arrays("samples", ["track", "step", "stack"])
    mine = _in_steps(workload, samples["track"], samples["step"])
    stacks = reader.arrays("stacks", ["stack", "parent", "frame"])
    wanted = distinct(samples["stack"][mine])
    wanted = wanted[wanted >= 0]
    at = places_of(stacks["stack"], wanted)
    up = places_of(stacks["stack"], stacks["parent"])
    found, frames = [wanted[:0]], [wanted[:0]]
    while len(at):  # all of them one frame further out
        found.append(wanted)
        frames.append(stacks["frame"][at])
        at = up[at]
        wanted, at = wanted[at >= 0], at[at >= 0]
    stack = np.concatenate(found)
    frame = np.concatenate(frames)
    return pa.table({"stack": arrow_array(stack), "frame": arrow_array(frame)})


def _in_steps(workload: Workload, track: Ints, step: Ints) -> Ints:
    """The rows of samples in measured steps of the process."""
    tracks = workload.reader.arrays("tracks", ["track", "process"])
    is_of_process = tracks["process"] == workload.process
    of_process = tracks["track"][is_of_process]
    is_mine = np.isin(track, of_process)
    if workload.has_steps:
        is_mine &= np.isin(step, workload.step)
    return np.flatnonzero(is_mine)


def _objects(frames: list[StackFrame], numbers: Ints, none: str) -> list[str]:
    """The libraries of native frames."""
    found = []
    for number in numbers.tolist():
        if number < 0:
            found.append(none)
        else:
            found.append(frames[number].file)
    return found


def _texts(frames: list[StackFrame], numbers: Ints, write: Any) -> pa.DictionaryArray:
    """What `write` makes of each frame; empty for none."""
    found, at = with_places(numbers)
    return dictionary_of(at, write(frames, found, ""))
