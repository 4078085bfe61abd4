"""Puts the clocks of ranks on one, by the ends of collectives that nobody leaves before all have
come.

Such a collective ends for every rank at the same moment, but for some microseconds. So for each
rank an offset and a drift are fitted to the differences of its ends to those of a reference rank,
by least squares, with differences far from the line (more than four median deviations) left out
once. Ranks that share no group with the reference come over one that does. A rank with fewer than
ten such collectives keeps its clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from layerscope.analyse.gpu.sweep import Int64s

LEAST_COLLECTIVES = 10
_FAR = 4.0


class ClockFit(Struct, frozen=True):
    """What is added to a time of a rank: `offset_ns` at `at_ns`, and `drift` ns more each ns after
    it. `residual_ns`: the median distance of the ends from the fit; `collectives`: how many these
    are.
    """

    at_ns: int
    offset_ns: float
    drift: float
    residual_ns: float
    collectives: int

    def corrected(self, time_ns: Int64s) -> Int64s:
        """These times of the rank on the clock of the reference."""
        since_ns = time_ns - self.at_ns
        added_ns = np.rint(self.offset_ns + self.drift * since_ns)
        found: Int64s = time_ns + added_ns.astype(np.int64)
        return found


class SharedEnds(Struct, frozen=True):
    """The ends of the collectives of one group: `end_ns[k, i]` is that of collective `k` on
    `ranks[i]`.
    """

    ranks: tuple[int, ...]
    end_ns: Int64s


NO_CHANGE = ClockFit(0, 0.0, 0.0, 0.0, 0)


def fit_clocks(groups: Sequence[SharedEnds]) -> dict[int, ClockFit]:
    """The fit of each rank that has one; the reference, the first rank of the largest group, has
    NO_CHANGE.
    """
    usable = [group for group in groups if len(group.end_ns) >= LEAST_COLLECTIVES]
    usable.sort(key=lambda group: (-len(group.ranks), -len(group.end_ns), group.ranks))
    if not usable:
        return {}
    fits = {usable[0].ranks[0]: NO_CHANGE}
    left = usable
    while left:
        joined = [group for group in left if fits.keys() & set(group.ranks)]
        if not joined:
            break
        group = joined[0]
        left = [other for other in left if other is not group]
        _add_group(group, fits)
    return fits


def _add_group(group: SharedEnds, fits: dict[int, ClockFit]) -> None:
    """Fit the ranks of a group that have no fit yet to those that have."""
    base_ns = int(group.end_ns.min())  # a double holds what is left exactly
    corrected = []
    for place, rank in enumerate(group.ranks):
        if rank in fits:
            ends_ns = fits[rank].corrected(group.end_ns[:, place])
            corrected.append(ends_ns - base_ns)
    agreed_ns = np.median(np.stack(corrected), axis=0)
    for place, rank in enumerate(group.ranks):
        if rank not in fits:
            end_ns = group.end_ns[:, place]
            fits[rank] = fit_clock(end_ns, agreed_ns - (end_ns - base_ns))


def fit_clock(end_ns: Int64s, difference_ns: NDArray[np.float64]) -> ClockFit:
    """The line through the differences of what is agreed to the ends of one rank."""
    at_ns = int(end_ns[0])
    since_ns = (end_ns - at_ns).astype(np.float64)
    drift, offset_ns = _line(since_ns, difference_ns)
    distance_ns = np.abs(difference_ns - offset_ns - drift * since_ns)
    usual_ns = max(np.median(distance_ns), 1.0)
    near = np.flatnonzero(distance_ns <= _FAR * usual_ns)
    if len(near) >= LEAST_COLLECTIVES:
        drift, offset_ns = _line(since_ns[near], difference_ns[near])
    distance_ns = np.abs(difference_ns - offset_ns - drift * since_ns)
    residual_ns = float(np.median(distance_ns))
    return ClockFit(at_ns, offset_ns, drift, residual_ns, len(end_ns))


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """Slope and intercept of the line with the least squares."""
    middle = x.mean()
    spread = x - middle
    squares = float(spread @ spread)
    level = float(y.mean())
    slope = 0.0
    if squares:
        slope = float(spread @ (y - level)) / squares
    return slope, level - slope * float(middle)
