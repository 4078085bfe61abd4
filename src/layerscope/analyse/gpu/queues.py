"""How much work waited on a stream: launched by the host, and not begun yet.

A piece of work is in the queue from the start of the call that launched it to its own start. The
call of work that began before its call, by a small error of the clocks, counts as that moment.
"""

from __future__ import annotations

import numpy as np

from layerscope.analyse.gpu.levels import levels
from layerscope.analyse.gpu.sweep import Int64s
from layerscope.analyse.gpu.work import GpuWork


def queue_lengths(work: GpuWork) -> tuple[Int64s, Int64s]:
    """The lengths of the queue of a stream, and how long each lasted."""
    launched = work.chosen(work.is_launched)
    from_ns = np.minimum(launched.launch_ns, launched.start_ns)
    at_ns = np.concatenate((from_ns, launched.start_ns))
    change = np.repeat([1, -1], len(launched))
    return levels(at_ns, change)
