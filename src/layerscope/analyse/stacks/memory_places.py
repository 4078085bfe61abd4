"""What blocks of memory are drawn as: the modules around their allocation, from the outermost on,
then the operator and the source line.

Where blocks lie on several devices, or several libraries allocated them, that is the outermost
frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from layerscope.analyse.memory.blocks import Blocks
from layerscope.analyse.memory.grouping import grouped_by
from layerscope.analyse.stacks.frames import (
    MODULES,
    OPERATORS,
    OTHER,
    PYTHON,
    FrameTable,
    StackFrame,
)
from layerscope.analyse.stacks.tree import NONE, Ints
from layerscope.model.distinct import distinct

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

UNKNOWN = StackFrame(OTHER, "no module, operator or line known")


class _Places(Struct):
    """Ways of frames as nodes: the node above each, and its frame."""

    up: list[int] = field(default_factory=list)
    frame: list[int] = field(default_factory=list)
    _known: dict[tuple[int, int], int] = field(default_factory=dict)

    def end_of(self, way: Iterable[int]) -> int:
        """The node of the last of these frames, which lie in each other."""
        node = NONE
        for frame in way:
            inside = self._known.get((node, frame))
            if inside is None:
                inside = self._known[node, frame] = len(self.up)
                self.up.append(node)
                self.frame.append(frame)
            node = inside
        return node


def nodes_of_places(reader: Reader, frames: FrameTable, blocks: Blocks) -> tuple[Ints, Ints, Ints]:
    """A node for each place in which blocks were allocated and for what lies around it: the node
    above and the frame of each. Then the node of each block.
    """
    first, place_of = _distinct_places(blocks)
    modules = _module_frames(reader)
    origin = _has_several(blocks)
    places = _Places()
    ends = []
    for block in map(_OneBlock, [blocks] * len(first), first.tolist()):
        way = [block.origin] if origin else []
        way += modules.get(block.module, [])
        way += block.inside
        numbers = [frames.number(frame) for frame in way or [UNKNOWN]]
        ends.append(places.end_of(numbers))
    node = np.array(ends, np.int32)[place_of]
    return np.array(places.up, np.int32), np.array(places.frame, np.int32), node


class _OneBlock(Struct, frozen=True):
    """A row of the blocks, as frames."""

    blocks: Blocks
    row: int

    def _text(self, column: str) -> str:
        """Its text in a column of names."""
        blocks = self.blocks
        numbers = getattr(blocks, column)
        number = numbers[self.row]
        texts = blocks.names[column]
        return str(texts[number])

    @property
    def module(self) -> int:
        """The key of its module."""
        module = self.blocks.module[self.row]
        return int(module)

    @property
    def origin(self) -> StackFrame:
        """Who allocated it and where it lies."""
        allocator = self._text("allocator")
        device = self._text("device")
        return StackFrame(OTHER, f"{allocator} on {device}")

    @property
    def inside(self) -> list[StackFrame]:
        """Its operator and its line, as far as they are known."""
        found = []
        operator = self._text("operator")
        if operator:
            found.append(StackFrame(OPERATORS, operator))
        line = self._text("line")
        file, _, number = line.rpartition(":")
        if file and number.isdecimal():
            found.append(StackFrame(PYTHON, "", file, int(number)))
        elif line:
            found.append(StackFrame(PYTHON, line))
        return found


def _distinct_places(blocks: Blocks) -> tuple[Ints, Ints]:
    """A block of each place, and the place of each block."""
    columns = [
        blocks.device,
        blocks.allocator,
        blocks.module,
        blocks.operator,
        blocks.line,
    ]
    groups = grouped_by(columns)
    return groups.first, groups.number


def _has_several(blocks: Blocks) -> bool:
    """Whether several libraries allocated them, or on several devices."""
    devices = distinct(blocks.device)
    allocators = distinct(blocks.allocator)
    most = max(len(devices), len(allocators))
    return most > 1


def _module_frames(reader: Reader) -> dict[int, list[StackFrame]]:
    """By module the frames of those that hold it, from the outermost on, and its own."""
    columns = reader.arrays("modules", ["module", "parent", "path"])
    modules, parents, paths = (values.tolist() for values in columns.values())
    parent = dict(zip(modules, parents, strict=True))
    frame = {
        module: StackFrame(MODULES, str(path)) for module, path in zip(modules, paths, strict=True)
    }
    found = {}
    for module in modules:
        way: list[StackFrame] = []
        above = module
        # At most so many: what holds itself, as in a damaged file, has no end.
        while above in frame and len(way) < len(modules):
            way.append(frame[above])
            above = parent[above]
        way.reverse()
        found[module] = way
    return found
