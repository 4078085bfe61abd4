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


class RaceTable:
    """The values of a stage: one row for each setting still in the race, one column for each of its
    rounds.

    `gone`: rows of those who left, with NaN from then on: they tell how large the noise is.
    `settings`: how many the stage began with, the defaults not counted.
    """

    def __init__(
        self, values: Sequence[Sequence[float]], settings: int, gone: Sequence[Sequence[float]] = ()
    ) -> None:
        self._logs = np.log(np.asarray(values, float))
        self._settings = settings
        self._rounds = self._logs.shape[1]
        everybody = np.log(np.asarray([*values, *gone], float))
        self._variance, self._freedom = _noise(everybody)

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
        own = float(differences.var(ddof=1)) if np.ptp(differences) > 1e-12 else 0.0
        tail = _WRONG / max(1, self._settings) / (self._rounds * (self._rounds - 1) if looks else 1)
        error = t_quantile(tail, self._freedom) * math.sqrt(
            max(2 * self._variance, own) / self._rounds
        )
        middle = float(differences.mean())
        return math.exp(max(middle - error, -500.0)), math.exp(min(middle + error, 500.0))

    def is_not_better(self, row: int, other: int) -> bool:
        """Whether `row` surely is not better than `other` by as much as matters."""
        return self._rounds >= FEWEST_ROUNDS and self.between(row, other)[0] > 1 - SMALLEST

    def is_better(self, row: int, other: int) -> bool:
        """Whether `row` surely is better than `other`."""
        return self._rounds >= FEWEST_ROUNDS and self.between(row, other)[1] < 1

    def is_ahead(self, row: int, other: int) -> bool:
        """The same when the rounds are over, which is looked at once."""
        return self._rounds >= FEWEST_ROUNDS and self.between(row, other, looks=False)[1] < 1


def _noise(logs: NDArray[np.float64]) -> tuple[float, int]:
    """Variance of what is left when each row and each column has its own level, and its degrees of
    freedom.
    """
    rows, columns = logs.shape
    row, column = np.nonzero(~np.isnan(logs))
    freedom = len(row) - rows - columns + 1
    if freedom < 1:
        return math.inf, 0
    levels = np.zeros((len(row), rows + columns))
    levels[np.arange(len(row)), row] = 1
    levels[np.arange(len(row)), rows + column] = 1
    seen = logs[row, column]
    rest = seen - levels @ np.linalg.lstsq(levels, seen, rcond=None)[0]
    # Below what rounding leaves there is no noise.
    return float((rest**2).sum()) / freedom if np.abs(rest).max() > 1e-12 else 0.0, freedom
