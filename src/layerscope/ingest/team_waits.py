"""Waits of OpenMP's workers in a runtime without names: at a barrier, or without work.

The stack of such a worker is the same in both cases. What differs is where the thread is that began
the team: inside of a parallel region the worker waits for the others of its team, outside of one it
has no work. That thread is known by its samples: the runtime is on their stacks, below code that
called it.
"""

from __future__ import annotations

import numpy as np

from layerscope.ingest import waiting
from layerscope.ingest.spans import Columns
from layerscope.model.distinct import distinct
from layerscope.model.layers import SAMPLE_KINDS, WAITS

_WAIT = SAMPLE_KINDS.index("offcpu")
_BARRIER = WAITS.index("barrier")
_INSIDE = 0.5


def at_barriers(columns: Columns, state: np.ndarray, evidence: np.ndarray) -> np.ndarray:
    """The states (index into `WAITS`) of the samples of one process: of workers that wait while
    their team is in a parallel region `barrier` instead of `pool`.
    """
    is_nameless = evidence & waiting.NAMELESS == waiting.OPENMP
    waits = np.flatnonzero((columns["kind"] == _WAIT) & (state == waiting.POOL_STATE) & is_nameless)
    in_region = evidence & waiting.REGION > 0
    if not len(waits) or not in_region.any():
        return state
    begin_ns = columns["at_ns"][waits]
    # Of waits that stand for others only the begin is known.
    dur_ns = np.where(columns["exact"][waits], columns["weight_ns"][waits], 0)
    found = state.copy()
    for master in distinct(columns["track"][in_region]).tolist():
        of_master = np.flatnonzero(columns["track"] == master)
        share = _share_inside(
            columns["at_ns"][of_master],
            columns["weight_ns"][of_master],
            in_region[of_master],
            begin_ns,
            begin_ns + dur_ns,
        )
        found[waits[share > _INSIDE]] = _BARRIER
    return found


def _share_inside(
    at_ns: np.ndarray,
    weight_ns: np.ndarray,
    in_region: np.ndarray,
    begin_ns: np.ndarray,
    end_ns: np.ndarray,
) -> np.ndarray:
    """Which part of the time from each begin to each end a thread with these samples was in a
    region; where it has none between, whether its last one before is.
    """
    order = np.argsort(at_ns, kind="stable")
    at_ns, weight_ns, in_region = at_ns[order], weight_ns[order], in_region[order]
    whole = np.append(0, np.cumsum(weight_ns))
    inside = np.append(0, np.cumsum(weight_ns * in_region))
    first = np.searchsorted(at_ns, begin_ns)
    last = np.searchsorted(at_ns, end_ns)
    time_ns = whole[last] - whole[first]
    inside_ns = inside[last] - inside[first]
    before = np.append(in_region, False)[first - 1]
    share: np.ndarray = np.where(time_ns > 0, inside_ns / np.maximum(time_ns, 1), before)
    return share
