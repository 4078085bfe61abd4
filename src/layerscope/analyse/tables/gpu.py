"""GPUs: where the time of each went: computing, communicating, copying, or idle.

rank       number of its process in the job, 0 where there is one
device     number of the GPU
view       all: every kernel, copy and memory set. linked: those whose host call was recorded, too.
           steps: those from the start of the first step to the end of the last, where there are any
count      kernels, copies and memory sets
span_ns    from the start of the first to the end of the last
busy_ns    time in which at least one of them ran
idle_ns    the rest of the span
compute_ns time in which kernels ran that do not communicate
communication_ns
           time in which collectives ran: kernels with the arguments of one, or of NCCL, RCCL, HCCL
exposed_communication_ns
           the part of it in which no computation ran
copy_ns    time in which copies or memory sets ran
exposed_copy_ns
           the part of it in which neither computation nor communication ran
overlap_share
           the part of communication_ns in which computation ran, too
busy_share from the start of the first step to the end of the last: the part in which a kernel ran
sm_efficiency
           the same, each kernel counted for the part of the multiprocessors that it can occupy
occupancy  of the kernels then, as the profiler estimates it, weighted by their durations

Kernels of several streams that overlap count once. compute_ns, exposed_communication_ns and
exposed_copy_ns add up to busy_ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import astuple

from layerscope.analyse.gpu.columns import DEVICE, RANK
from layerscope.analyse.result import COUNT, NS, SHARE, Result, ResultColumn, of_rows

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

BY = ()
REFUSED: dict[str, str] = {}
COLUMNS = (
    RANK,
    DEVICE,
    ResultColumn("view", "string", "", "all, linked: with a host call, or steps"),
    ResultColumn("count", "int64", COUNT, "kernels, copies and memory sets"),
    ResultColumn("span_ns", "int64", NS, "from the first start to the last end"),
    ResultColumn("busy_ns", "int64", NS, "something ran"),
    ResultColumn("idle_ns", "int64", NS, "nothing ran"),
    ResultColumn("compute_ns", "int64", NS, "computation ran"),
    ResultColumn("communication_ns", "int64", NS, "communication ran"),
    ResultColumn("exposed_communication_ns", "int64", NS, "and no computation"),
    ResultColumn("copy_ns", "int64", NS, "copies or memory sets ran"),
    ResultColumn("exposed_copy_ns", "int64", NS, "and nothing else"),
    ResultColumn("overlap_share", "float64", SHARE, "of communication, with computation"),
    ResultColumn("busy_share", "float64", SHARE, "of all steps, with a kernel"),
    ResultColumn("sm_efficiency", "float64", SHARE, "the same, by multiprocessors"),
    ResultColumn("occupancy", "float64", SHARE, "estimated, weighted by duration"),
)
TOP = 0
EMPTY = "No work of a GPU was recorded."
NEXT = "layerscope table kernels"


def build(reader: Reader, by: str | None = None) -> Result:
    """One row for each GPU and view."""
    from layerscope.analyse.gpu.breakdown import breakdown
    from layerscope.analyse.gpu.efficiency import efficiencies
    from layerscope.analyse.gpu.work import devices_of, read_work

    in_steps = efficiencies(reader)
    rows = []
    for rank, device, work in devices_of(read_work(reader)):
        linked = work.chosen(work.is_launched)
        for view, part in (("all", work), ("linked", linked)):
            sums = breakdown(part)
            rows.append((rank, device, view, *astuple(sums), None, None, None))
        known = in_steps.get((rank, device))
        if known is not None:
            sums = breakdown(work.within(*known.window_ns))
            shares = (known.busy_share, known.sm_efficiency, known.occupancy)
            rows.append((rank, device, "steps", *astuple(sums), *shares))
    return of_rows("gpu", COLUMNS, rows)
