"""Peak: what was live when most memory was: what for, of which module and line.

process        key of the process; each has its own peak, the process with the highest comes first
device         where it lies: cpu, cuda:0
category       what the blocks are for: parameter, gradient, optimizer state, activation, buffer
               (and what else lives through all steps and has no gradient), temporary, input, other
               (what the program keeps: caches, leaks)
module         the module that was open when they were allocated; of gradients the one whose
               backward pass ran, of parameters and optimizer state the one whose gradients have
               their sizes
line           line of the program that allocated them
bytes          how much
share          of the peak
blocks         how many
certain_share  the part of the bytes whose category is certain; of the rest it is likely. No
               allocator knows what a block is for: it follows from who allocated it, when, how long
               it lived and which others have its size
age_ns         how long before the peak the oldest of them was allocated

--by category, module, line and operator make one row for each of these; --by process one row for
each process and device, with the moment of its peak:

at_ns          when most bytes were live
step           the step that it lies in; none outside steps
phase          the phase that it lies in

The peak is the largest sum of live blocks at one moment; what allocators keep in reserve is not in
it. Blocks that were allocated before the recording began are not known. A block whose release was
lost is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analyse.memory.arrow_rows import table_of
from layerscope.analyse.memory.categories import CATEGORIES
from layerscope.analyse.memory.grouping import grouped_by
from layerscope.analyse.memory.held import Held, RecordedMemory
from layerscope.analyse.memory.names import paths_of_modules, texts_of_names
from layerscope.analyse.memory.notes import notes_of
from layerscope.analyse.result import BYTES, COUNT, NS, SHARE, Result, ResultColumn, of_arrow

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ("category", "module", "line", "operator", "process")
REFUSED: dict[str, str] = {}
_HEAP = (
    ResultColumn("process", "int32", "", "key of the process"),
    ResultColumn("device", "string", "", "where it lies"),
)
_KEYS = {
    "category": ResultColumn("category", "string", "", "what the blocks are for"),
    "module": ResultColumn("module", "string", "", "the module that they belong to"),
    "line": ResultColumn("line", "string", "", "line of the program that allocated them"),
    "operator": ResultColumn("operator", "string", "", "the operator that allocated them"),
}
_BYTES = ResultColumn("bytes", "int64", BYTES, "live at the peak")
_BLOCKS = ResultColumn("blocks", "int64", COUNT, "how many")
_MEASURES = (
    _BYTES,
    ResultColumn("share", "float64", SHARE, "of the peak"),
    _BLOCKS,
    ResultColumn("certain_share", "float64", SHARE, "the part whose category is certain"),
    ResultColumn("age_ns", "int64", NS, "since the oldest of them was allocated"),
)
_USUAL = ("category", "module", "line")
COLUMNS = (*_HEAP, *(_KEYS[name] for name in _USUAL), *_MEASURES)
_OF_PROCESSES = (
    *_HEAP,
    ResultColumn("at_ns", "int64", NS, "when most bytes were live", instant=True),
    ResultColumn("step", "int32", "", "the step that it lies in"),
    ResultColumn("phase", "string", "", "the phase that it lies in"),
    _BYTES,
    _BLOCKS,
)
TOP = 20
EMPTY = (
    "No allocations were recorded: record with layerscope run --layers=+memory, or with "
    "profile_memory=True of the framework's profiler."
)
NEXT = "layerscope table memory"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each category, module and line that holds memory at the peak, or for each `by`;
    the largest first.
    """
    memory = RecordedMemory(reader)
    notes = notes_of(memory)
    if by == "process":
        rows = table_of(_OF_PROCESSES, _processes(memory))
        return of_arrow("peak", _OF_PROCESSES, rows, notes=notes)
    keys = _USUAL if by is None else (by,)
    columns = (*_HEAP, *(_KEYS[name] for name in keys), *_MEASURES)
    parts = (_rows(reader, held, keys) for held in memory.all_held())
    return of_arrow("peak", columns, table_of(columns, parts), notes=notes)


def _rows(reader: Reader, held: Held, keys: tuple[str, ...]) -> dict[str, Any]:
    """The rows of one process and device, the largest first."""
    blocks, peak = held.blocks, held.heap.peak
    of_key = {
        "category": held.category,
        "module": held.module,
        "line": blocks.line,
        "operator": blocks.operator,
    }
    groups = grouped_by([of_key[key] for key in keys])
    sums = groups.sums(blocks.bytes)
    certain = groups.sums(np.where(held.is_certain, blocks.bytes, 0))
    order = np.argsort(-sums, kind="stable")
    first = groups.first[order]
    texts = {
        "category": lambda: [CATEGORIES[one] for one in held.category[first].tolist()],
        "module": lambda: paths_of_modules(reader, held.module[first]),
        "line": lambda: texts_of_names(blocks, "line", blocks.line[first]),
        "operator": lambda: texts_of_names(blocks, "operator", blocks.operator[first]),
    }
    return {
        "process": np.full(len(order), held.heap.process),
        "device": [held.heap.device] * len(order),
        **{key: texts[key]() for key in keys},
        "bytes": sums[order],
        "share": sums[order] / max(peak.bytes, 1),
        "blocks": groups.counts()[order],
        "certain_share": certain[order] / np.maximum(sums[order], 1),
        "age_ns": groups.most(peak.at_ns - blocks.at_ns)[order],
    }


def _processes(memory: RecordedMemory) -> list[dict[str, Any]]:
    """A row for each process and device."""
    return [
        {
            "process": [heap.process],
            "device": [heap.device],
            "at_ns": [heap.peak.at_ns],
            "step": [heap.peak.step if heap.peak.step >= 0 else None],
            "phase": [heap.peak.phase],
            "bytes": [heap.peak.bytes],
            "blocks": [int(np.count_nonzero(heap.peak.is_live))],
        }
        for heap in memory.heaps
    ]
