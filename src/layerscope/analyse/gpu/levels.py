"""A level that changes over time, such as the length of a queue: its mean, percentile and maximum,
weighted by how long it lasted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.gpu.sweep import Int64s


class LevelStatistics(Struct, frozen=True):
    """`lasted_ns`: the time that they are of. `p99`: the level was not higher for 99 % of it."""

    lasted_ns: int
    mean: float
    p99: float
    most: float


def levels(at_ns: Int64s, change: NDArray[Any]) -> tuple[NDArray[Any], Int64s]:
    """The levels that changes at these moments give, and how long each lasted; changes of one
    moment are one.
    """
    order = np.argsort(at_ns, kind="stable")
    moments, first = np.unique(at_ns[order], return_index=True)
    changes = np.add.reduceat(change[order], first) if len(first) else change[:0]
    level = np.cumsum(changes)
    return level[:-1], np.diff(moments)


def statistics(level: NDArray[Any], lasted_ns: Int64s) -> LevelStatistics | None:
    """Of these levels; None where they lasted no time."""
    whole_ns = int(lasted_ns.sum())
    if not whole_ns:
        return None
    order = np.argsort(level, kind="stable")
    upto_ns = np.cumsum(lasted_ns[order])
    place = int(np.searchsorted(upto_ns, 0.99 * whole_ns))
    weighted = level * lasted_ns
    return LevelStatistics(
        lasted_ns=whole_ns,
        mean=float(weighted.sum() / whole_ns),
        p99=float(level[order][min(place, len(level) - 1)]),
        most=float(level[lasted_ns > 0].max()),
    )
