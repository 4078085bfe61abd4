"""Estimates with their 95 % intervals, by bootstrap over pairs.

A pair is one measurement with and one without, taken next to each other. Neighbouring pairs
resemble each other, so where there are many of them, runs of neighbours are drawn together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 2000
AT_ONCE = 100
GROUPS = 60
TRIM = 0.1
_LOW, _HIGH = 2.5, 97.5

Values = Sequence[float] | np.ndarray
Statistic = Callable[[np.ndarray], np.ndarray]


class Interval(NamedTuple):
    """An estimate and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """All three multiplied by a positive `factor`."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)


def ratio_of_medians(with_it: Values, without: Values) -> Interval:
    """Median with / median without."""
    return _bootstrap(
        _paired(with_it, without), lambda p: np.median(p[..., 0], -1) / np.median(p[..., 1], -1)
    )


def median_ratio(with_it: Values, without: Values) -> Interval:
    """Median of the ratios within the pairs."""
    return _bootstrap(_paired(with_it, without), lambda p: np.median(p[..., 0] / p[..., 1], -1))


def mean_difference(with_it: Values, without: Values) -> Interval:
    """Trimmed mean of the differences within the pairs."""
    return _bootstrap(_paired(with_it, without), lambda p: trimmed_mean(p[..., 0] - p[..., 1]))


def mean_increase(with_it: Values, without: Values) -> Interval:
    """1 + trimmed mean of the differences over the trimmed mean without."""
    return _bootstrap(
        _paired(with_it, without),
        lambda p: 1 + trimmed_mean(p[..., 0] - p[..., 1]) / trimmed_mean(p[..., 1]),
    )


def median(values: Sequence[float]) -> Interval:
    """The median."""
    return _bootstrap(np.array(values, float)[:, None], lambda p: np.median(p[..., 0], -1))


def trimmed_mean(values: np.ndarray) -> np.ndarray:
    """The mean along the last axis without the lowest and the highest tenth."""
    cut = int(values.shape[-1] * TRIM)
    kept = np.sort(values, -1)[..., cut : values.shape[-1] - cut]
    return np.asarray(kept.mean(-1))


def _paired(with_it: Values, without: Values) -> np.ndarray:
    return np.column_stack([np.array(with_it, float), np.array(without, float)])


def _bootstrap(pairs: np.ndarray, statistic: Statistic) -> Interval:
    """`pairs` has one row a pair; `statistic` reduces (..., pairs, 2) to (...)."""
    chance = np.random.default_rng(1)
    size = max(1, len(pairs) // GROUPS)
    groups = pairs[: len(pairs) // size * size].reshape(-1, size, pairs.shape[1])
    found = []
    for _ in range(RESAMPLES // AT_ONCE):
        drawn = groups[chance.integers(len(groups), size=(AT_ONCE, len(groups)))]
        found.append(statistic(drawn.reshape(AT_ONCE, -1, pairs.shape[1])))
    low, high = np.percentile(np.concatenate(found), [_LOW, _HIGH])
    return Interval(float(statistic(pairs)), float(low), float(high))
