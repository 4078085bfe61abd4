"""What launching work on a GPU takes: the call on the host, and then the time until the work
begins.

Delay: from the end of the call to the start of its (first) work. Queueing: the part of the delay in
which the work before it on the stream had not ended. Launch latency: the rest of the delay.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.gpu.sweep import Int64s
from layerscope.analyse.gpu.work import GpuWork


class Launches(Struct, frozen=True):
    """One value for each call that launched work: its span, how much it launched, how long that
    ran, latency and queueing in ns.
    """

    launch: Int64s
    works: Int64s
    cpu_ns: Int64s
    gpu_ns: Int64s
    latency_ns: Int64s
    queueing_ns: Int64s


def launches(work: GpuWork) -> Launches:
    """The calls that launched `work`."""
    before_ns = work.before_ns()
    order = np.lexsort((work.start_ns, work.launch))
    launched = order[work.is_launched[order]]
    mine = work.chosen(launched)
    launch, first, works = np.unique(mine.launch, return_index=True, return_counts=True)
    ran_ns = mine.end_ns - mine.start_ns
    called_ns = mine.launched_ns[first]
    delay_ns = np.maximum(mine.start_ns[first] - called_ns, 0)
    queueing_ns = np.clip(before_ns[launched][first] - called_ns, 0, delay_ns)
    is_first = _is_first_of_stream(work)[launched][first]
    queueing_ns[is_first] = 0
    return Launches(
        launch=launch,
        works=works.astype(np.int64),
        cpu_ns=called_ns - mine.launch_ns[first],
        gpu_ns=np.add.reduceat(ran_ns, first) if len(first) else ran_ns,
        latency_ns=delay_ns - queueing_ns,
        queueing_ns=queueing_ns,
    )


def _is_first_of_stream(work: GpuWork) -> np.ndarray:
    changes = np.diff(work.track, prepend=-1)
    is_first: np.ndarray = changes != 0
    return is_first
