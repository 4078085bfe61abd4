"""How many bytes are live at each moment, of the blocks of one process on one device.

The curve is exact: it is the sum of the blocks. Where one is released in the nanosecond in which
another is allocated, the release comes first.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.analyse.memory.blocks import Blocks, Int64s


class LiveCurve(Struct):
    """From `at_ns[i]` until `at_ns[i + 1]` there are `live_bytes[i]` bytes; each moment once."""

    at_ns: Int64s
    live_bytes: Int64s


def live_at_allocations(blocks: Blocks) -> Int64s:
    """How many bytes are live just after each block was allocated; `blocks` of one process and
    device. The curve is highest after one of them.
    """
    count = len(blocks)
    lives = blocks.lives
    size = blocks.bytes if lives.all() else np.where(lives, blocks.bytes, 0)
    # The first allocation that a release comes before: no sort of the releases is needed.
    behind = np.searchsorted(blocks.at_ns, blocks.end_ns, side="left")
    released = np.bincount(behind, weights=size, minlength=count + 1)
    # Sums below 2**53 are exact in floating point.
    until = np.cumsum(released, out=released)[:count]
    live: Int64s = np.cumsum(size)
    np.subtract(live, until, out=live, casting="unsafe")
    return live


def live_curve(blocks: Blocks) -> LiveCurve:
    """Every change of the live bytes; `blocks` of one process and device."""
    living = blocks.at(blocks.lives)
    size = living.bytes
    change = np.concatenate([size, -size])
    at_ns = np.concatenate([living.at_ns, living.end_ns])
    order = np.argsort(at_ns, kind="stable")
    at_ns = at_ns[order]
    live = np.cumsum(change[order])
    is_last = np.ones(len(at_ns), np.bool_)
    is_last[:-1] = at_ns[1:] != at_ns[:-1]
    return LiveCurve(at_ns[is_last], live[is_last])


def thinned_curve(curve: LiveCurve, most: int) -> LiveCurve:
    """At most `most` points, 2 at least: of equal stretches of time the highest point each, and the
    last point of all. Between two points the curve may be lower than it is drawn, or, where it
    rises to the second one, higher, but never higher than both.
    """
    count = len(curve.at_ns)
    if count <= most or count < 2:
        return curve
    stretches = max(1, most - 1)
    first_ns = int(curve.at_ns[0])
    whole_ns = int(curve.at_ns[-1]) - first_ns + 1
    # In floating point: the product of two long times does not fit into 64 bits.
    share = (curve.at_ns - first_ns) / whole_ns
    stretch = (share * stretches).astype(np.int64)
    order = np.lexsort((-curve.live_bytes, stretch))
    ordered = stretch[order]
    is_first = np.ones(count, np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    chosen = np.sort(order[is_first])
    if chosen[-1] != count - 1:
        chosen = np.append(chosen, count - 1)
    return LiveCurve(curve.at_ns[chosen], curve.live_bytes[chosen])
