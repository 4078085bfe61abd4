"""The passes over all spans of a batch that `parents` makes, depth by depth.

Each is compiled where there was a compiler (native/tables/nesting.c), else done with NumPy, with
the same result. What is unusual, spans that cross and parents that are not there, is left to
`parents`.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.model.compiled import compiled

NONE = -1  # no such ancestor; below it, the span that is awaited on some level: see `parents`


class DepthLevel(Struct):
    """The spans of one depth in a batch, by start. `around` and `nearest`: by row and layer, the
    nearest span around it, and at least it: a row of the batch, NONE, or an awaited one. `from_ns`:
    since when it may lie in what is around it, its start, or the end of a parent that is gone.
    """

    rows: np.ndarray
    start: np.ndarray
    end: np.ndarray
    key: np.ndarray
    around: np.ndarray
    nearest: np.ndarray
    from_ns: np.ndarray


def by_depth(
    start_ns: np.ndarray, end_ns: np.ndarray, depth: np.ndarray, key: np.ndarray, layers: int
) -> list[DepthLevel]:
    """The spans of a batch by depth. Around them there is nothing yet."""
    levels = int(depth.max(initial=-1)) + 1
    rows, bounds = _sorted(start_ns, depth, levels)
    count = len(rows)
    start, end, keys = start_ns.take(rows), end_ns.take(rows), key.take(rows)
    around = np.full((count, layers), NONE, np.int32)
    nearest = np.empty((count, layers), np.int32)
    found = []
    for level in range(levels):
        mine = slice(bounds[level], bounds[level + 1])
        columns = (column[mine] for column in (rows, start, end, keys, around, nearest, start))
        found.append(DepthLevel(*columns))
    return found


def _sorted(start_ns: np.ndarray, depth: np.ndarray, levels: int) -> tuple[np.ndarray, list[int]]:
    """The rows by depth and start, and where those of each depth begin, and the last ones end."""
    library = compiled()
    if library is not None:
        rows = np.empty(len(depth), np.int64)
        bounds = np.empty(levels + 1, np.int64)
        whole = np.ascontiguousarray(depth, np.int32)
        count = library.call("sort", whole, start_ns, len(depth), levels, rows, bounds)
        if count >= 0:  # else there was no memory
            return rows[:count], bounds.tolist()
    rows = np.lexsort((start_ns, depth))
    borders = np.searchsorted(depth[rows], np.arange(levels + 1))
    return rows, borders.tolist()


def adopt(
    parents: DepthLevel, here: DepthLevel, parent: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give the spans `here` their parents, of those one depth up: the last one that starts before
    it, if it has not ended then.

    For each its place among `parents`, -1: all start later; and whether it is the parent.
    """
    library, count = compiled(), len(here.rows)
    if library is not None:
        place, known = np.empty(count, np.int64), np.empty(count, np.bool_)
        library.call(
            "adopt",
            parents.start, parents.end, parents.key, parents.nearest, len(parents.rows),
            here.start, here.rows, count, here.around.shape[1],
            parent, here.around, place, known.view(np.uint8),
        )  # fmt: skip
        return place, known
    place = np.searchsorted(parents.start, here.start, side="right") - 1
    known = place >= 0
    known[known] = parents.end[place[known]] >= here.start[known]
    parent[here.rows[known]] = parents.key[place[known]]
    here.around[known] = parents.nearest[place[known]]
    return place, known


def charge(
    here: DepthLevel, end_ns: np.ndarray, layer: np.ndarray, self_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Take the time of the spans `here` from the self time of the nearest span of their layer
    around them. The other columns are those of the batch.

    The places here and the targets of those that lie in an awaited span, or outlive theirs.
    """
    library, count = compiled(), len(here.rows)
    if library is not None:
        left = np.empty(count, np.int64)
        layers = here.around.shape[1]
        around = (here.around, layers, layer, end_ns, len(end_ns))
        found = library.call(
            "charge", here.rows, here.end, here.from_ns, count, *around, self_ns, left
        )
        left = left[:found]
        return left, here.around[left, layer[here.rows[left]]]
    target = here.around[np.arange(count), layer[here.rows]]
    left = charge_to(target, here.from_ns, here.end, end_ns, self_ns)
    return left, target[left]


def charge_to(
    target: np.ndarray,
    from_ns: np.ndarray,
    until_ns: np.ndarray,
    end_ns: np.ndarray,
    self_ns: np.ndarray,
) -> np.ndarray:
    """Take the time of spans from the self time of their targets; `end_ns` and `self_ns` are those
    of the batch.

    The places of those whose target is awaited or ends before them.
    """
    inside = np.flatnonzero(target >= 0)
    of, end = target[inside], until_ns[inside]
    shared_ns = np.minimum(end, end_ns[of]) - from_ns[inside]
    np.subtract.at(self_ns, of, np.maximum(shared_ns, 0))
    is_left = target < NONE
    is_left[inside] = end > end_ns[of]
    return np.flatnonzero(is_left)


def enclose(here: DepthLevel, layer: np.ndarray) -> None:
    """Fill in `nearest`: what is around a span, and in its own layer itself."""
    library, count = compiled(), len(here.rows)
    if library is not None:
        layers = here.around.shape[1]
        library.call("nearest", here.rows, count, here.around, layers, layer, here.nearest)
        return
    here.nearest[:] = here.around
    here.nearest[np.arange(count), layer[here.rows]] = here.rows
