"""How sure a difference between two recordings is, when their steps repeat.

The steps of a program are not independent: what disturbs one step disturbs its neighbours too. So
the steps of each side are cut into blocks of equal length (about the square root of their number of
blocks, 3 to 20), and the spread of the blocks says how well the value of the whole is known.

Means are compared by their difference; where it lies is Welch's interval (Student's t, one variance
for each side), and the relative one is Fieller's with the same t: it leaves out zero exactly when
the other does. Medians are compared by their ratio, on logarithms: disturbances multiply times
rather than add to them, and the logarithm of a median is the median of the logarithms. Where a
block is zero there is no logarithm, and the difference is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MEAN, MEDIAN = "mean", "median"
LEVEL = 0.95
MOST_BLOCKS = 20
# Fewer steps than this have no interval.
FEWEST_STEPS = 3
# A limit further away than this ratio says nothing: there is none.
_FAR = 1000.0
_ANGLES = 20_000


class Estimates(Struct):
    """What one side says of each name: a value of a step (or of the run), and how well it is known.

    `variance` is that of the value, `log_variance` that of its logarithm, NaN where the value is a
    mean or a block is zero. `blocks` is from how many blocks of steps they come; 0: the steps do
    not repeat, both are NaN.
    """

    value: Floats
    variance: Floats
    log_variance: Floats
    blocks: int

    def at(self, places: NDArray[np.intp]) -> Estimates:
        """The same for chosen names; a place of -1 is a name that this side does not have: exactly
        zero.
        """
        has = places >= 0
        value, variance, log_variance = (
            np.zeros(len(places)),
            np.zeros(len(places)),
            np.full(len(places), np.nan),
        )
        for chosen, own in (
            (value, self.value),
            (variance, self.variance),
            (log_variance, self.log_variance),
        ):
            chosen[has] = own[places[has]]
        return Estimates(value, variance, log_variance, self.blocks)


class Change(Struct):
    """What became of each row from a to b. `error` is half the width of the interval, NaN without
    repeated steps.

    Where `is_ratio` is true, interval and variances are those of the logarithm of b / a, else those
    of b - a.
    """

    a: Floats
    b: Floats
    is_ratio: Bools
    a_variance: Floats
    b_variance: Floats
    t: Floats

    @property
    def difference(self) -> Floats:
        """The change in ns."""
        return self.b - self.a

    @property
    def error(self) -> Floats:
        """Half the width of the interval."""
        return self.t * np.sqrt(self.a_variance + self.b_variance)

    def relative(self) -> Floats:
        """The change as a fraction of a; NaN where a is zero."""
        return self.difference / np.where(self.a > 0, self.a, np.nan)

    def is_above(self) -> Bools:
        """Whether the whole interval lies above no change."""
        return self.exceeds(0.0)

    def is_below(self) -> Bools:
        """Whether the whole interval lies below no change."""
        below: Bools = -self._distance() > self.error
        return below

    def exceeds(self, limit: float) -> Bools:
        """Whether b is more than `limit` (a fraction) above a, with the whole interval."""
        widened = self.t * np.sqrt((1 + limit) ** 2 * self.a_variance + self.b_variance)
        sure: Bools = np.where(
            self.is_ratio,
            self._distance() - math.log1p(limit) > self.error,
            self.b - (1 + limit) * self.a > widened,
        )
        return sure

    def relative_limits(self) -> tuple[Floats, Floats]:
        """Between what the relative change lies; NaN where no ratio is known, or no limit."""
        low_log, high_log = self._log_limits()
        low_mean, high_mean = self._fieller()
        low = np.where(self.is_ratio, np.exp(low_log) - 1, low_mean)
        high = np.where(self.is_ratio, np.exp(high_log) - 1, high_mean)
        # What never varies is known exactly, rounding or not.
        exact = (self.error == 0) & (self.a > 0)
        low = np.where(exact, self.relative(), low)
        high = np.where(exact, self.relative(), high)
        return low, np.where(high < _FAR, high, np.nan)

    def _fieller(self) -> tuple[Floats, Floats]:
        """The relative changes for which b - (1 + change) * a is not surely above or below zero."""
        # They are the roots of a quadratic equation in 1 + change.
        spread = self.t**2
        a_square = self.a**2 - spread * self.a_variance
        b_square = self.b**2 - spread * self.b_variance
        mixed = self.a * self.b
        discriminant = mixed**2 - a_square * b_square
        root = np.sqrt(np.maximum(discriminant, 0.0))
        divisor = np.where(a_square > 0, a_square, np.nan)
        low_ratio = (mixed - root) / divisor
        low_ratio = np.maximum(low_ratio, 0.0)
        high_ratio = (mixed + root) / divisor
        return low_ratio - 1, high_ratio - 1

    def limits(self) -> tuple[Floats, Floats]:
        """Between what the change lies, in ns; NaN where there is no limit.

        For a ratio, a and b are thought to be equally wrong: their product stays as it is.
        """
        middle = np.sqrt(self.a * self.b)
        ratios = [
            np.where(np.abs(limit) < math.log(_FAR), limit, np.nan) for limit in self._log_limits()
        ]
        low, high = (2 * middle * np.sinh(ratio / 2) for ratio in ratios)
        error = np.where(self.is_ratio, np.nan, self.error)
        return np.where(self.is_ratio, low, self.difference - error), np.where(
            self.is_ratio, high, self.difference + error
        )

    def _distance(self) -> Floats:
        """How far b is from a, in what the interval is about."""
        # Where there is no ratio, 1 stands in: its logarithm is not used.
        is_ratio = self.is_ratio
        a = np.where(is_ratio, self.a, 1.0)
        b = np.where(is_ratio, self.b, 1.0)
        log_ratio = np.log(b / a)
        return np.where(is_ratio, log_ratio, self.difference)

    def _log_limits(self) -> tuple[Floats, Floats]:
        center = np.where(self.is_ratio, self._distance(), np.nan)
        # Further away than this is no limit to anybody, and no number to exp.
        low, high = (
            np.clip(limit, -500.0, 500.0) for limit in (center - self.error, center + self.error)
        )
        return low, high


def compare(a: Estimates, b: Estimates, level: float) -> Change:
    """The change of every row from `a` to `b`, with intervals that all hold together with
    probability `level`.
    """
    rows = len(a.value)
    if not a.blocks or not b.blocks:
        unknown = np.full(rows, np.nan)
        no_ratio = np.zeros(rows, np.bool_)
        return Change(a.value, b.value, no_ratio, unknown, unknown, unknown)
    is_ratio = ~(np.isnan(a.log_variance) | np.isnan(b.log_variance))
    a_variance = np.where(is_ratio, a.log_variance, a.variance)
    b_variance = np.where(is_ratio, b.log_variance, b.variance)
    # Each row may be wrong with an equal part of the probability (Bonferroni).
    tail = (1 - level) / 2 / max(1, rows)
    freedom = _freedom(a_variance, b_variance, a.blocks - 1, b.blocks - 1)
    quantiles = [t_quantile(tail, degrees) for degrees in freedom.tolist()]
    return Change(a.value, b.value, is_ratio, a_variance, b_variance, np.array(quantiles))


def estimate(values: Floats, statistic: str) -> Estimates:
    """Mean or median over the steps (columns) of each row, and how well it is known from blocks of
    steps.
    """
    count = block_count(values.shape[1])
    value = values.mean(axis=1) if statistic == MEAN else np.median(values, axis=1)
    if not count:
        unknown = np.full(len(values), np.nan)
        return Estimates(value, unknown, unknown, 0)
    blocks = _blocks(values, statistic, count)
    # What never varies has no variance, whatever rounding says.
    varies = blocks.max(axis=1) > blocks.min(axis=1)
    variance = varies * blocks.var(axis=1, ddof=1) / count
    is_positive = (blocks.min(axis=1) > 0) & (value > 0)
    has_logarithm = is_positive & (statistic == MEDIAN)
    logarithms = np.log(np.where(has_logarithm[:, None], blocks, 1.0))
    log_variance = varies * logarithms.var(axis=1, ddof=1) / count
    log_variance = np.where(has_logarithm, log_variance, np.nan)
    return Estimates(value, variance, log_variance, count)


def _blocks(values: Floats, statistic: str, count: int) -> Floats:
    """The mean or median of each row in each of `count` blocks of steps."""
    steps = values.shape[1]
    edges = np.arange(count + 1) * steps // count
    if statistic == MEAN:
        sums = np.add.reduceat(values, edges[:-1], axis=1)
        steps_of_block = np.diff(edges)
        means: Floats = sums / steps_of_block
        return means
    ranges = pairwise(edges.tolist())
    medians = [np.median(values[:, first:last], axis=1) for first, last in ranges]
    return np.stack(medians, axis=1)


def joined(parts: Sequence[Estimates], steps: int) -> Estimates:
    """The estimates of some names after those of others."""
    none = [np.zeros(0)]
    return Estimates(
        np.concatenate(none + [part.value for part in parts]),
        np.concatenate(none + [part.variance for part in parts]),
        np.concatenate(none + [part.log_variance for part in parts]),
        block_count(steps),
    )


def block_count(steps: int) -> int:
    """Into how many blocks so many steps are cut; 0: too few for an interval."""
    return 0 if steps < FEWEST_STEPS else min(MOST_BLOCKS, max(FEWEST_STEPS, math.isqrt(steps)))


@cache
def t_quantile(tail: float, freedom: int) -> float:
    """The value that Student's t with `freedom` degrees of freedom exceeds with probability
    `tail`.
    """
    # With t = sqrt(freedom) * tan(angle) the density is cos(angle) ** (freedom - 1) on a bounded
    # range. The grid is finer towards the right angle, where the tail of a small number of degrees
    # of freedom lies.
    grid = 1 - (1 - np.linspace(0.0, 1.0, _ANGLES)) ** 2
    angle = grid * (math.pi / 2)
    density = np.cos(angle) ** (freedom - 1)
    area = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(angle))))
    return math.sqrt(freedom) * math.tan(float(np.interp(1 - 2 * tail, area / area[-1], angle)))


def _freedom(
    a_variance: Floats, b_variance: Floats, a_freedom: int, b_freedom: int
) -> NDArray[np.int64]:
    """Degrees of freedom of the difference (Welch and Satterthwaite), rounded down."""
    squares = a_variance**2 / a_freedom + b_variance**2 / b_freedom
    exact = (a_variance + b_variance) ** 2 / np.where(squares > 0, squares, 1.0)
    freedom: NDArray[np.int64] = np.where(squares > 0, exact + 1e-9, a_freedom + b_freedom).astype(
        np.int64
    )
    return np.maximum(freedom, 1)
