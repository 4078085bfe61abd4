"""What must be said beside a table of blocks: when the peak was, what leaks, what is not known."""

from __future__ import annotations

import numpy as np

from layerscope.analyse.memory.at_peak import leak_of, size_at_peak
from layerscope.analyse.memory.held import RecordedMemory
from layerscope.analyse.memory.peak import Heap
from layerscope.model import units


def notes_of(memory: RecordedMemory) -> tuple[str, ...]:
    """Sentences, the peak first."""
    if not memory.heaps:
        return ()
    heap = memory.heaps[0]
    found = [_peak(memory, heap)]
    found += _leak(memory)
    found += loss_notes(memory)
    lost = memory.blocks.is_lost
    if lost.any():
        size = units.size(int(memory.blocks.bytes[lost].sum()))
        count = int(np.count_nonzero(lost))
        found.append(
            f"The releases of {count:,} blocks ({size}) were lost: they are not counted as live, "
            "and have no lifetime."
        )
    return tuple(found)


def loss_notes(memory: RecordedMemory) -> list[str]:
    """That no line is called a leak, where losses look like some."""
    losses = [memory.growth(heap).loss for heap in memory.heaps]
    for loss in filter(None, losses):
        return [
            f"No line is called a leak: records were lost during the steps ({loss}). A block whose "
            "release is among them looks like one that is kept."
        ]
    return []


def when(heap: Heap, start_ns: int, has_steps: bool) -> str:
    """The moment of a peak, as the end of a sentence; nothing where nobody knows it."""
    if not heap.is_timed:
        return ""
    after = units.duration(heap.peak.at_ns - start_ns)
    where = ""
    if heap.peak.step >= 0:
        named = ""
        if heap.peak.phase != "other":
            named = f"the {heap.peak.phase} phase of "
        where = f", in {named}step {heap.peak.step}"
    elif has_steps:
        where = ", outside of the steps"
    return f"{where}, {after} after the start"


def _peak(memory: RecordedMemory, heap: Heap) -> str:
    """When most is live, of the process with the highest peak."""
    size = size_at_peak(heap.peak.bytes, memory.missing)
    has_steps = len(memory.steps(heap.process).step) > 0
    moment = when(heap, memory.reader.run.info.start_ns, has_steps)
    return f"The peak{memory.whose(heap)} is {size}{moment}."


def _leak(memory: RecordedMemory) -> list[str]:
    """The line that leaks most."""
    leak = leak_of(memory)
    if leak is None:
        return []
    size, low, high = map(units.size, (leak.bytes_per_step, leak.low, leak.high))
    sure = "" if low == high else f" (95 %: {low} to {high})"
    what = f"Live memory grows by {size} a step{sure} at {leak.line}"
    return [f"{what}: these blocks were not released when the last step ended."]
