"""Time in which intervals of several kinds are open, by the combination of kinds: a sweep over
their ends, in integer nanoseconds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def combined_ns(start_ns: Int64s, end_ns: Int64s, kind: Int64s, kinds: int) -> Int64s:
    """How long exactly the kinds of each bit mask were open, `kinds` of them: `2**kinds` sums.

    The sum of mask 0 is the time in which none was, between the first start and the last end.
    Intervals of one kind that overlap count once.
    """
    sums = np.zeros(1 << kinds, np.int64)
    if not len(start_ns):
        return sums
    at_ns = np.concatenate((start_ns, end_ns))
    order = np.argsort(at_ns, kind="stable")
    changes = np.repeat([1, -1], len(start_ns))[order]
    whose = np.concatenate((kind, kind))[order]
    mask = np.zeros(len(order), np.int64)
    for one in range(kinds):
        its_changes = np.where(whose == one, changes, 0)
        is_open = np.cumsum(its_changes) > 0
        mask |= is_open.astype(np.int64) << one
    lasted_ns = np.diff(at_ns[order])
    np.add.at(sums, mask[:-1], lasted_ns)
    return sums
