"""Parents and self times as they follow from the order of spans alone.

The report's page works them out in the same way (web/src/data/nesting.ts), so that they need not be
in its file. Where a recording says something else (a span that ends on another thread, an outermost
span that was lost), the page is told.
"""

from __future__ import annotations

import numpy as np

from layerscope.model.compiled import Compiled, compiled

NONE = -1


def nested_parents(
    track: np.ndarray, depth: np.ndarray, start_ns: np.ndarray, dur_ns: np.ndarray
) -> np.ndarray:
    """The row of the span that each one lies in; -1: there is none.

    Rows are by track, start and depth. The parent is the last span before one level up on the
    track, if it has not ended before.
    """
    library = compiled()
    if library is not None:
        return _compiled_parents(library, track, depth, start_ns, dur_ns)
    parent = np.full(len(track), NONE, np.int32)
    end_ns = start_ns + dur_ns
    for level in range(1, int(depth.max(initial=0)) + 1):
        around = np.flatnonzero(depth == level - 1)
        inside = np.flatnonzero(depth == level)
        if not len(around):
            continue
        at = np.searchsorted(around, inside) - 1
        last = around[np.maximum(at, 0)]
        is_open = (at >= 0) & (track[last] == track[inside]) & (end_ns[last] >= start_ns[inside])
        parent[inside[is_open]] = last[is_open]
    return parent


def _compiled_parents(
    library: Compiled,
    track: np.ndarray,
    depth: np.ndarray,
    start_ns: np.ndarray,
    dur_ns: np.ndarray,
) -> np.ndarray:
    parent = np.empty(len(track), np.int32)
    levels = int(depth.max(initial=0)) + 1
    keys = (np.ascontiguousarray(values, np.int32) for values in (track, depth))
    times = (np.ascontiguousarray(values, np.int64) for values in (start_ns, dur_ns))
    library.call("parents", *keys, *times, len(track), np.empty(levels, np.int64), levels, parent)
    return parent


def nested_self_ns(parent: np.ndarray, dur_ns: np.ndarray, layer: np.ndarray) -> np.ndarray:
    """The duration of each span without those of the same layer whose nearest span of that layer
    around them it is.
    """
    self_ns = dur_ns.astype(np.int64)
    rows = np.flatnonzero(parent != NONE)
    around = parent[rows]
    while len(rows):
        is_same = layer[around] == layer[rows]
        np.subtract.at(self_ns, around[is_same], dur_ns[rows[is_same]])
        rows, around = rows[~is_same], parent[around[~is_same]]
        is_inside = around != NONE
        rows, around = rows[is_inside], around[is_inside]
    return self_ns
