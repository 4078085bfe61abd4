"""Why a stream had nothing to do between two pieces of work.

Host wait: the second was launched after the first had ended, so the stream waited for the host.
Kernel wait: else, a gap of less than 30 us, as lies between two kernels that are launched well
ahead. Other: the rest; most of it is waiting for another stream, or for another rank.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.gpu.work import GpuWork

# As in HTA (its consecutive_kernel_delay).
KERNEL_WAIT_NS = 30_000


class IdleTimes(Struct, frozen=True):
    """Sums of one stream in ns."""

    count: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int


def idle_times(work: GpuWork) -> IdleTimes:
    """The sums of `work`, which is that of one stream in the order of its starts."""
    before_ns = work.before_ns()
    gap_ns = np.maximum(work.start_ns - before_ns, 0)
    is_host = work.is_launched & (work.launch_ns > before_ns)
    is_kernel = ~is_host & (gap_ns < KERNEL_WAIT_NS)
    idle_ns = int(gap_ns.sum())
    host_ns = int(gap_ns[is_host].sum())
    kernel_ns = int(gap_ns[is_kernel].sum())
    span_ns = int(work.end_ns.max() - work.start_ns.min()) if len(work) else 0
    return IdleTimes(
        count=len(work),
        span_ns=span_ns,
        busy_ns=span_ns - idle_ns,
        idle_ns=idle_ns,
        host_wait_ns=host_ns,
        kernel_wait_ns=kernel_ns,
        other_ns=idle_ns - host_ns - kernel_ns,
    )
