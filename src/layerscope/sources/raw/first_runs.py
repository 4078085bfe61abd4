"""How long the operators of all runs take where a profiler recorded those of the first ones alone.

Of each profiled run it is known how long it took and how long the operators in it; of the others
only how long they took. A profiler makes a run longer by what it writes: by so much the last runs
that it recorded are longer than the first ones behind them. Some of that lies within the operators:
nobody knows how much, so the estimate is in the middle between none and all. What remains of a run
is in operators by the same part in all of them. The interval is that of 95 %, from sums of runs
that follow each other, so that what changes slowly counts, and around it what lies between none and
all.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Of the profiled runs, those that warm up.
_WARMUP = 0.02
_BATCHES = 20
_FEWEST = 2 * _BATCHES
# The 97.5th percentile of Student's t with one degree less than there are batches.
_T = 2.093
# Runs on each side of the moment at which the profiler ended.
_NEIGHBOURS = 1_000


class Extrapolated(Struct, frozen=True):
    """The time in operators of all runs, `profiled` of which were profiled."""

    runs: int
    profiled: int
    total_ns: float
    low_ns: float
    high_ns: float


def extrapolated(run_ns: Floats, operators_ns: Floats) -> Extrapolated | None:
    """`run_ns`: of all runs in their order; `operators_ns`: of the first ones. None: too few were
    profiled to say it.
    """
    profiled = len(operators_ns)
    first = int(profiled * _WARMUP) + 1
    inside_ns = operators_ns[first:]
    if len(inside_ns) < _FEWEST or profiled >= len(run_ns):
        return None
    rest_ns = run_ns[profiled:]
    cost_ns, doubt_ns = _cost(run_ns[first:profiled], rest_ns)
    whole_ns = np.maximum(run_ns[first:profiled] - cost_ns, 1.0)
    most = min(inside_ns.sum() / whole_ns.sum(), 1.0)
    least = np.maximum(inside_ns - cost_ns, 0.0).sum() / whole_ns.sum()
    part = (least + most) / 2
    unknown_ns = (most - least) / 2 * rest_ns.sum()
    estimate_ns = part * rest_ns.sum()
    times = rest_ns.sum() / whole_ns.sum()
    left_ns = inside_ns - part * whole_ns
    batches = np.array([batch.sum() for batch in np.array_split(left_ns, _BATCHES)])
    spread = np.square(batches).sum() * _BATCHES / (_BATCHES - 1)
    by_cost = part * times * len(whole_ns) * doubt_ns
    error_ns = _T * np.sqrt(spread * (times * times + times) + by_cost * by_cost) + unknown_ns
    known_ns = operators_ns.sum()
    return Extrapolated(
        runs=len(run_ns),
        profiled=profiled,
        total_ns=float(known_ns + estimate_ns),
        low_ns=float(known_ns + max(estimate_ns - error_ns, 0)),
        high_ns=float(known_ns + min(estimate_ns + error_ns, rest_ns.sum())),
    )


def _cost(before_ns: Floats, after_ns: Floats) -> tuple[float, float]:
    """What the profiler adds to a run, and the standard error of that. Runs that become slower or
    faster do so on both sides, and between their middles by twice as much as between the halves of
    one.
    """
    medians, variance = [], 0.0
    for side in (before_ns[-_NEIGHBOURS:], after_ns[:_NEIGHBOURS]):
        for half in np.array_split(side, 2):
            medians.append(float(np.median(half)))
            variance += _variance_of_median(half)
    early, late, early_after, late_after = medians
    trend_ns = (late - early) + (late_after - early_after)
    cost_ns = (early + late) / 2 - (early_after + late_after) / 2 + trend_ns
    return max(cost_ns, 0.0), float(np.sqrt(2 * variance))


def _variance_of_median(values: Floats) -> float:
    low, high = np.percentile(values, (25, 75))
    deviation = 1.2533 * (high - low) / 1.349
    return float(deviation * deviation / len(values))
