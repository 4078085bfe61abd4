"""What the summary says of GPUs: how busy they were, and which rank the others waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from layerscope.analyse.gpu.breakdown import Breakdown, breakdown
from layerscope.analyse.gpu.collectives import read_job
from layerscope.analyse.gpu.idle import idle_times
from layerscope.analyse.gpu.stragglers import Straggler, stragglers
from layerscope.analyse.gpu.streams import has_streams
from layerscope.analyse.gpu.work import devices_of, parts_of, read_work
from layerscope.recording.apart import ranks_apart

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

# Fewer times late, or for a smaller part of its time, is chance.
_LEAST_TIMES = 3
_LEAST_SHARE = 0.02


class GpuSummary(Struct, frozen=True):
    """Of all GPUs together, as parts of their spans: busy, and of that computation, communication
    alone and copies alone. `host_share`: of the gaps on streams, in which nothing had been
    launched; None without gaps.
    """

    gpus: int
    busy_share: float
    compute_share: float
    communication_share: float
    copy_share: float
    host_share: float | None
    late: Straggler | None


def gpu_summary(reader: Reader) -> GpuSummary | None:
    """What to say; None where no GPU was recorded."""
    if not has_streams(reader):
        return None
    parts: list[Breakdown] = []
    idle_ns = 0
    host_ns = 0
    for its in ranks_apart(reader):
        work = read_work(its)
        parts += [breakdown(of_device) for _, _, of_device in devices_of(work)]
        for part in parts_of(work.track):
            of_stream = idle_times(work.chosen(part))
            idle_ns += of_stream.idle_ns
            host_ns += of_stream.host_wait_ns
    span_ns = sum(part.span_ns for part in parts)
    if not span_ns:
        return None
    return GpuSummary(
        gpus=len(parts),
        busy_share=sum(part.busy_ns for part in parts) / span_ns,
        compute_share=sum(part.compute_ns for part in parts) / span_ns,
        communication_share=sum(part.exposed_communication_ns for part in parts) / span_ns,
        copy_share=sum(part.exposed_copy_ns for part in parts) / span_ns,
        host_share=host_ns / idle_ns if idle_ns else None,
        late=_late_rank(reader, span_ns / len(parts)),
    )


def _late_rank(reader: Reader, span_ns: float) -> Straggler | None:
    """The rank that others waited for most, if that was no chance."""
    with read_job(reader) as job:
        if job is None:
            return None
        worst = next(stragglers(job))
    if worst.late >= _LEAST_TIMES and worst.total_ns >= _LEAST_SHARE * span_ns:
        return worst
    return None
