"""Who leaves a race, and how seldom that is the best."""

from __future__ import annotations

import math

import numpy as np
import pytest

from layerscope.tune import contention
from layerscope.tune.elimination import FEWEST_ROUNDS, SMALLEST, RaceTable, _noise
from layerscope.tune.measurement import Measurement


def test_noise_is_what_settings_and_rounds_do_not_explain() -> None:
    levels, rounds = np.array([[0.0], [1.0], [3.0]]), np.array([[0.0, 0.5, -0.2, 0.1]])
    assert _noise(levels + rounds) == (0.0, 6)
    # Two rows, two columns: half of the difference of differences, squared, on one degree of
    # freedom.
    assert _noise(np.array([[0.0, 0.0], [0.0, 0.4]])) == pytest.approx((0.04, 1))


def test_noise_counts_those_who_left_for_as_long_as_they_ran() -> None:
    chance = np.random.default_rng(3)
    logs = 0.3 * chance.standard_normal((40, 20))
    logs[10:, 5:] = np.nan
    variance, freedom = _noise(logs)
    assert freedom == 10 * 20 + 30 * 5 - 40 - 20 + 1
    assert math.sqrt(variance) == pytest.approx(0.3, rel=0.1)


def test_nothing_is_sure_of_one_round() -> None:
    table = RaceTable([[1.0], [0.1]], 1)
    assert table.between(1, 0) == (0.0, math.inf)
    assert not table.is_better(1, 0)


def test_nobody_leaves_before_the_third_round() -> None:
    for rounds in (2, 3):
        table = RaceTable([[1.0] * rounds, [2.0] * rounds], 1)
        assert table.is_not_better(1, 0) == (rounds >= FEWEST_ROUNDS)


def test_what_never_varies_is_known_exactly() -> None:
    table = RaceTable([[10.0] * 4, [9.9] * 4, [9.7] * 4], 2)
    assert table.best() == 2
    assert table.between(1, 0) == pytest.approx((0.99, 0.99))
    assert table.is_not_better(1, 0)  # by 1 %, and SMALLEST is 2 %
    assert table.is_better(1, 0)
    assert not table.is_not_better(2, 0)
    assert SMALLEST == 0.02


def test_one_look_at_the_end_needs_less_than_a_look_after_each_round() -> None:
    chance = np.random.default_rng(4)
    found = [
        RaceTable([chance.lognormal(0, 0.1, 8), chance.lognormal(-0.15, 0.1, 8)], 2)
        for _ in range(100)
    ]
    sure, ahead = (
        sum(table.is_better(1, 0) for table in found),
        sum(table.is_ahead(1, 0) for table in found),
    )
    assert sure < 40
    assert ahead > 55
    assert all(table.is_ahead(1, 0) for table in found if table.is_better(1, 0))
    equal = [RaceTable(chance.lognormal(0, 0.1, (2, 8)), 2) for _ in range(400)]
    assert sum(table.is_ahead(1, 0) for table in equal) <= 20
    assert not RaceTable([[2.0, 2.1], [1.0, 1.1]], 1).is_ahead(1, 0)


def test_a_noisy_setting_is_judged_by_its_own_noise() -> None:
    quiet = [[1.0, 1.01, 0.99, 1.0]] * 10
    # Ten settings without noise do not make an eleventh with 40 % of it sure.
    table = RaceTable([*quiet, [2.2, 0.9, 1.0, 1.6]], 10)
    assert not table.is_not_better(10, 0)


@pytest.mark.slow
@pytest.mark.parametrize("cv", [0.05, 0.4])
def test_the_best_is_thrown_out_in_less_than_5_percent_of_the_races(cv: float) -> None:
    """By 2 % it is the best of eight, so that it must not leave; 30 rounds, looked at after
    each.
    """
    spread, thrown = math.sqrt(math.log1p(cv**2)), 0
    for run in range(300):
        chance = np.random.default_rng(run)
        values = np.exp(spread * chance.standard_normal((9, 30)))
        values[8] *= 1 - SMALLEST
        for rounds in range(FEWEST_ROUNDS, 31, 3):
            table = RaceTable(values[:, :rounds].tolist(), 8)
            if any(table.is_not_better(8, other) for other in {table.best(), 0} - {8}):
                thrown += 1
                break
    assert thrown <= 0.05 * 300


@pytest.mark.parametrize(
    ("pressure", "load", "cpus", "expected"),
    [
        (None, None, 2.0, False),  # not visible is not contended
        (50.0, None, 2.0, True),
        (5.0, None, 2.0, False),
        (50.0, 0.0, 2.0, False),  # its own threads press
        (50.0, 1.0, 2.0, True),
        (0.0, 1.0, 2.0, False),  # others run, and there is room for all
        (None, 1.0, 2.0, True),
        (None, 1.0, 128.0, False),
    ],
)
def test_contention_is_use_by_others_and_waiting(
    pressure: float | None, load: float | None, cpus: float, expected: bool
) -> None:
    measurement = Measurement("default", 1, 1.0, 1.0, 1, pressure=pressure, load=load)
    assert contention.is_contended(measurement, cpus) == expected


def test_a_round_is_contended_when_half_of_it_is() -> None:
    def made(number: int, *loads: float) -> list[Measurement]:
        return [Measurement("default", number, 1.0, 1.0, 1, load=load) for load in loads]

    assert contention.rounds([*made(1, 0, 1), *made(2, 0, 0, 1), *made(3, 1, 1)], 1.0) == (2, 3)
    assert contention.rounds([], 1.0) == (0, 0)
