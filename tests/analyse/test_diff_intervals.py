"""Where the intervals of a comparison lie: laws on random numbers, and how often they hold the
truth.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse.diff import intervals


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 10**9).map(float), min_size=3, max_size=40),
    st.lists(st.integers(0, 10**9).map(float), min_size=3, max_size=40),
    st.floats(0, 3),
    st.sampled_from(["mean", "median"]),
)
def test_both_intervals_and_the_conditions_agree(
    a: list[float], b: list[float], limit: float, statistic: str
) -> None:
    sides = [intervals.estimate(np.array([values]), statistic) for values in (a, b)]
    change = intervals.compare(sides[0], sides[1], 0.95)
    (low,), (high,), (relative,) = *change.relative_limits(), change.relative()
    (low_ns,), (high_ns,) = change.limits()

    assert not (change.is_above()[0] and change.is_below()[0])
    assert change.exceeds(0)[0] == change.is_above()[0]
    if change.exceeds(limit)[0]:
        assert change.is_above()[0]
        assert math.isnan(low) or low > limit * (1 - 1e-9)
    if not math.isnan(low):
        assert low <= relative + 1e-9
        assert math.isnan(high) or relative <= high + 1e-9 * (1 + relative)
    if not math.isnan(low_ns) and abs(low_ns) > 1e-6:
        assert (low_ns > 0) == change.is_above()[0]
    if not math.isnan(high_ns) and abs(high_ns) > 1e-6:
        assert (high_ns < 0) == change.is_below()[0]


@pytest.mark.parametrize(
    ("tail", "freedom", "expected"),
    [  # of printed tables of Student's t
        (0.025, 1, 12.706), (0.025, 2, 4.303), (0.025, 10, 2.228), (0.025, 38, 2.024),
        (0.0005, 2, 31.599), (0.0005, 10, 4.587), (0.0005, 30, 3.646),
    ],
)  # fmt: skip
def test_the_quantiles_are_those_of_students_t(tail: float, freedom: int, expected: float) -> None:
    assert intervals.t_quantile(tail, freedom) == pytest.approx(expected, abs=0.0006)


def independent(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return 100 + rng.standard_normal(shape)


def neighbours_alike(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    made = rng.standard_normal(shape)
    for step in range(1, shape[1]):
        made[:, step] += 0.5 * made[:, step - 1]
    return 100 + made


def disturbed(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Every tenth step takes about ten times as long."""
    return np.exp(0.1 * rng.standard_normal(shape) + 2.3 * (rng.random(shape) < 0.1))


@pytest.mark.parametrize(
    ("noise", "statistic", "least"),
    [
        (independent, "mean", 0.93),
        (independent, "median", 0.93),
        (neighbours_alike, "mean", 0.9),
        (neighbours_alike, "median", 0.9),
        (disturbed, "mean", 0.9),
        (disturbed, "median", 0.93),
    ],
)
@pytest.mark.parametrize("steps", [10, 60, 400])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(
    noise: Any, statistic: str, least: float, steps: int
) -> None:
    rng = np.random.default_rng(7)
    a, b = (intervals.estimate(noise(rng, (1000, steps)), statistic) for _ in range(2))
    # One row at a time: together they would all have to hold.
    each = [
        intervals.compare(a.at(np.array([row])), b.at(np.array([row])), 0.95) for row in range(1000)
    ]
    wrong = sum(bool(change.is_above()[0] or change.is_below()[0]) for change in each)

    assert 0.0005 <= wrong / 1000 <= 1 - least


def test_of_many_rows_that_did_not_change_hardly_ever_one_is_called_slower() -> None:
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(100):
        a, b = (intervals.estimate(100 + rng.standard_normal((80, 100)), "mean") for _ in range(2))
        change = intervals.compare(a, b, 0.95)
        wrong += bool((change.is_above() | change.is_below()).any())

    assert wrong <= 12


def test_a_step_that_is_always_slower_is_found_however_uneven_both_are() -> None:
    rng = np.random.default_rng(4)
    a, b = (
        intervals.estimate(level * np.exp(rng.standard_normal((1, 40))), "median")
        for level in (1e6, 2e7)
    )

    assert intervals.compare(a, b, 0.95).exceeds(1.0)[0]
