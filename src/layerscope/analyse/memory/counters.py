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
        at_ns = self.curve.at_ns
        live = self.curve.live_bytes
        # The last point before the stretch is still true when it begins.
        behind = int(np.searchsorted(at_ns, first_ns, side="right"))
        first = max(behind - 1, 0)
        end = int(np.searchsorted(at_ns, end_ns))
        inside = slice(first, end)
        moved_ns = np.maximum(at_ns[inside], first_ns)
        curve = LiveCurve(moved_ns, live[inside])
        return replace(self, curve=curve)

    def thinned(self, most: int) -> MemoryCounter:
        """The same with so many points at most; the highest one is among them."""
        return replace(self, curve=thinned_curve(self.curve, most))


def memory_counters(reader: Reader) -> list[MemoryCounter]:
    """None where no memory was recorded."""
    found: list[MemoryCounter] = []
    if not reader.has("allocations"):
        return found
    blocks = read_blocks(reader)
    for process, device, heap in blocks.heaps():
        found += _of_heap(process, device, heap)
    return found


def _of_heap(process: int, device: str, heap: Blocks) -> Iterator[MemoryCounter]:
    """Those of a process and device."""
    yield _counter(process, f"live_bytes of {device}", heap)
    allocators = distinct(heap.allocator)
    several = len(allocators) > 1
    for allocator in allocators.tolist() if several else ():
        is_own = heap.allocator == allocator
        called = heap.names["allocator"][allocator]
        name = f"live_{called}_bytes of {device}"
        yield _counter(process, name, heap.at(is_own))


def _counter(process: int, name: str, blocks: Blocks) -> MemoryCounter:
    return MemoryCounter(
        process=process,
        track=int(blocks.track[0]),
        name=name,
        curve=live_curve(blocks),
    )
