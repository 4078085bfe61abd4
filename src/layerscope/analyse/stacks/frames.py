"""Which frames of stacks are drawn as one, and what they are called.

A frame of Python is its function, or with `by_line` a line of it; one of native code is its
function and the library it lies in, whatever the address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from layerscope.model.layers import FRAME_LAYERS

Ints = NDArray[Any]
(
    PYTHON,
    MODULES,
    OPERATORS,
    API,
    RANGES,
    PRIMITIVES,
    RUNTIME,
    GPU,
    NATIVE,
    KERNEL,
    WAITS,
    OTHER,
) = range(12)
# Codes of layers: those of the table `frames`, then what a thread waits for, then what stands for
# frames nobody knows.
LAYERS = (*FRAME_LAYERS, "waits", "other")
NO_LINE = -1


class StackFrame(NamedTuple):
    """What is drawn as one. `file`: of Python its source, of native code its library; empty where
    nobody knows.

    `short_file`: the end of `file` that tells it from others, where that is more than its last
    part.
    """

    layer: int
    name: str
    file: str = ""
    line: int = NO_LINE
    short_file: str = ""

    @property
    def label(self) -> str:
        """What is written on it: of Python `train (train.py)` or `train (train.py:12)`, of a line
        alone `train.py:12`.
        """
        if not self.file:
            return self.name
        line = f":{self.line}" if self.line >= 0 else ""
        short = self.short_file or self.file.rpartition("/")[2]
        place = f"{short}{line}"
        return f"{self.name} ({place})" if self.name else place

    @property
    def place(self) -> str:
        """Its file, with the line if it has one."""
        return f"{self.file}:{self.line}" if self.line >= 0 else self.file


def told_apart(frames: list[StackFrame]) -> list[StackFrame]:
    """`frames`, where files with the same last part of their path get the shortest end of it that
    differs.
    """
    called: dict[str, set[str]] = {}
    for frame in frames:
        called.setdefault(frame.file.rpartition("/")[2], set()).add(frame.file)
    short = {
        file: _shortest(file, files)
        for files in called.values()
        if len(files) > 1
        for file in files
    }
    return [frame._replace(short_file=short.get(frame.file, "")) for frame in frames]


def _shortest(file: str, files: set[str]) -> str:
    """The last parts of the path `file`, as many as it takes for no other of `files` to have
    them.
    """
    parts = file.split("/")
    others = [other for other in files if other != file]
    for count in range(2, len(parts) + 1):
        end = "/".join(parts[-count:])
        is_shared = any(other.endswith(f"/{end}") for other in others)
        if not is_shared:
            return end
    return file


class FrameTable(Struct):
    """Frames by number, each once: the same in two recordings that are compared."""

    _numbers: dict[StackFrame, int] = field(default_factory=dict)

    def number(self, frame: StackFrame) -> int:
        """The number of `frame`, which becomes known if it is not yet."""
        return self._numbers.setdefault(frame, len(self._numbers))

    def numbers(self, frames: Iterable[StackFrame]) -> Ints:
        """Those of several."""
        return np.fromiter((self.number(frame) for frame in frames), np.int64)

    def all(self) -> list[StackFrame]:
        """Every frame, by its number."""
        return list(self._numbers)

    def layers(self) -> Ints:
        """The layer of each."""
        return np.fromiter((frame.layer for frame in self._numbers), np.int64, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)
