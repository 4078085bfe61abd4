"""The peak of the live blocks in a few figures, for the summary and for `diff`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from layerscope.analyse.memory.blocks import Array, Blocks
from layerscope.analyse.memory.categories import CATEGORIES
from layerscope.analyse.memory.held import Held, RecordedMemory
from layerscope.analyse.memory.names import texts_of_names
from layerscope.model import units
from layerscope.model.memory import TENSOR
from layerscope.recording.reader import Reader


class LineGrowth(Struct):
    """A line that leaves so many bytes behind in each step, with a 95 % interval."""

    line: str
    bytes_per_step: float
    low: float
    high: float


class BlocksAtPeak(Struct):
    """Of the process and device with the highest peak: how much is live then, by category and line,
    the largest first. `whose`: which of several processes and devices, as " of rank 1 on cuda:0".
    `step` is -1 outside of steps; `after_ns` since the start of the run, None: nobody knows when
    blocks were allocated. `is_tensors`: nothing but tensors is live
    then, no arrays of NumPy and no blocks of other allocators. `missing`: why it is only a part of
    what was live. `growth`: the line that leaks most.
    """

    bytes: int
    whose: str
    step: int
    phase: str
    after_ns: int | None
    is_tensors: bool = False
    missing: str = ""
    categories: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    growth: LineGrowth | None = None

    @property
    def size(self) -> str:
        """How much it is, in words."""
        return size_at_peak(self.bytes, self.missing)


def blocks_at_peak(reader: Reader) -> BlocksAtPeak | None:
    """None where no allocations were recorded."""
    if not reader.has("allocations"):
        return None
    memory = RecordedMemory(reader)
    heap = memory.heaps[0]
    held = memory.held(heap)
    peak = heap.peak
    after_ns = peak.at_ns - reader.run.info.start_ns
    return BlocksAtPeak(
        bytes=peak.bytes,
        whose=memory.whose(heap),
        step=peak.step,
        phase=peak.phase,
        after_ns=after_ns if heap.is_timed else None,
        is_tensors=bool(held.blocks.has_name("allocator", TENSOR).all()),
        missing=memory.missing,
        categories=_by_category(held),
        lines=_by_line(held.blocks),
        growth=leak_of(memory),
    )


def size_at_peak(size_bytes: int, missing: str) -> str:
    """In words how much is live; `missing`: why not all of it is known."""
    size = units.size(size_bytes)
    if missing:
        return f"at least {size}"
    return size


def leak_of(memory: RecordedMemory) -> LineGrowth | None:
    """The line that leaks most, in the process and on the device with the highest peak; none where
    nobody knows the line.
    """
    heap = memory.heaps[0]
    growth = memory.growth(heap)
    lines = heap.blocks.names["line"][growth.line]
    worst = growth.worst(heap.peak.bytes, lines != "")
    if worst < 0:
        return None
    return LineGrowth(
        line=str(lines[worst]),
        bytes_per_step=float(growth.bytes_per_step[worst]),
        low=float(growth.low[worst]),
        high=float(growth.high[worst]),
    )


def _by_category(held: Held) -> dict[str, int]:
    """How many bytes each category holds."""
    count = len(CATEGORIES)
    sums = np.bincount(held.category, held.blocks.bytes, count)
    return _largest_first(CATEGORIES, sums)


def _by_line(blocks: Blocks) -> dict[str, int]:
    """How many bytes each line of the program holds."""
    count = len(blocks.names["line"])
    texts = texts_of_names(blocks, "line", np.arange(count))
    sums = np.bincount(blocks.line, blocks.bytes, count)
    return _largest_first(texts, sums)


def _largest_first(names: Sequence[str], sums: Array) -> dict[str, int]:
    """The sums that are not zero, by their names."""
    found = {}
    order = np.argsort(-sums, kind="stable")
    for place in order.tolist():
        size = int(sums[place])
        if size:
            found[names[place]] = size
    return found
