"""What must be said beside a table of blocks: when the peak was, what leaks, what is not known."""

from __future__ import annotations

import numpy as np

from layerscope.analyse.memory.at_peak import leak_of
from layerscope.analyse.memory.held import RecordedMemory
from layerscope.analyse.memory.peak import Heap
from layerscope.model import units


def notes_of(memory: RecordedMemory) -> tuple[str, ...]:
    """Sentences, the peak first."""
    if not memory.heaps:
        return ()
    heap = memory.heaps[0]
    found = [_peak(memory, heap), *_leak(memory)]
    lost = memory.blocks.is_lost
    if lost.any():
        size = units.size(int(memory.blocks.bytes[lost].sum()))
        count = int(np.count_nonzero(lost))
        found.append(
            f"The releases of {count:,} blocks ({size}) were lost: they are not counted as live, "
            "and have no lifetime."
        )
    return tuple(found)


def when(heap: Heap, start_ns: int) -> str:
    """The moment of a peak, as a part of a sentence."""
    after = units.duration(heap.peak.at_ns - start_ns)
    where = "outside of the steps"
    if heap.peak.step >= 0:
        named = "" if heap.peak.phase == "other" else f"the {heap.peak.phase} phase of "
        where = f"in {named}step {heap.peak.step}"
    return f"{where}, {after} after the start"


def _peak(memory: RecordedMemory, heap: Heap) -> str:
    """When most is live, of the process with the highest peak."""
    size = units.size(heap.peak.bytes)
    whose = ""
    if len(memory.heaps) > 1:
        whose = f" (process {heap.process} on {heap.device})"
    moment = when(heap, memory.reader.run.info.start_ns)
    return f"The peak is {size}{whose}, {moment}."


def _leak(memory: RecordedMemory) -> list[str]:
    """The line that leaks most."""
    leak = leak_of(memory)
    if leak is None:
        return []
    size, low, high = map(units.size, (leak.bytes_per_step, leak.low, leak.high))
    sure = "" if low == high else f" (95 %: {low} to {high})"
    what = f"Live memory grows by {size} a step{sure} at {leak.line}"
    return [f"{what}: these blocks were not released when the last step ended."]
