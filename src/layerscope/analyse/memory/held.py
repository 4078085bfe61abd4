"""The blocks of a recording with what is asked of them: their peaks, and what is live then."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from layerscope.analyse.memory.blocks import (
    Array,
    Blocks,
    Bools,
    Int64s,
    Steps,
    read_blocks,
    steps_of,
)
from layerscope.analyse.memory.categories import CUT_STEPS, FIRST_STEPS, Categories, categories_of
from layerscope.analyse.memory.missing import loss_within, missing_blocks
from layerscope.analyse.memory.modules import modules_of
from layerscope.analyse.memory.peak import Heap, heaps
from layerscope.analyse.memory.phases import PhaseSpans, phase_spans

if TYPE_CHECKING:
    from layerscope.analyse.memory.leaks import Growth
    from layerscope.recording.reader import Reader


MOST_BLOCKS = 1 << 19


class Held(Struct):
    """The blocks that are live at the peak of `heap`, with their categories (places in
    `CATEGORIES`) and their modules (-1: none).
    """

    heap: Heap
    blocks: Blocks
    category: NDArray[np.int8]
    is_certain: Bools
    module: Array


class RecordedMemory:
    """What was allocated in a recording. Everything is read when it is first asked for. `most`: of
    more blocks not all are judged to say what those at the peak are.
    """

    def __init__(self, reader: Reader, most: int = MOST_BLOCKS) -> None:
        self.reader = reader
        self._most = most

    @cached_property
    def heaps(self) -> list[Heap]:
        """The blocks of each process on each device, the highest peak first."""
        return heaps(self.blocks)

    @cached_property
    def blocks(self) -> Blocks:
        """All blocks."""
        return read_blocks(self.reader)

    @cached_property
    def missing(self) -> str:
        """Why more was live than these blocks say; "": these are all."""
        return missing_blocks(self.reader)

    def whose(self, heap: Heap) -> str:
        """Which process and device it is of, as the end of a sentence, where there are several."""
        processes = {one.process for one in self.heaps}
        devices = {one.device for one in self.heaps}
        found = ""
        if len(processes) > 1:
            process = self._name(heap.process, processes)
            found += f" of {process}"
        if len(devices) > 1:
            found += f" on {heap.device}"
        return found

    def _name(self, process: int, processes: set[int]) -> str:
        """Its rank, or the number that the system knows it by: where it has no rank, or shares it
        with others.
        """
        about = self.reader.arrays("processes", ["process", "pid", "rank"])
        is_asked = np.isin(about["process"], list(processes))
        (row,) = np.flatnonzero(about["process"] == process)
        rank = about["rank"][row]
        is_same = is_asked & (about["rank"] == rank)
        if rank >= 0 and is_same.sum() == 1:
            return f"rank {rank}"
        return f"pid {about['pid'][row]}"

    def steps(self, process: int) -> Steps:
        """The steps of a process."""
        none = np.zeros(0, np.int64)
        nothing = Steps(
            step=none,
            start_ns=none,
            end_ns=none,
            is_warmup=none > 0,
        )
        return self._steps.get(process, nothing)

    def categories(self, heap: Heap) -> Categories:
        """What each block is for, by the steps and the spans of its process."""
        # Of a process without spans its blocks tell roughly when it did what.
        steps = self.steps(heap.process)
        spans = self._spans(heap.process)
        return categories_of(heap.blocks, steps, spans)

    def growth(self, heap: Heap) -> Growth:
        """How much each line leaves behind in a step, and which of them leak."""
        # Not at the top: intervals come with all of `diff`, which the summary of a recording
        # without allocations does not wait for.
        from layerscope.analyse.memory.leaks import growth_of, judged_places

        steps = self.steps(heap.process)
        loss = loss_within(self.reader, heap.process, steps, judged_places(steps))
        return growth_of(heap.blocks, steps, loss)

    def modules(self, heap: Heap, rows: Int64s, found: Categories) -> Array:
        """The modules of the blocks at `rows`; `found`: the categories of all."""
        spans = self._spans(heap.process)
        return modules_of(heap.blocks, rows, found, spans)

    def held(self, heap: Heap) -> Held:
        """What is live at the peak, and what that is for. Of many blocks only those are judged that
        tell it.
        """
        rows = _witnesses(heap, self.steps(heap.process), self._most)
        some = replace(heap, blocks=heap.blocks.at(rows))
        found = self.categories(some)
        live = np.flatnonzero(heap.peak.is_live[rows])
        return Held(
            heap=heap,
            blocks=some.blocks.at(live),
            category=found.category[live],
            is_certain=found.is_certain[live],
            module=self.modules(some, live, found),
        )

    def all_held(self) -> Iterator[Held]:
        """What is live at each peak, the highest first."""
        yield from map(self.held, self.heaps)

    def _spans(self, process: int) -> PhaseSpans:
        nothing = PhaseSpans()
        return self._phase_spans.get(process, nothing)

    @cached_property
    def _steps(self) -> dict[int, Steps]:
        """By process."""
        return steps_of(self.reader)

    @cached_property
    def _phase_spans(self) -> dict[int, PhaseSpans]:
        """By process."""
        return phase_spans(self.reader)


def _witnesses(heap: Heap, steps: Steps, most: int) -> Int64s:
    """The blocks at the peak, and those that tell what they are: what lives through all steps, the
    gradients of the first steps and of those around the peak, and examples from before the last
    steps. Of more than `most` blocks that is a small part.
    """
    blocks, count = heap.blocks, len(steps.step)
    if len(blocks) <= most or count <= FIRST_STEPS + CUT_STEPS:
        return np.arange(len(blocks))
    is_asked = heap.peak.is_live | (blocks.end_ns > steps.last_end_ns)
    highest = np.searchsorted(steps.start_ns, heap.peak.at_ns, side="right")
    around = slice(max(0, highest - 2), highest + 1)
    is_backward = blocks.has_name("phase", "backward")
    for chosen in (slice(0, FIRST_STEPS), around):
        begin_ns, end_ns = steps.start_ns[chosen].min(), steps.end_ns[chosen].max()
        rows = slice(*np.searchsorted(blocks.at_ns, (begin_ns, end_ns)))
        is_asked[rows] |= is_backward[rows]
    cut = np.searchsorted(blocks.at_ns, steps.start_ns[-CUT_STEPS])
    examples = slice(max(0, cut - most // 4), cut)
    is_asked[examples] = True
    return np.flatnonzero(is_asked)
