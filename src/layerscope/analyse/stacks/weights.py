"""The weights of samples on stacks, piece after piece of a recording: memory follows the stacks,
not the samples.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from layerscope.analyse.stacks.frames import OTHER, WAITS, FrameTable, StackFrame
from layerscope.analyse.stacks.sample_reader import SampleColumns, StackColumns
from layerscope.analyse.stacks.tree import (
    NONE,
    Bools,
    GroupWeights,
    Ints,
    NodeColumns,
    apart,
    extended,
    summed,
)

UNKNOWN_STACK = StackFrame(OTHER, "stack not known")
IDLE = " (idle)"
# `samples.state` of waits, in words.
WORDS_OF_WAITS = {
    "gil": "waits for the GIL",
    "lock": "waits for a lock",
    "barrier": "waits at a barrier",
    "pool": "waits for work",
    "sleep": "sleeps",
    "yield": "yields the CPU",
    "pipe": "waits for a pipe",
    "socket": "waits for a socket",
    "file": "waits for a file",
    "event": "waits for events",
    "page_fault": "waits for a page",
    "preempted": "preempted: no CPU was free",
    "child": "waits for a child",
    "join": "waits for a thread to end",
    "backward": "waits for the backward pass",
    "gpu": "waits for the GPU",
    "stopped": "stopped by a signal",
    "unknown": "waits: reason not recorded",
}
_WAITS_OTHERWISE = "waits"
# What a thread waits for: so many states, each idle or not; the last one is no wait.
_CODES = 1 << 8
_NO_WAIT = _CODES - 1


class Weights(Struct):
    """The weights of samples on so many stacks: time or page faults, and number of samples.

    A wait is at a frame more, which says for what. Samples whose stack is not known have a stack of
    their own, behind the others.
    """

    stacks: int
    _own: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    _states: list[str] = field(default_factory=list)
    _codes: list[Ints] = field(default_factory=list)
    _of_codes: list[Ints] = field(default_factory=list)

    def __post_init__(self) -> None:
        rows = self.stacks + 1
        self._own = np.zeros((rows, 2), np.int64)

    def add(self, samples: SampleColumns, counted: Bools | None, group: Ints | None) -> None:
        """Add the samples, of those `counted` if that is given; `group`: what is kept apart, for
        all pieces or none.
        """
        self._states = samples.states
        stack = np.where(samples.stack >= 0, samples.stack, np.int32(self.stacks))
        weights = _weights(samples, counted)
        if group is None:
            plain = np.flatnonzero(~samples.is_wait)
            for column in range(2):
                np.add.at(self._own[:, column], stack[plain], weights[plain, column])
            coded = np.flatnonzero(samples.is_wait)
        else:
            coded = np.arange(len(stack))
        wait = np.where(samples.is_wait, samples.state * 2 + samples.idle, _NO_WAIT)
        code = stack[coded] * np.int64(_CODES) + wait[coded].astype(np.int64)
        if group is not None:
            code += group.astype(np.int64) * (_CODES * (self.stacks + 1))
        known, at = np.unique(code, return_inverse=True)
        self._codes.append(known)
        self._of_codes.append(summed(len(known), at, weights[coded]))

    def nodes(self, stacks: StackColumns, frames: FrameTable, roots: Ints | None) -> NodeColumns:
        """The stacks, one for samples whose stack is not known, and the waits below them.

        roots: the outermost frame of each group. Without groups None.
        """
        all_codes = np.concatenate([np.zeros(0, np.int64), *self._codes])
        codes, at = np.unique(all_codes, return_inverse=True)
        weights = np.concatenate([np.zeros((0, 2), np.int64), *self._of_codes])
        group, pair = np.divmod(codes, _CODES * (self.stacks + 1))
        is_wait = pair % _CODES != _NO_WAIT
        pairs, place = np.unique(pair[is_wait], return_inverse=True)
        numbers = frames.numbers(
            wait_frame(state, is_idle) for state in self._states for is_idle in (False, True)
        )
        waiting, reason = np.divmod(pairs, _CODES)
        up = extended(stacks.up, NONE, waiting)
        unknown = frames.number(UNKNOWN_STACK)
        frame = extended(stacks.frame, unknown, numbers[reason] if len(pairs) else pairs)
        depth = extended(stacks.depth, 0)
        depth = extended(depth, depth[waiting] + 1)
        if not len(codes):
            return NodeColumns(up, frame, self._own, depth)
        own = summed(len(codes), at, weights)
        if roots is None:
            return NodeColumns(up, frame, np.concatenate((self._own, own)), depth)
        node = pair // _CODES
        node[is_wait] = self.stacks + 1 + place
        return apart(up, frame, depth, GroupWeights(node, group, own), roots)


def _weights(samples: SampleColumns, counted: Bools | None) -> Ints:
    """Weight and number of each sample, zero of those that are not `counted`."""
    numbers = samples.is_counted.astype(samples.weight.dtype)
    weights = np.stack([samples.weight, numbers], axis=1)
    if counted is not None:
        weights *= counted[:, None]
    return weights


def wait_frame(state: str, is_idle: bool) -> StackFrame:
    """What stands for a wait in this state."""
    name = WORDS_OF_WAITS.get(state, _WAITS_OTHERWISE)
    if is_idle:
        name += IDLE
    return StackFrame(WAITS, name)
