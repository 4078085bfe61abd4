"""What the summary says of GPUs, as lines."""

from __future__ import annotations

from collections.abc import Iterator

from layerscope.analyse.gpu.stragglers import Straggler
from layerscope.analyse.gpu.summary import GpuSummary
from layerscope.model import units
from layerscope.model.units import percent
from layerscope.show.summary_words import plural

_REASONS = {
    "compute": "it computes for longer",
    "copy": "it copies for longer",
    "loader": "its data loader takes longer",
    "host": "its GPU waits longer for the program",
    "other": "its GPU waits longer, for another stream or rank",
}


def gpu_lines(gpu: GpuSummary) -> Iterator[str]:
    """How busy the GPUs were, and who was late."""
    noun = "GPU" if gpu.gpus == 1 else f"{gpu.gpus} GPUs"
    parts = [f"compute {percent(gpu.compute_share)}"]
    if gpu.communication_share:
        parts.append(f"communication alone {percent(gpu.communication_share)}")
    if gpu.copy_share:
        parts.append(f"copies alone {percent(gpu.copy_share)}")
    idle = f"idle {percent(1 - gpu.busy_share)}"
    if gpu.host_share is not None:
        idle += f" (of gaps on streams {percent(gpu.host_share)} waiting for the program)"
    yield f"{noun}: {', '.join(parts)}, {idle}"
    if gpu.late:
        yield late_line(gpu.late)


def late_line(late: Straggler) -> str:
    """The rank that the others waited for, and why."""
    collectives = plural("collective", late.collectives)
    how_often = f"{late.late:,} of {late.collectives:,} {collectives}"
    by = units.duration(round(late.total_ns / late.late))
    why = _REASONS[late.reason or "other"]
    return (
        f"Late: rank {late.rank} came late to {how_often}, by {by}: {why} "
        "(layerscope table stragglers)"
    )
