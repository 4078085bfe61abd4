"""Where the thread that ended a wait was at that moment, as far as its samples tell."""

from __future__ import annotations

import numpy as np

from layerscope.analyse.stacks.tree import NONE, Bools, Ints
from layerscope.model.distinct import distinct

# Two periods of the sampler at its usual rate: what a thread did then tells little of what it does
# now.
_NEAR_NS = 20_000_000


def stacks_of_wakers(
    track: Ints, at_ns: Ints, dur_ns: Ints, stack: Ints, is_wait: Bools, waker: Ints
) -> Ints:
    """Of each sample that is a wait with a `waker` the stack of that thread's sample nearest to the
    wait's end.

    All of samples: track, when each began, how long a wait was (0 for others), place of its stack
    (-1: none), whether it is a wait, track that ended it (-1: nobody known). Returns places of
    stacks, -1 where no sample is within 20 ms.
    """
    found = np.full(len(track), NONE, np.int64)
    woken = np.flatnonzero(is_wait & (waker >= 0))
    for one in distinct(waker[woken]).tolist():
        theirs = np.flatnonzero((track == one) & (stack >= 0))
        theirs = theirs[np.argsort(at_ns[theirs], kind="stable")]
        if not len(theirs):
            continue
        mine = woken[waker[woken] == one]
        ends = at_ns[mine] + dur_ns[mine]
        behind = np.searchsorted(at_ns[theirs], ends, "right")
        before, after = (
            theirs[np.maximum(behind - 1, 0)],
            theirs[np.minimum(behind, len(theirs) - 1)],
        )
        until_after = np.abs(at_ns[after] - ends)
        since_before = np.where(
            behind > 0, np.maximum(ends - at_ns[before] - dur_ns[before], 0), until_after + 1
        )
        nearest = np.where(since_before <= until_after, before, after)
        is_near = np.minimum(since_before, until_after) <= _NEAR_NS
        found[mine] = np.where(is_near, stack[nearest], NONE)
    return found
