"""Which module the backward pass of an operator belongs to: that of the operator.

Definition. Every backward function is a stretch of its track. It belongs to the module of the
forward operator that it, or the first backward function in it that has one, is linked to
(`autograd_links`). Adding up a gradient has no forward operator: the engine does
it right after the function that produced the gradient, so it belongs to the module of the stretch
before. A span inherits the module of the innermost stretch around it that has one, unless a module
was called in between, as checkpointing does when it runs the forward pass again.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from layerscope.model.distinct import distinct

NO_MODULE = -1
_UNKNOWN = -2  # no forward operator is known, where NO_MODULE is one that ran in no module


class _Stretches(Struct):
    """Backward functions of one track that lie in equally many others, by start."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    recorded: np.ndarray  # the module that was open when it started
    module: np.ndarray  # the module it belongs to


def inherit(
    track: np.ndarray,
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    module: np.ndarray,
    backward: np.ndarray,
    forward: np.ndarray,
    accumulates: np.ndarray,
) -> None:
    """Give spans in the backward pass the module they belong to, in place.

    The first four are columns of all spans, `module` what was open when they started. `backward`:
    the rows of the backward functions; of each of them `forward`: the row of its operator, -1 if
    none is known, and `accumulates`: whether it adds up a gradient.
    """
    recorded = module.copy()
    own = np.where(forward >= 0, recorded[forward], _UNKNOWN).astype(np.int32)
    for number in distinct(track[backward]).tolist():
        mine = np.flatnonzero(track[backward] == number)
        mine = mine[np.lexsort((-end_ns[backward[mine]], start_ns[backward[mine]]))]
        at = backward[mine]
        levels = _levels(start_ns[at], end_ns[at], recorded[at], accumulates[mine], own[mine])
        rows = np.flatnonzero(track == number)
        starts = start_ns[rows]
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            rows, starts = rows[order], starts[order]
        for stretches in levels:
            place, of = _started_in(starts, stretches)
            row = rows[place]
            is_same = recorded[row] == stretches.recorded[of]
            module[row[is_same]] = stretches.module[of[is_same]]


def _started_in(start_ns: np.ndarray, stretches: _Stretches) -> tuple[np.ndarray, np.ndarray]:
    """The places of the spans that start in one of these stretches whose module is known, and which
    that is, the last one before it. `start_ns` are ascending.
    """
    first = np.searchsorted(start_ns, stretches.start_ns)
    stop = np.searchsorted(start_ns, stretches.end_ns, side="right")
    until_next = np.minimum(stop, np.append(first[1:], len(start_ns)))
    count = np.maximum(until_next - first, 0)
    count[stretches.module == _UNKNOWN] = 0
    of = np.repeat(np.arange(len(first)), count)
    place_in_all = np.arange(len(of))
    before = np.cumsum(count) - count
    return place_in_all + (first - before)[of], of


def _levels(
    start_ns: np.ndarray,
    end_ns: np.ndarray,
    recorded: np.ndarray,
    accumulates: np.ndarray,
    own: np.ndarray,
) -> list[_Stretches]:
    """The outermost backward functions of a track, those directly in them, and so on; `own`: of
    what they link to.
    """
    levels = []
    while len(start_ns):
        # Outermost: it starts when everything before it has ended.
        ended = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end_ns)[:-1]))
        is_outer = start_ns >= ended
        outer = np.flatnonzero(is_outer)
        of = np.searchsorted(outer, np.arange(len(start_ns)), side="right") - 1
        found = np.full(len(outer), _UNKNOWN, np.int32)
        linked = np.flatnonzero(own != _UNKNOWN)[::-1]
        found[of[linked]] = own[linked]  # the first of a stretch wins
        module = _carried(found, accumulates[outer])
        levels.append(_Stretches(start_ns[outer], end_ns[outer], recorded[outer], module))
        inner = ~is_outer
        start_ns, end_ns, recorded, accumulates, own = (
            column[inner] for column in (start_ns, end_ns, recorded, accumulates, own)
        )
    return levels


def _carried(module: np.ndarray, accumulates: np.ndarray) -> np.ndarray:
    """The modules of stretches; one that adds up a gradient has that of the last one before it that
    does not.
    """
    source = np.maximum.accumulate(np.where(accumulates, -1, np.arange(len(module))))
    carried = np.where(source >= 0, module[source], _UNKNOWN)
    chosen: np.ndarray = np.where(accumulates, carried, module)
    return chosen
