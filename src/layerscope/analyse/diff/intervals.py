"""How sure a difference between two recordings is, when their steps repeat.

The steps of a program are not independent: what disturbs one step disturbs its neighbours too. So the steps of each
side are cut into blocks of equal length (about the square root of their number of blocks, 3 to 20), and the spread of
the blocks says how well the value of the whole is known. The interval of a difference is Welch's (Student's t, one variance for each side), that of a relative change
Fieller's with the same t: it leaves out zero exactly when the interval of the difference does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MEAN, MEDIAN = "mean", "median"
LEVEL = 0.95
MOST_BLOCKS = 20
# Fewer steps than this have no interval.
FEWEST_STEPS = 3
_ANGLES = 20_000


@dataclass(slots=True)
class Estimates:
    """What one side says of each name: a value of a step (or of the run), and the variance of that value.

    `blocks` is from how many blocks of steps the variance comes; 0: the steps do not repeat, there is none.
    """

    value: Floats
    variance: Floats
    blocks: int

    def at(self, places: NDArray[np.intp]) -> Estimates:
        """The same for chosen names; a place of -1 is a name that this side does not have: exactly zero."""
        has = places >= 0
        value, variance = np.zeros(len(places)), np.zeros(len(places))
        value[has], variance[has] = self.value[places[has]], self.variance[places[has]]
        return Estimates(value, variance, self.blocks)


@dataclass(slots=True)
class Change:
    """The difference b - a of each row with its interval; without repeated steps the limits are NaN."""

    a: Floats
    b: Floats
    error: Floats  # half the width of the interval of b - a
    a_variance: Floats
    b_variance: Floats
    t: Floats

    @property
    def difference(self) -> Floats:
        """The change in ns."""
        return self.b - self.a

    def relative(self) -> Floats:
        """The change as a fraction of a; NaN where a is zero."""
        return _divided(self.difference, self.a)

    def relative_limits(self) -> tuple[Floats, Floats]:
        """Where the relative change lies; NaN where a is not known well enough to be a measure."""
        spread = self.t**2
        square = self.a**2 - spread * self.a_variance
        mixed = self.a * self.b
        root = np.sqrt(np.maximum(mixed**2 - square * (self.b**2 - spread * self.b_variance), 0.0))
        square = np.where(square > 0, square, np.nan)
        low, high = (mixed - root) / square - 1, (mixed + root) / square - 1
        # Rounding must not make the two intervals disagree about zero.
        exact = (self.a_variance == 0) & (self.b_variance == 0) & (self.a > 0) & ~np.isnan(self.error)
        low, high = np.where(exact, self.relative(), low), np.where(exact, self.relative(), high)
        return np.maximum(low, -1.0), high

    def exceeds(self, limit: float) -> Bools:
        """Whether b is more than `limit` (a fraction) above a, with the whole interval."""
        above = self.b - (1 + limit) * self.a
        error = self.t * np.sqrt(self.b_variance + (1 + limit) ** 2 * self.a_variance)
        sure: Bools = above > error
        return sure


def compare(a: Estimates, b: Estimates, level: float) -> Change:
    """The change of every row from `a` to `b`, with intervals that all hold together with probability `level`."""
    if not a.blocks or not b.blocks:
        unknown = np.full(len(a.value), np.nan)
        return Change(a.value, b.value, unknown, unknown, unknown, unknown)
    # Each row may be wrong with an equal part of the probability (Bonferroni).
    tail = (1 - level) / 2 / max(1, len(a.value))
    t = np.array([t_quantile(tail, freedom) for freedom in _freedom(a, b).tolist()])
    return Change(a.value, b.value, t * np.sqrt(a.variance + b.variance), a.variance, b.variance, t)


def estimate(values: Floats, statistic: str) -> tuple[Floats, Floats]:
    """Mean or median over the steps (columns) of each row, and the variance of it from blocks of steps."""
    steps = values.shape[1]
    count = block_count(steps)
    value = values.mean(axis=1) if statistic == MEAN else np.median(values, axis=1)
    if not count:
        return value, np.full(len(values), np.nan)
    edges = np.arange(count + 1) * steps // count
    if statistic == MEAN:
        parts = np.add.reduceat(values, edges[:-1], axis=1) / np.diff(edges)
    else:
        ranges = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        parts = np.stack([np.median(values[:, start:end], axis=1) for start, end in ranges], axis=1)
    return value, parts.var(axis=1, ddof=1) / count


def block_count(steps: int) -> int:
    """Into how many blocks so many steps are cut; 0: too few for an interval."""
    return 0 if steps < FEWEST_STEPS else min(MOST_BLOCKS, max(FEWEST_STEPS, math.isqrt(steps)))


@cache
def t_quantile(tail: float, freedom: int) -> float:
    """The value that Student's t with `freedom` degrees of freedom exceeds with probability `tail`."""
    # With t = sqrt(freedom) * tan(angle) the density is cos(angle) ** (freedom - 1) on a bounded range. The grid is
    # finer towards the right angle, where the tail of a small number of degrees of freedom lies.
    grid = 1 - (1 - np.linspace(0.0, 1.0, _ANGLES)) ** 2
    angle = grid * (math.pi / 2)
    density = np.cos(angle) ** (freedom - 1)
    area = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(angle))))
    return math.sqrt(freedom) * math.tan(float(np.interp(1 - 2 * tail, area / area[-1], angle)))


def _freedom(a: Estimates, b: Estimates) -> NDArray[np.int64]:
    """Degrees of freedom of the difference (Welch and Satterthwaite), rounded down."""
    squares = a.variance**2 / (a.blocks - 1) + b.variance**2 / (b.blocks - 1)
    exact = (a.variance + b.variance) ** 2 / np.where(squares > 0, squares, 1.0)
    freedom: NDArray[np.int64] = np.where(squares > 0, exact + 1e-9, a.blocks + b.blocks - 2).astype(np.int64)
    return np.maximum(freedom, 1)


def _divided(above: Floats, below: Floats) -> Floats:
    return above / np.where(below > 0, below, np.nan)
