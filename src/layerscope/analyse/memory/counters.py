"""How much memory is live over time, as counters beside those that the system has: one for each
process and device, and where several libraries allocate there one for each of them too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from layerscope.analyse.memory.blocks import Blocks, Int64s, read_blocks
from layerscope.analyse.memory.live_curve import LiveCurve, live_curve, thinned_curve
from layerscope.model.distinct import distinct

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader


class MemoryCounter(Struct, frozen=True):
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
        inside_ns = at_ns[inside]
        inside_bytes = live[inside]
        moved_ns = np.maximum(inside_ns, first_ns)
        curve = LiveCurve(moved_ns, inside_bytes)
        return replace(self, curve=curve)

    def thinned(self, most: int) -> MemoryCounter:
        """The same with so many points at most; the highest one is among them."""
        return replace(self, curve=thinned_curve(self.curve, most))


class MemoryReadings(Struct, frozen=True):
    """The points of several counters as columns; `counter`: which one each is of."""

    counter: Int64s
    at_ns: Int64s
    value: Int64s

    @classmethod
    def of(cls, counters: list[MemoryCounter]) -> MemoryReadings:
        """All points, one counter behind the other."""
        nothing = np.zeros(0, np.int64)
        curves = [counter.curve for counter in counters]
        sizes = [len(curve.at_ns) for curve in curves]
        numbers = np.arange(len(counters))
        return cls(
            counter=np.repeat(numbers, sizes),
            at_ns=np.concatenate([nothing, *(curve.at_ns for curve in curves)]),
            value=np.concatenate([nothing, *(curve.live_bytes for curve in curves)]),
        )


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
    whole = f"live_bytes of {device}"
    yield _counter(process, whole, heap)
    numbers = distinct(heap.allocator)
    allocators = numbers.tolist()
    names = heap.names["allocator"]
    if len(allocators) == 1:
        return
    for allocator in allocators:
        is_own = heap.allocator == allocator
        own = heap.at(is_own)
        called = names[allocator]
        name = f"live_{called}_bytes of {device}"
        yield _counter(process, name, own)


def _counter(process: int, name: str, blocks: Blocks) -> MemoryCounter:
    return MemoryCounter(
        process=process,
        track=int(blocks.track[0]),
        name=name,
        curve=live_curve(blocks),
    )
