"""Which settings leave the race after a round: those that surely are not better by as much as
matters.

Values are compared as logarithms: disturbances multiply times rather than add to them. What a round
has in common (other programs, a hot CPU) and what a setting has in common are taken out; what is
left over is the noise, one figure for all settings, or that of the two compared where theirs is
larger. So even three rounds of many settings tell how much a difference means.

A setting leaves as soon as the whole interval of its value over that of the leader, or over that of
the defaults, lies above 1 - SMALLEST. The intervals are so wide that the best setting leaves with a
probability of at most 5 % in a whole stage, however many settings and rounds it has: each of K
settings may be wrong with a K-th of that (Bonferroni), and the n-th round with 1 / (n (n - 1)) of
it, which adds up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from layerscope.analyse.diff.intervals import t_quantile

# The smallest difference that is worth a setting; the fewest rounds after which one may leave, and
# the most of a stage: what they have not told apart by then is left to the final comparison.
SMALLEST = 0.02
FEWEST_ROUNDS, MOST_ROUNDS = 3, 30
_WRONG = 0.05
# Of a logarithm: further than this is no limit to anybody, and no number to exp.
_FURTHEST = 500.0


class RaceTable:
    """The values of a stage: one row for each setting still in the race, one column for each of its
    rounds.

    `gone`: rows of those who left, with NaN from then on: they tell how large the noise is.
    `settings`: how many the stage began with, the defaults not counted.
    """

    def __init__(
        self, values: Sequence[Sequence[float]], settings: int, gone: Sequence[Sequence[float]] = ()
    ) -> None:
        racing = np.asarray(values, float)
        everybody = np.asarray([*values, *gone], float)
        self._logs = np.log(racing)
        self._settings = settings
        self._rounds = racing.shape[1]
        noise = _noise(np.log(everybody))
        self._variance, self._freedom = noise

    def best(self) -> int:
        """The row with the smallest mean; of equal ones the first."""
        return int(np.argmin(self._logs.mean(axis=1)))

    def between(self, row: int, other: int, *, looks: bool = True) -> tuple[float, float]:
        """Between what the value of `row` over that of `other` surely lies; `looks`: it is asked
        after each round.
        """
        differences = self._logs[row] - self._logs[other]
        if not self._freedom:
            return 0.0, math.inf
        differs = np.ptp(differences) > 1e-12
        variance_of_pair = float(differences.var(ddof=1)) if differs else 0.0
        variance = max(2 * self._variance, variance_of_pair)
        error = self._quantile(looks=looks) * math.sqrt(variance / self._rounds)
        middle = float(differences.mean())
        low = max(middle - error, -_FURTHEST)
        high = min(middle + error, _FURTHEST)
        return math.exp(low), math.exp(high)

    def _quantile(self, *, looks: bool) -> float:
        """How many standard errors an interval reaches to each side."""
        settings = max(1, self._settings)
        tail = _WRONG / settings
        if looks:
            tail /= self._rounds * (self._rounds - 1)
        return t_quantile(tail, self._freedom)

    def is_not_better(self, row: int, other: int) -> bool:
        """Whether `row` surely is not better than `other` by as much as matters."""
        if self._rounds < FEWEST_ROUNDS:
            return False
        low, _ = self.between(row, other)
        return low > 1 - SMALLEST

    def is_better(self, row: int, other: int) -> bool:
        """Whether `row` surely is better than `other`."""
        if self._rounds < FEWEST_ROUNDS:
            return False
        _, high = self.between(row, other)
        return high < 1

    def is_ahead(self, row: int, other: int) -> bool:
        """The same when the rounds are over, which is looked at once."""
        if self._rounds < FEWEST_ROUNDS:
            return False
        _, high = self.between(row, other, looks=False)
        return high < 1


def _noise(logs: NDArray[np.float64]) -> tuple[float, int]:
    """Variance of what is left when each row and each column has its own level, and its degrees of
    freedom.
    """
    rows, columns = logs.shape
    row, column = np.nonzero(~np.isnan(logs))
    measured = logs[row, column]
    count = len(measured)
    freedom = count - rows - columns + 1
    if freedom < 1:
        return math.inf, 0
    levels = np.zeros((count, rows + columns))
    every = np.arange(count)
    levels[every, row] = 1
    levels[every, rows + column] = 1
    fitted, *_ = np.linalg.lstsq(levels, measured, rcond=None)
    residuals = measured - levels @ fitted
    # Below what rounding leaves there is no noise.
    if np.abs(residuals).max() <= 1e-12:
        return 0.0, freedom
    squares = float((residuals**2).sum())
    return squares / freedom, freedom
