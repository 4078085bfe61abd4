"""Intervals of paired ratios: known answers, coverage of simulated data, laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.tune.paired import _ranks_outside, fewest_by_rank, interval

ratios = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=25)


@pytest.mark.parametrize(
    # Two-sided 5 % and 1 % points of Wilcoxon's T, as printed in tables of the test: the interval
    # leaves out so many averages and one more would be too many.
    ("pairs", "five", "one"),
    [
        (6, 0, None),
        (7, 2, None),
        (8, 3, 0),
        (10, 8, 3),
        (12, 13, 7),
        (15, 25, 15),
        (20, 52, 37),
        (25, 89, 68),
    ],
)
def test_ranks_left_out_are_those_of_the_printed_tables(
    pairs: int, five: int, one: int | None
) -> None:
    assert _ranks_outside(0.025, pairs) == five
    assert _ranks_outside(0.005, pairs) == one


def test_fewer_than_six_pairs_have_no_rank_interval_of_95_percent() -> None:
    assert fewest_by_rank(0.95) == 6
    assert [_ranks_outside(0.025, pairs) for pairs in (2, 5, 6)] == [None, None, 0]


def test_six_pairs_have_the_interval_from_the_smallest_to_the_largest() -> None:
    found = interval([0.5, 0.6, 0.7, 0.8, 0.9, 1.1])
    assert (found.low, found.high) == pytest.approx((0.5, 1.1))


def test_few_pairs_have_students_interval_of_the_logarithms() -> None:
    # Mean 0 and standard deviation 0.1 of three logarithms: t of 2 degrees of freedom is 4.3027.
    found = interval([math.exp(-0.1), 1.0, math.exp(0.1)])
    assert found.ratio == pytest.approx(1.0)
    assert math.log(found.high or 0) == pytest.approx(4.3027 * 0.1 / math.sqrt(3), rel=1e-4)
    assert found.low == pytest.approx(1 / (found.high or 0))


def test_one_pair_has_no_interval() -> None:
    assert interval([0.5]) == (0.5, None, None)


def test_pairs_that_are_all_alike_are_known_exactly() -> None:
    for pairs in (2, 5, 6, 12):
        assert interval([0.75] * pairs) == pytest.approx((0.75, 0.75, 0.75))


def test_one_wild_pair_of_ten_does_not_move_it_far() -> None:
    quiet = [0.80, 0.81, 0.79, 0.80, 0.82, 0.78, 0.80, 0.81, 0.79]
    found = interval([*quiet, 50.0])
    assert found.ratio == pytest.approx(0.8, rel=0.02)
    assert (found.high or 0) > 0.8


def coverage(
    pairs: int, cv: float, other_cv: float, runs: int = 1500, level: float = 0.95
) -> float:
    """In how many of the simulated comparisons the interval holds the true ratio."""
    chance = np.random.default_rng([pairs, round(cv * 100), round(other_cv * 100)])
    truth = 0.8
    spread, other = (math.sqrt(math.log1p(one**2)) for one in (cv, other_cv))
    logs = (
        math.log(truth)
        + spread * chance.standard_normal((runs, pairs))
        - other * chance.standard_normal((runs, pairs))
    )
    held = 0
    for row in np.exp(logs).tolist():
        found = interval(row, level)
        held += (found.low or 0.0) <= truth <= (found.high or math.inf)
    return held / runs


@pytest.mark.slow
@pytest.mark.parametrize("cv", [0.05, 0.2, 0.4])
@pytest.mark.parametrize("pairs", [2, 3, 5, 6, 7, 10, 20, 30])
def test_the_interval_holds_the_truth_in_95_percent_of_noisy_comparisons(
    pairs: int, cv: float
) -> None:
    # 1500 comparisons: the standard error of a share of 95 % is 0.6 %.
    assert coverage(pairs, cv, cv) >= 0.93


@pytest.mark.slow
def test_the_interval_holds_the_truth_where_one_side_is_noisier() -> None:
    assert min(coverage(pairs, 0.05, 0.4) for pairs in (5, 10, 20)) >= 0.93


def test_the_interval_is_not_wider_than_needed() -> None:
    assert coverage(10, 0.2, 0.2, runs=600) <= 0.98


@pytest.mark.slow
def test_a_bootstrap_of_the_median_is_too_narrow_for_few_pairs() -> None:
    """Why there is none: were it right, this test would say so."""
    chance = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        logs = chance.standard_normal(7)
        drawn = np.median(logs[chance.integers(7, size=(1000, 7))], axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5])
        held += low <= 0 <= high
    assert held / 400 < 0.92


@given(ratios, st.floats(0.1, 10.0))
def test_a_factor_moves_ratio_and_limits_alike(values: list[float], factor: float) -> None:
    plain, scaled = interval(values), interval([value * factor for value in values])
    for before, after in zip(plain, scaled, strict=True):
        if before is not None and after is not None and 1e-200 < before < 1e200:
            assert after == pytest.approx(before * factor, rel=1e-6)


@given(ratios)
def test_exchanging_the_sides_turns_it_over(values: list[float]) -> None:
    plain, turned = interval(values), interval([1 / value for value in values])
    assert turned.ratio == pytest.approx(1 / plain.ratio, rel=1e-9)
    if plain.low and plain.high and turned.low and plain.low > 1e-200 and plain.high < 1e200:
        assert turned.low == pytest.approx(1 / plain.high, rel=1e-6)


@given(ratios, st.randoms())
def test_the_order_of_pairs_does_not_matter(values: list[float], chance: object) -> None:
    shuffled = list(values)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    plain, other = interval(values), interval(shuffled)
    assert other.ratio == pytest.approx(plain.ratio)
    assert (other.low is None) == (plain.low is None)


@given(
    st.lists(st.floats(0.01, 100.0), min_size=2, max_size=25),
    st.sampled_from([0.9, 0.95, 0.975, 0.99]),
)
def test_the_ratio_lies_in_its_interval_and_between_the_pairs(
    values: list[float], level: float
) -> None:
    found = interval(values, level)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.ratio <= found.high
    assert min(values) * (1 - 1e-9) <= found.ratio <= max(values) * (1 + 1e-9)
