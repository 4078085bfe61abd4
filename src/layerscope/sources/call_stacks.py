"""Stacks and samples out of calls and returns: the time between two events is a sample of the stack
that was open meanwhile. Used by `speedscope` and `perf_calls`.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from msgspec import Struct, field

from layerscope.model.layers import SAMPLE_KINDS, SAMPLE_STATES
from layerscope.sources.imported import ImportedStacks
from layerscope.sources.stack_tree import FrameColumns

_CPU, _USER = SAMPLE_KINDS.index("cpu"), SAMPLE_STATES.index("user")
# Calls that lie deeper belong to the last one that does not.
MOST_DEPTH = 4096
NONE = -1


def _numbers() -> array[int]:
    return array("q")


class CallStacks(Struct):
    """The distinct stacks, and samples of them. A stack is a number, NONE: nothing is open."""

    frames: FrameColumns = field(default_factory=FrameColumns)
    parent: array[int] = field(default_factory=_numbers)
    frame: array[int] = field(default_factory=_numbers)
    depth: array[int] = field(default_factory=_numbers)
    _known: dict[tuple[int, int], int] = field(default_factory=dict)
    _samples: dict[str, array[int]] = field(
        default_factory=lambda: {
            name: _numbers() for name in ("at_ns", "track", "stack", "weight_ns")
        }
    )

    def below(self, stack: int, frame: int) -> int:
        """The stack with a frame more."""
        key = stack, frame
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.parent)
            self.parent.append(stack)
            self.frame.append(frame)
            self.depth.append(0 if stack == NONE else self.depth[stack] + 1)
        return found

    def sample(self, track: int, stack: int, at_ns: int, weight_ns: int) -> None:
        """Take in a sample; one without a stack or a weight is none."""
        if stack == NONE or weight_ns <= 0:
            return
        samples = self._samples
        samples["at_ns"].append(at_ns)
        samples["track"].append(track)
        samples["stack"].append(stack)
        samples["weight_ns"].append(weight_ns)

    def imported(self, first_ns: int) -> ImportedStacks:
        """All of them, with times since `first_ns`."""
        columns: dict[str, Any] = {
            name: np.array(values, np.int64) for name, values in self._samples.items()
        }
        count = len(columns["at_ns"])
        columns["at_ns"] = columns["at_ns"] - first_ns
        for name, value in (("count", 1), ("kind", _CPU), ("state", _USER), ("waker", NONE)):
            columns[name] = np.full(count, value, np.int64)
        columns["idle"] = np.zeros(count, np.bool_)
        columns["exact"] = np.zeros(count, np.bool_)
        stacks = {
            "parent": np.array(self.parent, np.int32),
            "frame": np.array(self.frame, np.int32),
            "depth": np.array(self.depth, np.int32),
        }
        return ImportedStacks(self.frames.columns, stacks, columns)

    @property
    def first_ns(self) -> int:
        """When the first sample was."""
        return min(self._samples["at_ns"], default=0)

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self._samples["at_ns"])


class OpenCalls(Struct):
    """The calls that are open on one track. `unmatched`: how many returns had no call; `backwards`:
    how many events came before the one in front of them.
    """

    stacks: CallStacks
    track: int
    unmatched: int = 0
    backwards: int = 0
    _frames: list[int] = field(default_factory=list)
    _stacks: list[int] = field(default_factory=list)
    _too_deep: int = 0
    _at_ns: int | None = None

    def call(self, frame: int, at_ns: int) -> None:
        """A function is called."""
        self._until(at_ns)
        if len(self._frames) >= MOST_DEPTH:
            self._too_deep += 1
            return
        around = self._stacks[-1] if self._stacks else NONE
        self._frames.append(frame)
        self._stacks.append(self.stacks.below(around, frame))

    def found_in(self, frame: int) -> None:
        """Where nothing is open this function is, since the last event."""
        if not self._frames:
            self.unmatched += 1
            self._frames.append(frame)
            self._stacks.append(self.stacks.below(NONE, frame))

    def finish(self, frame: int, at_ns: int, is_tail: bool = False) -> None:
        """A function returns, and all that it called with it. `is_tail`: one that was not called
        was jumped to by the last one that was, and returns in its place.
        """
        self._until(at_ns)
        if self._too_deep:
            self._too_deep -= 1
        elif self._frames and (
            self._frames[-1] == frame or (is_tail and frame not in self._frames)
        ):
            self._frames.pop()
            self._stacks.pop()
        elif frame in self._frames:
            keep = len(self._frames) - 1 - self._frames[::-1].index(frame)
            del self._frames[keep:], self._stacks[keep:]
        else:
            self.unmatched += 1

    def forget(self, at_ns: int) -> None:
        """What is open is not known any more."""
        self._until(at_ns)
        self._frames.clear()
        self._stacks.clear()
        self._too_deep = 0

    def until(self, at_ns: int) -> None:
        """What is open stays so until then."""
        self._until(at_ns)

    def _until(self, at_ns: int) -> None:
        before = self._at_ns
        if before is not None and at_ns < before:
            self.backwards += 1
            return
        if before is not None and self._stacks:
            self.stacks.sample(self.track, self._stacks[-1], before, at_ns - before)
        self._at_ns = at_ns
