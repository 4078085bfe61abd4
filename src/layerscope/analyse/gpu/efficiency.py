"""How well kernels fill a GPU, from the start of the first step to the end of the last one.

Busy share: the part of that time in which a kernel ran. SM efficiency: the same, with each kernel
counted for the part of the multiprocessors that its blocks can occupy, min(1, blocks per SM); of
kernels at the same time the sum, at most 1. Occupancy: that of the kernels as the profiler
estimates it, weighted by their durations. The profiler plugin of TensorBoard (0.4.3) has defined
these so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from layerscope.analyse.gpu import arguments
from layerscope.analyse.gpu.intervals import merged
from layerscope.analyse.gpu.levels import levels
from layerscope.analyse.gpu.profiled_steps import step_windows
from layerscope.analyse.gpu.work import WORK

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

_KERNELS = f"""
    SELECT rank, device, work.start_ns, work.end_ns,
           {arguments.BLOCKS_PER_SM} AS blocks, {arguments.OCCUPANCY_PERCENT} / 100 AS occupancy
    FROM ({WORK}) AS work JOIN spans USING (span) LEFT JOIN args ON args.args = work.args
    WHERE spans.kind = 'kernel' AND work.start_ns >= ? AND work.end_ns <= ? AND rank = ?
    ORDER BY device, work.start_ns"""


class Efficiency(Struct, frozen=True):
    """Of one GPU in `window_ns`, from the first step to the last; what the trace does not tell is
    None.
    """

    window_ns: tuple[int, int]
    busy_share: float
    sm_efficiency: float | None
    occupancy: float | None


def efficiencies(reader: Reader) -> dict[tuple[int, int], Efficiency]:
    """By rank and device, where there are steps."""
    found = {}
    for of_rank in step_windows(reader):
        from_ns = int(of_rank.windows.start_ns[0])
        until_ns = int(of_rank.windows.end_ns[-1])
        kernels = reader.query(_KERNELS, [from_ns, until_ns, of_rank.rank])
        devices = kernels["device"].to_numpy()
        for device in np.unique(devices).tolist():
            first, last = np.searchsorted(devices, [device, device + 1])
            its = kernels.slice(first, last - first)
            found[of_rank.rank, device] = _efficiency(its, (from_ns, until_ns))
    return found


def _efficiency(kernels: pa.Table, window_ns: tuple[int, int]) -> Efficiency:
    from_ns, until_ns = window_ns
    span_ns = until_ns - from_ns
    start_ns = kernels["start_ns"].to_numpy()
    end_ns = kernels["end_ns"].to_numpy()
    busy_share = merged(start_ns, end_ns).total_ns / span_ns
    blocks = kernels["blocks"].to_numpy().astype(np.float64)
    occupancy = kernels["occupancy"].to_numpy().astype(np.float64)
    sm_efficiency = None
    if not np.isnan(blocks).all():
        part = np.minimum(np.nan_to_num(blocks), 1.0)
        level, lasted_ns = levels(np.concatenate((start_ns, end_ns)), np.concatenate((part, -part)))
        filled_ns = np.minimum(level, 1.0) @ lasted_ns
        sm_efficiency = float(filled_ns) / span_ns
    mean_occupancy = _mean(occupancy, end_ns - start_ns)
    return Efficiency(window_ns, busy_share, sm_efficiency, mean_occupancy)


def _mean(values: np.ndarray, lasted_ns: np.ndarray) -> float | None:
    """Of the values that are known, weighted by how long they lasted."""
    known = np.flatnonzero(~np.isnan(values))
    whole_ns = lasted_ns[known].sum()
    if not whole_ns:
        return None
    return float(values[known] @ lasted_ns[known] / whole_ns)
