"""Memory that a program holds on to, step after step, by the line that allocates it.

What was allocated in a step and is live after the last one has survived all steps between. A line
leaks if it leaves such blocks behind in the last third of the steps as in the first: a cache that
is filled once, or that is full at last, does not, and neither does a queue of a fixed length, whose
old blocks go. The last two steps are not judged: what a variable names lives until the next step
anyway. Where records were lost during the steps, no line is called a leak: a block whose release is
among them looks like one that is kept.

The growth is the mean over the measured steps of the bytes that each leaves behind. Its interval is
that of `diff`: from blocks of steps, because neighbours resemble each other.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
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


class Growth(Struct):
    """By line (its number in `Blocks.names`) the bytes that a step leaves behind, with a 95 %
    interval; `is_leak`: whether they surely grow, and in the last third of the steps too. `steps`:
    how many were judged. `loss`: why no line is called a leak, though some look like one, that is,
    why records were lost, in words.
    """

    line: Array
    bytes_per_step: Floats
    low: Floats
    high: Floats
    is_leak: Bools
    steps: int
    loss: str = ""

    def worst(self, peak_bytes: int, is_named: Bools) -> int:
        """The place of the leak that grows most, -1: there is none that matters beside the peak.
        `is_named`: which lines are known.
        """
        grows = np.where(self.is_leak & is_named, self.bytes_per_step, 0.0)
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


def growth_of(blocks: Blocks, steps: Steps, loss: str = "") -> Growth:
    """The growth of each line that leaves anything behind; `blocks` of one process and device,
    `steps` of that process. `loss`: why records were lost meanwhile, in words.
    """
    judged = judged_places(steps)
    count = len(judged)
    rows = np.flatnonzero(blocks.end_ns > steps.last_end_ns)
    # The place of each block's step among the judged ones.
    place_of = np.full(len(steps.step) + 1, -1, np.int64)
    place_of[judged] = np.arange(count)
    place = place_of[steps.places_at(blocks.at_ns[rows])]
    is_judged = place >= 0
    rows, place = rows[is_judged], place[is_judged]
    line = blocks.line[rows]
    lines = distinct(line)
    # A row for each line and a column for each step.
    cell = np.searchsorted(lines, line) * count + place
    sums = np.bincount(cell, blocks.bytes[rows], len(lines) * count)
    left = sums.astype(np.float64).reshape(len(lines), count)
    return _judged(lines, left, loss)


def _judged(lines: Array, left: Floats, loss: str) -> Growth:
    """What the bytes that each step left behind say of each line."""
    count, steps = left.shape
    nothing = np.zeros(count)
    if not count:
        return Growth(lines, nothing, nothing, nothing, nothing > 0, steps)
    mean = estimate(left, MEAN)
    tail = (1 - LEVEL) / 2
    quantile = t_quantile(tail, mean.blocks - 1)
    error = quantile * np.sqrt(mean.variance)
    is_sure = mean.value > error
    is_leak = is_sure & _goes_on(left)
    found = Growth(
        line=lines,
        bytes_per_step=mean.value,
        low=mean.value - error,
        high=mean.value + error,
        is_leak=is_leak,
        steps=steps,
    )
    if loss and is_leak.any():
        found.is_leak = nothing > 0
        found.loss = loss
    return found


def _goes_on(left: Floats) -> Bools:
    """Whether the last third of the steps leaves as much behind as the first, of each line."""
    third = left.shape[1] // 3
    first = left[:, :third].mean(axis=1)
    last = left[:, -third:].mean(axis=1)
    goes_on: Bools = (first > 0) & (last >= _AS_BEFORE * first)
    return goes_on
