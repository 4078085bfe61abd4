"""Memory that a program holds on to, step after step, by the line that allocates it.

What was allocated in a step and is live after the last one has survived all steps between. A line
leaks if it leaves such blocks behind in the last third of the steps as in the first: a cache that
is filled once, or that is full at last, does not, and neither does a queue of a fixed length, whose
old blocks go. The last two steps are not judged: what a variable names lives until the next step
anyway.

The growth is the mean over the measured steps of the bytes that each leaves behind. Its interval is
that of `diff`: from blocks of steps, because neighbours resemble each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerscope.analyse.diff.intervals import LEVEL, MEAN, estimate, t_quantile
from layerscope.analyse.memory.blocks import Array, Blocks, Bools, Steps
from layerscope.model.distinct import distinct

# Of fewer steps there are no thirds of which each says something.
FEWEST_STEPS = 6
# Steps at the end that are not judged.
_CUT_STEPS = 2
# The last third grows at least so much as this part of the growth of the first.
_AS_BEFORE = 0.5
# A list of losses, of some bytes each, grows too. Over all steps a leak is this part of the peak.
_LEAST_SHARE = 0.005

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Growth:
    """By line (its number in `Blocks.names`) the bytes that a step leaves behind, with a 95 %
    interval; `is_leak`: whether they surely grow, and in the last third of the steps too. `steps`:
    how many were judged.
    """

    line: Array
    bytes_per_step: Floats
    low: Floats
    high: Floats
    is_leak: Bools
    steps: int

    def worst(self, peak_bytes: int) -> int:
        """The place of the leak that grows most, -1: there is none that matters beside the peak."""
        grows = np.where(self.is_leak, self.bytes_per_step, 0.0)
        most = float(grows.max(initial=0.0))
        # At least a byte, which nothing is not.
        least = max(_LEAST_SHARE * peak_bytes, 1)
        if most * self.steps < least:
            return -1
        return int(np.argmax(grows))


def judged_places(steps: Steps) -> Array:
    """The places of the steps that are judged: none of too few."""
    judged: Array = np.flatnonzero(~steps.is_warmup)[:-_CUT_STEPS]
    if len(judged) < FEWEST_STEPS:
        judged = judged[:0]
    return judged


def growth_of(blocks: Blocks, steps: Steps) -> Growth:
    """The growth of each line that leaves anything behind; `blocks` of one process and device,
    `steps` of that process.
    """
    judged = judged_places(steps)
    rows = np.flatnonzero(blocks.end_ns > steps.last_end_ns)
    # The place of each block's step among the judged ones.
    place_of = np.full(len(steps.step) + 1, -1, np.int64)
    place_of[judged] = np.arange(len(judged))
    place = place_of[steps.places_at(blocks.at_ns[rows])]
    is_judged = place >= 0
    rows, place = rows[is_judged], place[is_judged]
    lines = distinct(blocks.line[rows])
    low, mean, high = np.zeros((3, len(lines)))
    found = Growth(
        line=lines,
        bytes_per_step=mean,
        low=low,
        high=high,
        is_leak=np.zeros(len(lines), np.bool_),
        steps=len(judged),
    )
    for number, line in enumerate(lines.tolist()):
        is_own = blocks.line[rows] == line
        sizes = blocks.bytes[rows[is_own]]
        left = np.bincount(place[is_own], sizes, len(judged))
        _judge(found, number, left.astype(np.float64))
    return found


def _judge(found: Growth, number: int, left: Floats) -> None:
    """What the bytes that each step left behind say of a line."""
    mean = estimate(left[None, :], MEAN)
    value, variance = mean.value[0], mean.variance[0]
    tail = (1 - LEVEL) / 2
    quantile = t_quantile(tail, mean.blocks - 1)
    error = quantile * variance**0.5
    found.bytes_per_step[number] = value
    found.low[number] = value - error
    found.high[number] = value + error
    found.is_leak[number] = value > error and _goes_on(left)


def _goes_on(left: Floats) -> bool:
    """Whether the last third of the steps leaves as much behind as the first."""
    third = len(left) // 3
    first = float(left[:third].mean())
    last = float(left[-third:].mean())
    if not first:
        return False
    return last >= _AS_BEFORE * first
