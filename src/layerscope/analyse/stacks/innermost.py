"""What each stack says of where it was: its innermost line of Python, module, operator and native
function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

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

# In the place of a module's path: outside of all modules, and wherever it was called.
OUTSIDE, ANYWHERE = "", "*"


@dataclass(frozen=True, slots=True)
class Innermost:
    """By stack the number of its innermost frame of a kind, NONE where it has none. symbol: only if
    it is the leaf.

    line: the innermost one of the program's own, that of a library if there is none. is_seen:
    whether any function of it is known, and not only what was open.
    """

    line: Ints
    module: Ints
    operator: Ints
    symbol: Ints
    is_seen: Bools

    def of(self, what: str, stack: Ints) -> Ints:
        """The `line`, `module`, `operator` or `symbol` of each of `stack`, which may be NONE."""
        known: Ints = getattr(self, what)
        return np.where(stack >= 0, np.append(known, NONE)[stack], NONE)

    def seen(self, stack: Ints) -> Bools:
        """Whether any function of each of `stack`, which may be NONE, is known."""
        found: Bools = np.append(self.is_seen, False)[stack]
        return found


def innermost(stacks: StackColumns, frames: FrameTable) -> Innermost:
    """What the stacks say."""
    levels = by_level(stacks.up)

    def frame_of(chosen: Bools) -> Ints:
        found = nearest(stacks.up, chosen, levels)
        return np.where(found >= 0, np.append(stacks.frame, NONE)[found], NONE)

    is_python = stacks.layer == PYTHON
    own_line = frame_of(is_python & of_program(frames)[stacks.frame])
    leaf = np.isin(stacks.layer, (NATIVE, KERNEL))
    return Innermost(
        np.where(own_line >= 0, own_line, frame_of(is_python)),
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
    return np.array([_OF_A_LIBRARY.search(frame.file) is None for frame in frames.all()], np.bool_)


def lines_of_operators(reader: Reader) -> dict[tuple[str, str], str]:
    """By operator and path of the module it ran in the line of Python, `file:line`, that most of
    its samples of CPU time were called from. The path may be OUTSIDE or ANYWHERE.

    That line is the innermost one around the operator that is the program's own, not of a library;
    of a library where there is none. Operators that were in no sample below a line have none.
    """
    if not reader.has("samples"):
        return {}
    frames = FrameTable()
    stacks = read_stacks(reader, frames)
    columns = reader.arrays("samples", ["stack", "kind", "weight_ns", "count"])
    is_cpu = (columns["kind.names"] == "cpu")[columns["kind"]]
    stack = stacks.place(columns["stack"][is_cpu].astype(np.int64))
    weights = np.stack([columns[name][is_cpu] for name in ("count", "weight_ns")], axis=1)[
        stack >= 0
    ]
    own = summed(len(stacks.up), stack[stack >= 0], weights)
    tree, _ = merged(stacks.up, stacks.frame, own, len(frames))
    layer = frames.layers()[tree.frame] if len(tree) else tree.frame
    levels, is_python = by_level(tree.parent), layer == PYTHON
    own_line = nearest(tree.parent, is_python & of_program(frames)[tree.frame], levels)
    line = np.where(own_line >= 0, own_line, nearest(tree.parent, is_python, levels))
    module = nearest(tree.parent, layer == MODULES, levels)
    # An operator that calls itself is called from where the outermost one is.
    chosen = np.flatnonzero((layer == OPERATORS) & outermost(tree) & (line >= 0))
    in_module = np.where(module[chosen] >= 0, np.append(tree.frame, NONE)[module[chosen]], NONE)
    rows = np.stack([tree.frame[chosen], in_module, tree.frame[line[chosen]]], axis=1)
    return _most(frames.all(), rows, tree.totals()[chosen])


def _most(every: list[StackFrame], rows: Ints, weights: Ints) -> dict[tuple[str, str], str]:
    """By operator and module the line with the most weight, of `rows` of the frames of these
    three.
    """
    known, at = np.unique(rows, axis=0, return_inverse=True)
    sums: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}
    for row, weight in zip(
        known.tolist(), summed(len(known), at.ravel(), weights).tolist(), strict=True
    ):
        operator, place = every[row[0]].name, every[row[2]].place
        for path in (every[row[1]].name if row[1] >= 0 else OUTSIDE, ANYWHERE):
            lines = sums.setdefault((operator, path), {})
            before = lines.get(place, (0, 0))
            lines[place] = before[0] + weight[0], before[1] + weight[1]
    return {
        key: max((weight, place) for place, weight in lines.items())[1]
        for key, lines in sums.items()
    }


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
