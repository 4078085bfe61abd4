"""The moment at which most memory is live, and which blocks are live then.

Each process has its own moment, and so has each device of it: processes do not wait for each
other, and memory of one device is of no use to another.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.memory.blocks import NO_STEP, Blocks, Bools, Int64s, Steps
from layerscope.analyse.memory.live_curve import live_at_allocations


class Peak(Struct):
    """The first moment at which most bytes are live, and which of the blocks are: their sizes add
    up to `bytes`. `step`: the step it lies in, -1: none. `phase`: that of the block that was
    allocated then.
    """

    at_ns: int
    bytes: int
    is_live: Bools
    step: int = NO_STEP
    phase: str = ""


class Heap(Struct):
    """The blocks of one process on one device, with their peak."""

    process: int
    device: str
    blocks: Blocks
    peak: Peak

    @property
    def at_peak(self) -> Blocks:
        """The blocks that are live at the peak."""
        return self.blocks.at(self.peak.is_live)

    @property
    def is_timed(self) -> bool:
        """Whether anybody knows when its blocks were allocated: not where all have one time, as
        those of files that say only what was live at a peak.
        """
        at_ns = self.blocks.at_ns
        if len(at_ns) < 2:
            return True
        return bool(at_ns[0] < at_ns[-1])


def peak_of(blocks: Blocks) -> Peak:
    """The peak of blocks of one process and device; of none a peak of 0 bytes."""
    if not len(blocks):
        return Peak(0, 0, np.zeros(0, np.bool_))
    live = live_at_allocations(blocks)
    # Of blocks that are allocated in one nanosecond, all are live with the last one.
    first = int(np.argmax(live))
    at_ns = int(blocks.at_ns[first])
    is_live = blocks.live_at(at_ns)
    phase = str(blocks.names["phase"][blocks.phase[first]])
    return Peak(at_ns, int(blocks.bytes[is_live].sum()), is_live, int(blocks.step[first]), phase)


def heaps(blocks: Blocks) -> list[Heap]:
    """The peaks of all processes and devices, the highest first."""
    found = [
        Heap(process, device, of_heap, peak_of(of_heap))
        for process, device, of_heap in blocks.heaps()
    ]
    return sorted(found, key=lambda heap: -heap.peak.bytes)


def peaks_of_steps(blocks: Blocks, steps: Steps) -> Int64s:
    """The most bytes that are live at once in each step, what it began with included; `blocks` of
    one process and device, `steps` of this process, which may overlap, as requests do.
    """
    began = _live_at(blocks, steps.start_ns)
    if not len(began):
        return began
    # A place more, for steps that begin after the last block.
    live = np.append(live_at_allocations(blocks), 0)
    first = np.searchsorted(blocks.at_ns, steps.start_ns)
    end = np.searchsorted(blocks.at_ns, steps.end_ns)
    # The highest of each step, and behind it that of what lies up to the next one.
    edges = np.column_stack([first, end]).ravel()
    within = np.maximum.reduceat(live, edges)[::2]
    # Of a step without blocks it is that of the block behind it.
    within[first == end] = 0
    return np.maximum(began, within)


def _live_at(blocks: Blocks, moments_ns: Int64s) -> Int64s:
    """How many bytes are live at each of these moments."""
    size = np.where(blocks.lives, blocks.bytes, 0)
    order = np.argsort(blocks.end_ns, kind="stable")
    allocated = _until(blocks.at_ns, size, moments_ns)
    released = _until(blocks.end_ns[order], size[order], moments_ns)
    return allocated - released


def _until(at_ns: Int64s, size: Int64s, moments_ns: Int64s) -> Int64s:
    """The sum of the sizes up to each of these moments; `at_ns` is in order."""
    count = np.searchsorted(at_ns, moments_ns, side="right")
    # Before all of them it is nothing.
    sums = np.append(0, np.cumsum(size))
    found: Int64s = sums[count]
    return found
