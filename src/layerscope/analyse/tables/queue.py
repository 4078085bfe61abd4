"""Queues: how much work waited on each stream of a GPU, launched by the host and not yet begun.

rank       number of its process in the job, 0 where there is one
device     number of the GPU
stream     name of the stream
count      kernels, copies and memory sets whose host call was recorded
span_ns    from the first launch to the start of the last work
mean       length of the queue, on average over that time
p99        it was not longer for 99 % of the time
longest    the most that waited
empty_ns   time in which nothing waited
full_ns    time in which 1,024 or more waited: then launching blocks the host
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from layerscope.analyse.gpu.columns import DEVICE, RANK, STREAM
from layerscope.analyse.result import COUNT, NS, Result, ResultColumn, of_rows

if TYPE_CHECKING:
    from layerscope.analyse.gpu.work import GpuWork
    from layerscope.recording.reader import Reader

# What CUDA takes before a launch waits; HTA uses the same.
FULL = 1024
BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    RANK,
    DEVICE,
    STREAM,
    ResultColumn("count", "int64", COUNT, "launched work"),
    ResultColumn("span_ns", "int64", NS, "from the first launch to the last start"),
    ResultColumn("mean", "float64", COUNT, "length over time"),
    ResultColumn("p99", "int64", COUNT, "not longer for 99 % of the time"),
    ResultColumn("longest", "int64", COUNT, "greatest length"),
    ResultColumn("empty_ns", "int64", NS, "nothing waited"),
    ResultColumn("full_ns", "int64", NS, "1,024 or more waited"),
)
TOP = 0
EMPTY = "No work of a GPU was recorded together with the calls that launched it."
NEXT = "layerscope table idle"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each stream."""
    from layerscope.analyse.gpu.streams import streams_of
    from layerscope.analyse.gpu.work import read_work

    found = streams_of(reader, read_work(reader))
    rows = [row for where, work in found for row in _row(where, work)]
    return of_rows("queue", COLUMNS, rows)


def _row(where: tuple[int, int, str], work: GpuWork) -> list[tuple[Any, ...]]:
    from layerscope.analyse.gpu.levels import statistics
    from layerscope.analyse.gpu.queues import queue_lengths

    lengths, lasted_ns = queue_lengths(work)
    found = statistics(lengths, lasted_ns)
    if found is None:
        return []
    count = int(work.is_launched.sum())
    empty_ns = int(lasted_ns[lengths <= 0].sum())
    full_ns = int(lasted_ns[lengths >= FULL].sum())
    sizes = found.mean, int(found.p99), int(found.most)
    return [(*where, count, found.lasted_ns, *sizes, empty_ns, full_ns)]
