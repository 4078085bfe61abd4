"""How much memory is live over time, as counters beside those that the system has: one for each
process and device, and where several libraries allocate there one for each of them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.memory.blocks import Blocks, read_blocks
from layerscope.analyse.memory.live_curve import LiveCurve, live_curve, thinned_curve
from layerscope.model.distinct import distinct

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader


@dataclass(frozen=True, slots=True)
class MemoryCounter:
    """How many bytes are live in a process; `track`: one that allocated some of them."""

    process: int
    track: int
    name: str
    curve: LiveCurve

    def between(self, first_ns: int, end_ns: int) -> MemoryCounter:
        """The same in a stretch of time, from what was live when that began."""
        at_ns, live = self.curve.at_ns, self.curve.live_bytes
        first, end = np.searchsorted(at_ns, (first_ns, end_ns))
        at_ns, inside = at_ns[first:end], live[first:end]
        has_first = len(at_ns) and at_ns[0] == first_ns
        if first > 0 and not has_first:
            at_ns = np.append(first_ns, at_ns)
            inside = np.append(live[first - 1], inside)
        return replace(self, curve=LiveCurve(at_ns, inside))

    def thinned(self, most: int) -> MemoryCounter:
        """The same with so many points at most; the highest one is among them."""
        return replace(self, curve=thinned_curve(self.curve, most))


def memory_counters(reader: Reader) -> list[MemoryCounter]:
    """None where no memory was recorded."""
    if not reader.has("allocations"):
        return []
    return [
        counter
        for process, device, heap in read_blocks(reader).heaps()
        for counter in _of_heap(process, device, heap)
    ]


def _of_heap(process: int, device: str, heap: Blocks) -> Iterator[MemoryCounter]:
    yield _counter(process, f"live_bytes of {device}", heap)
    allocators = distinct(heap.allocator).tolist()
    if len(allocators) < 2:
        return
    for allocator in allocators:
        of_allocator = heap.at(heap.allocator == allocator)
        called = heap.names["allocator"][allocator]
        yield _counter(process, f"live_{called}_bytes of {device}", of_allocator)


def _counter(process: int, name: str, blocks: Blocks) -> MemoryCounter:
    return MemoryCounter(
        process=process,
        track=int(blocks.track[0]),
        name=name,
        curve=live_curve(blocks),
    )
