"""Memory: what was allocated, by whom, how long it lived and how much of it is in the peak.

process      key of the process; the one with the highest peak comes first
device       where it lies: cpu, cuda:0
operator     the innermost operator that was open and does more than allocate; with --by module,
             line, step, phase, thread or size what is asked for instead
allocations  how many blocks
bytes        their sizes, added up
peak_bytes   the part of them that is live when most memory is
peak_share   peak_bytes as a fraction of all that is live then
avg_ns       how long they lived on average; one that was never released until the recording ended
max_ns       how long the longest lived
end_bytes    live when the last step ended, or, without steps, when the recording did

--by step also has

highest_bytes  the most bytes that were live at once in the step, by whomever they were allocated

and --by line

growth_per_step  bytes that a step leaves behind for good: allocated in it and live after the last
                 step, as a mean over the steps without warm-up and the last two, whose blocks are
                 too young; none for fewer than 6 steps
growth_low,      it lies with 95 % between these
growth_high
is_leak          whether it surely grows, and in the last third of the steps at least half as much
                 as in the first: a cache that is filled once, or full at last, does not

--by device says instead what the allocator of each device told, of traces that have it:

allocated_bytes      the most that was allocated at once
reserved_bytes       the most that the allocator held for it; none: not told
end_allocated_bytes  allocated when the recording ended
end_reserved_bytes

The module is the one that was open; of what a backward pass allocates the one whose gradients it
computes; of parameters and optimizer state the one whose gradients have their sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.analyse.memory.arrow_rows import table_of
from layerscope.analyse.memory.blocks import Array
from layerscope.analyse.memory.grouping import grouped_by
from layerscope.analyse.memory.held import RecordedMemory
from layerscope.analyse.memory.names import paths_of_modules, texts_of_names
from layerscope.analyse.memory.notes import notes_of
from layerscope.analyse.memory.peak import Heap, peaks_of_steps
from layerscope.analyse.result import BYTES, COUNT, NS, SHARE, Result, ResultColumn, of_arrow
from layerscope.analyse.stacks.by_frame import thread_names

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

DEVICE = "device"
BY = ("operator", "module", "line", "step", "phase", "thread", "size", DEVICE)
REFUSED: dict[str, str] = {}
_HEAP = (
    ResultColumn("process", "int32", "", "key of the process"),
    ResultColumn("device", "string", "", "where it lies"),
)
_KEYS = {
    "operator": ResultColumn("operator", "string", "", "the operator that allocated it"),
    "module": ResultColumn("module", "string", "", "the module that it belongs to"),
    "line": ResultColumn("line", "string", "", "line of the program that allocated it"),
    "step": ResultColumn("step", "int32", "", "the step that it was allocated in"),
    "phase": ResultColumn("phase", "string", "", "the phase that it was allocated in"),
    "thread": ResultColumn("thread", "string", "", "the thread that allocated it"),
    "size": ResultColumn("size", "int64", BYTES, "size of one block"),
}
_MEASURES = (
    ResultColumn("allocations", "int64", COUNT, "blocks"),
    ResultColumn("bytes", "int64", BYTES, "their sizes, added up"),
    ResultColumn("peak_bytes", "int64", BYTES, "live at the peak"),
    ResultColumn("peak_share", "float64", SHARE, "peak_bytes as a fraction of the peak"),
    ResultColumn("avg_ns", "int64", NS, "mean lifetime"),
    ResultColumn("max_ns", "int64", NS, "longest lifetime"),
    ResultColumn("end_bytes", "int64", BYTES, "live when the last step ended"),
)
_MORE: dict[str, tuple[ResultColumn, ...]] = {
    "step": (ResultColumn("highest_bytes", "int64", BYTES, "the most that was live in the step"),),
    "line": (
        ResultColumn("growth_per_step", "int64", BYTES, "what a step leaves behind for good"),
        ResultColumn("growth_low", "int64", BYTES, "it lies with 95 % between this"),
        ResultColumn("growth_high", "int64", BYTES, "and this"),
        ResultColumn("is_leak", "bool", "", "whether it surely goes on growing"),
    ),
}
_OF_DEVICE = (
    *_HEAP,
    ResultColumn("allocated_bytes", "int64", BYTES, "the most that was allocated"),
    ResultColumn("reserved_bytes", "int64", BYTES, "the most that was reserved"),
    ResultColumn("end_allocated_bytes", "int64", BYTES, "allocated at the end"),
    ResultColumn("end_reserved_bytes", "int64", BYTES, "reserved at the end"),
)
_COUNTERS = """
    WITH told AS (
        SELECT tracks.process, split_part(counters.name::VARCHAR, ' of ', 2) AS device,
               starts_with(counters.name::VARCHAR, 'reserved') AS is_reserved, at_ns, value
        FROM counters JOIN tracks USING (track)
        WHERE regexp_matches(counters.name::VARCHAR, '^(allocated|reserved)_bytes of ')
    )
    SELECT process, device,
           max(value) FILTER (NOT is_reserved) AS allocated_bytes,
           max(value) FILTER (is_reserved) AS reserved_bytes,
           arg_max(value, at_ns) FILTER (NOT is_reserved) AS end_allocated_bytes,
           arg_max(value, at_ns) FILTER (is_reserved) AS end_reserved_bytes
    FROM told GROUP BY ALL"""
COLUMNS = (*_HEAP, _KEYS["operator"], *_MEASURES)
TOP = 20
EMPTY = (
    "No allocations were recorded: record with layerscope run --layers=+memory, or with "
    "profile_memory=True of the framework's profiler."
)
NEXT = "layerscope table peak"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each operator, or for each `by`, of each process and device; by device one."""
    if by == DEVICE:
        relation = reader.connection().sql(_COUNTERS)
        return Result("memory", _OF_DEVICE, relation, order="process, device")
    key = by or "operator"
    more = _MORE.get(key, ())
    columns = (*_HEAP, _KEYS[key], *_MEASURES, *more)
    memory = RecordedMemory(reader)
    parts = (_rows(memory, heap, key) for heap in memory.heaps)
    rows = table_of(columns, parts)
    return of_arrow("memory", columns, rows, notes=notes_of(memory))


def _rows(memory: RecordedMemory, heap: Heap, key: str) -> dict[str, Any]:
    """The rows of one process and device: steps in their order, others by what they hold at the
    peak.
    """
    blocks, steps = heap.blocks, memory.steps(heap.process)
    values = _values(memory, heap, key)
    groups = grouped_by([values])
    counts, sums = groups.counts(), groups.sums(blocks.bytes)
    at_peak = groups.sums(np.where(heap.peak.is_live, blocks.bytes, 0))
    order = np.lexsort((-sums, -at_peak))
    if key == "step":
        order = np.arange(len(groups))
    life_ns = blocks.end_ns - blocks.at_ns
    # In floating point: the times of millions of blocks may add up to more than 2**53 ns.
    whole_ns = np.bincount(groups.number, weights=life_ns, minlength=len(groups))
    known = np.maximum(counts - groups.sums(blocks.is_lost), 1)
    is_at_end = blocks.is_open
    if len(steps.step):
        is_at_end = blocks.live_at(steps.last_end_ns)
    rows = {
        "allocations": counts,
        "bytes": sums,
        "peak_bytes": at_peak,
        "peak_share": at_peak / max(heap.peak.bytes, 1),
        "avg_ns": np.rint(whole_ns / known),
        "max_ns": groups.most(life_ns),
        "end_bytes": groups.sums(np.where(is_at_end, blocks.bytes, 0)),
        **_more(memory, heap, key, values[groups.first]),
    }
    return {
        "process": np.full(len(groups), heap.process),
        "device": [heap.device] * len(groups),
        key: _names(memory, heap, key, values[groups.first[order]]),
        **{name: column[order] for name, column in rows.items()},
    }


def _values(memory: RecordedMemory, heap: Heap, key: str) -> Array:
    """What the blocks are grouped by, as integers."""
    blocks = heap.blocks
    if key == "module":
        return memory.modules(heap, np.arange(len(blocks)), memory.categories(heap))
    columns: dict[str, Array] = {
        "operator": blocks.operator,
        "line": blocks.line,
        "step": blocks.step,
        "phase": blocks.phase,
        "thread": blocks.track,
        "size": blocks.bytes,
    }
    return columns[key]


def _names(memory: RecordedMemory, heap: Heap, key: str, values: Array) -> Any:
    """The groups as people read them."""
    reader = memory.reader
    if key == "module":
        return paths_of_modules(reader, values)
    if key == "size":
        return values
    if key == "step":
        steps = values.tolist()
        return [step if step >= 0 else None for step in steps]
    if key == "thread":
        names = thread_names(reader)
        tracks = values.tolist()
        return [names.get(track, f"#{track}") for track in tracks]
    return texts_of_names(heap.blocks, key, values)


def _more(memory: RecordedMemory, heap: Heap, key: str, values: Array) -> dict[str, Array]:
    """The columns that only some keys have, for the groups of these values."""
    steps = memory.steps(heap.process)
    if key == "step":
        peaks = peaks_of_steps(heap.blocks, steps).tolist()
        highest = dict(zip(steps.step.tolist(), peaks, strict=True))
        most = [highest.get(step, np.nan) for step in values.tolist()]
        return {"highest_bytes": np.array(most, np.float64)}
    if key != "line":
        return {}
    growth = memory.growth(heap)
    place = np.full(len(heap.blocks.names["line"]) + 1, -1, np.int64)
    place[growth.line] = np.arange(len(growth.line))
    # A line that leaves nothing behind grows by nothing, if steps were judged at all.
    nothing = 0.0 if growth.steps else np.nan
    columns = {
        "growth_per_step": growth.bytes_per_step,
        "growth_low": growth.low,
        "growth_high": growth.high,
    }
    found = {
        name: np.rint(np.append(column, nothing)[place[values]]) for name, column in columns.items()
    }
    found["is_leak"] = np.append(growth.is_leak, False)[place[values]]
    return found
