"""What each stack says of where it was: its innermost line of Python, module, operator and native
function.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from layerscope.analyse.columns import has_name
from layerscope.analyse.stacks.frames import (
    KERNEL,
    MODULES,
    NATIVE,
    OPERATORS,
    PYTHON,
    FrameTable,
    StackFrame,
)
from layerscope.analyse.stacks.sample_reader import StackColumns, read_stacks
from layerscope.analyse.stacks.tree import (
    NONE,
    Bools,
    FrameTree,
    Ints,
    by_level,
    merged,
    nearest,
    outermost,
    summed,
)

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Where Python and its packages are installed, and code that has no file.
_OF_A_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python3(\.\d+)?/|^<")

# What every program waits in, and ends in: the C and C++ libraries.
C_LIBRARY = re.compile(
    r"(^|/)(lib(c|pthread|stdc\+\+|c\+\+|gcc_s)|ld-linux[\w-]*|ld-musl[\w-]*)[-.][\w.]*(so|musl)"
    r"|^\[vdso\]"
)

# In the place of a module's path: outside of all modules, and wherever it was called.
OUTSIDE, ANYWHERE = "", "*"

# An operator and the path of the module that it ran in.
OperatorInModule = tuple[str, str]


class Innermost(Struct, frozen=True):
    """By stack the number of its innermost frame of a kind, NONE where it has none. symbol: only if
    it is the leaf.

    line: the innermost one of the program's own, that of a library if there is none. function: that
    of the line; without Python the innermost native function outside of the C and C++ libraries.
    is_seen: whether any function of it is known, and not only what was open.
    """

    line: Ints
    function: Ints
    module: Ints
    operator: Ints
    symbol: Ints
    is_seen: Bools

    def of(self, what: str, stack: Ints) -> Ints:
        """The `line`, `function`, `module`, `operator` or `symbol` of each of `stack`, which may be
        NONE.
        """
        return _at(getattr(self, what), stack)

    def seen(self, stack: Ints) -> Bools:
        """Whether any function of each of `stack`, which may be NONE, is known."""
        found: Bools = np.append(self.is_seen, False)[stack]
        return found


def innermost(stacks: StackColumns, frames: FrameTable) -> Innermost:
    """What the stacks say."""
    levels = by_level(stacks.up)

    def frame_of(chosen: Bools) -> Ints:
        found = nearest(stacks.up, chosen, levels)
        return _at(stacks.frame, found)

    is_python = stacks.layer == PYTHON
    own_line = frame_of(is_python & of_program(frames)[stacks.frame])
    line = np.where(own_line >= 0, own_line, frame_of(is_python))
    leaf = np.isin(stacks.layer, (NATIVE, KERNEL))
    caller = frame_of((stacks.layer == NATIVE) & ~_of_c_library(frames)[stacks.frame])
    return Innermost(
        line,
        np.where(line >= 0, _at(functions(frames), line), caller),
        frame_of(stacks.layer == MODULES),
        frame_of(stacks.layer == OPERATORS),
        np.where(leaf, stacks.frame, NONE),
        is_seen(stacks, levels),
    )


def is_seen(stacks: StackColumns, levels: list[Ints]) -> Bools:
    """Whether any function of each stack is known, and not only what was open; `levels`: by
    `tree.by_level`.
    """
    return nearest(stacks.up, np.isin(stacks.layer, (PYTHON, NATIVE)), levels) >= 0


def of_program(frames: FrameTable) -> Bools:
    """By frame: whether its file is none of a library's."""
    is_ours = [_OF_A_LIBRARY.search(frame.file) is None for frame in frames.all()]
    return np.array(is_ours, np.bool_)


def functions(frames: FrameTable) -> Ints:
    """The frame of the function of each frame of Python; of others the frame itself."""
    return frames.numbers(
        StackFrame(PYTHON, frame.name, frame.file) if frame.layer == PYTHON else frame
        for frame in frames.all()
    )


def _of_c_library(frames: FrameTable) -> Bools:
    """By frame: whether it lies in what every program waits in: the C and C++ libraries."""
    is_there = [C_LIBRARY.search(frame.file) is not None for frame in frames.all()]
    return np.array(is_there, np.bool_)


def _at(values: Ints, places: Ints) -> Ints:
    """The value at each place, NONE where the place is NONE."""
    with_none = np.append(values, NONE)
    found: Ints = with_none[places]
    return found


def lines_of_operators(reader: Reader) -> dict[OperatorInModule, dict[str, int]]:
    """By operator and path of the module it ran in the lines of Python, `file:line`, that its
    samples of CPU time were called from, with their CPU time in ns. The path may be OUTSIDE or
    ANYWHERE.

    Such a line is the innermost one around the operator that is the program's own, not of a
    library; of a library where there is none. Operators that were in no sample below a line have
    none.
    """
    if not reader.has("samples"):
        return {}
    frames = FrameTable()
    tree = _tree_of_cpu_time(reader, frames)
    parent = tree.parent
    frame = tree.frame
    levels = by_level(parent)
    layer = frame
    if len(tree):
        layer = frames.layers()[frame]
    is_python = layer == PYTHON
    is_own_line = is_python & of_program(frames)[frame]
    own_line = nearest(parent, is_own_line, levels)
    any_line = nearest(parent, is_python, levels)
    line = np.where(own_line >= 0, own_line, any_line)
    module = nearest(parent, layer == MODULES, levels)
    # An operator that calls itself is called from where the outermost one is.
    is_outermost_call = (layer == OPERATORS) & outermost(tree)
    calls = np.flatnonzero(is_outermost_call & (line >= 0))
    operators = frame[calls]
    modules = _at(frame, module[calls])
    lines = frame[line[calls]]
    rows = np.stack([operators, modules, lines], axis=1)
    return _by_call(frames.all(), rows, tree.totals()[calls])


def _tree_of_cpu_time(reader: Reader, frames: FrameTable) -> FrameTree:
    """The stacks of the samples of CPU time; weights: number and time of the samples."""
    stacks = read_stacks(reader, frames)
    columns = reader.arrays("samples", ["stack", "kind", "weight_ns", "count"])
    is_cpu = has_name(columns, "kind", "cpu")
    keys = columns["stack"][is_cpu].astype(np.int64)
    stack = stacks.place(keys)
    numbers, times_ns = columns["count"][is_cpu], columns["weight_ns"][is_cpu]
    weights = np.stack([numbers, times_ns], axis=1)
    is_known = stack >= 0
    own = summed(len(stacks.up), stack[is_known], weights[is_known])
    tree, _ = merged(stacks.up, stacks.frame, own, len(frames))
    return tree


def _by_call(
    every: list[StackFrame], rows: Ints, weights: Ints
) -> dict[OperatorInModule, dict[str, int]]:
    """By operator and module the time of each line, of `rows` of the frames of these three."""
    known, at = np.unique(rows, axis=0, return_inverse=True)
    sums = summed(len(known), at.ravel(), weights)
    times_of: dict[OperatorInModule, Counter[str]] = defaultdict(Counter)
    for row, (_, time_ns) in zip(known.tolist(), sums.tolist(), strict=True):
        operator, module, line = row
        name = every[operator].name
        path = every[module].name if module != NONE else OUTSIDE
        for key in ((name, path), (name, ANYWHERE)):
            times_of[key][every[line].place] += time_ns
    return {key: dict(times_ns) for key, times_ns in times_of.items()}


def named(frames: list[StackFrame], numbers: Ints, none: str) -> list[str]:
    """What is written in a table for frames by number: of Python the place, of others the name;
    `none` for NONE.
    """
    return [
        none
        if number < 0
        else frames[number].place
        if frames[number].layer == PYTHON
        else frames[number].name
        for number in numbers.tolist()
    ]


def labelled(frames: list[StackFrame], numbers: Ints, none: str) -> list[str]:
    """The functions of frames by number: of Python with its file; `none` for NONE."""
    return [
        none
        if number < 0
        else frames[number].label
        if frames[number].layer == PYTHON
        else frames[number].name
        for number in numbers.tolist()
    ]
