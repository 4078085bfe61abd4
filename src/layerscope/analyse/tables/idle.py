"""Idle streams: why the streams of GPUs had nothing to do between two pieces of work.

rank           number of its process in the job, 0 where there is one
device         number of the GPU
stream         name of the stream
count          kernels, copies and memory sets on it
span_ns        from the start of the first to the end of the last
busy_ns        time in which one of them ran
idle_ns        the rest: the sum of the three that follow
host_wait_ns   gaps before work that was launched after the work before it had ended
kernel_wait_ns other gaps of less than 30 us, as lie between kernels that are launched ahead
other_ns       what is left: most of it is waiting for another stream or another rank
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import astuple

from layerscope.analyse.gpu.columns import DEVICE, RANK, STREAM
from layerscope.analyse.result import COUNT, NS, Result, ResultColumn, of_rows

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    RANK,
    DEVICE,
    STREAM,
    ResultColumn("count", "int64", COUNT, "kernels, copies and memory sets"),
    ResultColumn("span_ns", "int64", NS, "from the first start to the last end"),
    ResultColumn("busy_ns", "int64", NS, "one of them ran"),
    ResultColumn("idle_ns", "int64", NS, "none ran"),
    ResultColumn("host_wait_ns", "int64", NS, "nothing had been launched"),
    ResultColumn("kernel_wait_ns", "int64", NS, "other gaps of less than 30 us"),
    ResultColumn("other_ns", "int64", NS, "the rest"),
)
TOP = 0
EMPTY = "No work of a GPU was recorded."
NEXT = "layerscope table launches"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each stream."""
    from layerscope.analyse.gpu.idle import idle_times
    from layerscope.analyse.gpu.streams import streams_of
    from layerscope.analyse.gpu.work import read_work

    found = streams_of(reader, read_work(reader))
    rows = [(*where, *astuple(idle_times(work))) for where, work in found]
    return of_rows("idle", COLUMNS, rows)
