"""Stacks as a tree, each distinct one once: what any format with stacks puts its own into.

A stack is a row of frames from the outermost on. Memory follows the number of distinct ones: a part
of a file at a time becomes a level of the tree after the other.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.symbols.short_names import printed

JIT, KERNEL, UNKNOWN = "[jit]", "[kernel]", "[unknown]"
# What `python -X perf` writes into perf-PID.map: py::NAME:FILE.
_TRAMPOLINE = re.compile(r"^py::(.*):(.*)$")
_COLUMNS = ("layer", "name", "signature", "file", "line", "object", "build_id", "address")
_FRAME_BITS = 32


class FrameColumns(Struct):
    """Frames by number, each distinct line of a function once; `columns` are those of the table
    `frames`.
    """

    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _COLUMNS})
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def add(self, layer: str, name: str, **more: Any) -> int:
        """The number of a line of a function: calls at several addresses are one frame, with the
        address seen first.
        """
        python = _TRAMPOLINE.match(name) if layer == "native" else None
        if python:
            layer, name, more = "python", python[1], {"file": python[2]}
        elif layer == "native":
            whole = name
            name = printed(whole)
            more["signature"] = whole if whole != name else None
        key = (
            layer,
            name,
            more.get("signature"),
            more.get("object"),
            more.get("file"),
            more.get("line"),
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self._known)
            for column, values in self.columns.items():
                values.append(more.get(column))
            self.columns["layer"][-1], self.columns["name"][-1] = layer, name
        return found


def unnamed(path: str) -> str:
    """What a function without a name is called, of the file `path`."""
    _, _, file_name = path.rpartition("/")
    name = file_name.strip("[]") or path
    return f"[{name}]"


class _StackLevel(Struct):
    """The stacks of one depth: `keys` in order, each a parent and a frame, and their numbers."""

    keys: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    numbers: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))


class StackTree(Struct):
    """Stacks by number; a parent's is smaller."""

    count: int = 0
    _levels: list[_StackLevel] = field(default_factory=list)
    _rows: list[tuple[np.ndarray, np.ndarray, int]] = field(default_factory=list)

    def add(self, frames: np.ndarray, first: np.ndarray, length: np.ndarray) -> np.ndarray:
        """The number of each stack: those of `length` frames from `first` on in `frames`; -1 for
        one without frames.
        """
        found = np.full(len(first), -1, np.int64)
        rows = np.flatnonzero(length > 0)
        for depth in range(int(length.max(initial=0))):
            if depth:
                rows = rows[length[rows] > depth]
            parent = found[rows] + 1
            frame = frames[first[rows] + depth].astype(np.int64)
            keys = parent << _FRAME_BITS | frame
            found[rows] = self._numbers(depth, keys)
        return found

    def walk(self, frames: np.ndarray, depth: np.ndarray) -> np.ndarray:
        """The number of the stack that ends at each step of a walk through a tree.

        A step is a frame with so many around it, which are the last ones before it of each smaller
        depth.
        """
        found = np.full(len(frames), -1, np.int64)
        order = np.argsort(depth, kind="stable")
        levels = np.split(
            order, np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 1))
        )
        above = None
        for level, steps in enumerate(levels):
            around = 0 if above is None else found[above[np.searchsorted(above, steps) - 1]] + 1
            found[steps] = self._numbers(
                level, around << _FRAME_BITS | frames[steps].astype(np.int64)
            )
            above = steps
        return found

    def _numbers(self, depth: int, keys: np.ndarray) -> np.ndarray:
        """The numbers of the stacks of this depth with these keys, which may be new."""
        if depth == len(self._levels):
            self._levels.append(_StackLevel())
        level = self._levels[depth]
        distinct, row = np.unique(keys, return_inverse=True)
        at = np.searchsorted(level.keys, distinct)
        is_new = np.ones(len(distinct), np.bool_)
        inside = at < len(level.keys)
        is_new[inside] = level.keys[at[inside]] != distinct[inside]
        fresh = distinct[is_new]
        if len(fresh):
            numbers = np.arange(self.count, self.count + len(fresh), dtype=np.int32)
            self.count += len(fresh)
            mask = (1 << _FRAME_BITS) - 1
            self._rows.append(
                (
                    ((fresh >> _FRAME_BITS) - 1).astype(np.int32),
                    (fresh & mask).astype(np.int32),
                    depth,
                )
            )
            level.keys = np.insert(level.keys, at[is_new], fresh)
            level.numbers = np.insert(level.numbers, at[is_new], numbers)
            at = np.searchsorted(level.keys, distinct)
        numbers_of: np.ndarray = level.numbers[at][row]
        return numbers_of

    def columns(self) -> dict[str, np.ndarray]:
        """`parent` (-1: none), `frame` and `depth` of every stack. Nothing can be added any
        more.
        """
        self._levels.clear()
        lengths = np.array([len(frame) for _, frame, _ in self._rows], np.int64)
        columns = {
            "depth": np.repeat(np.array([depth for _, _, depth in self._rows], np.int32), lengths)
        }
        parents, frames = [row[0] for row in self._rows], [row[1] for row in self._rows]
        self._rows.clear()
        for name, parts in (("parent", parents), ("frame", frames)):
            columns[name] = np.concatenate([np.zeros(0, np.int32), *parts])
            parts.clear()
        return columns
