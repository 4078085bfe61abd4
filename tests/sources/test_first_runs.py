"""How long the operators of all runs take, by those of the first ones."""

from __future__ import annotations

import numpy as np
import pytest

from layerscope.sources.raw.first_runs import Extrapolated, extrapolated

RUNS, PROFILED, COST_NS = 6_000, 1_500, 60_000


def simulated(seed: int, within: float, drift: float = 0.0) -> tuple[float, Extrapolated | None]:
    """Runs of which the first ones take longer by what the profiler adds, the part `within` of that
    in operators; the time in operators of all, and what the first ones say of it.
    """
    rng = np.random.default_rng(seed)
    slower = 1 + drift * np.arange(RUNS) / RUNS
    operators_ns = rng.gamma(40, 15_000, RUNS) * slower
    outside_ns = rng.gamma(9, 8_000, RUNS) * slower
    run_ns = operators_ns + outside_ns
    run_ns[:PROFILED] += COST_NS
    operators_ns[:PROFILED] += within * COST_NS
    return float(operators_ns.sum()), extrapolated(run_ns, operators_ns[:PROFILED])


@pytest.mark.parametrize("within", [0.0, 0.5, 1.0])
def test_the_sum_of_all_runs_lies_in_its_interval(within: float) -> None:
    inside = narrow = 0
    for seed in range(200):
        total_ns, told = simulated(seed, within)
        assert told is not None
        inside += told.low_ns <= total_ns <= told.high_ns
        narrow += told.high_ns - told.low_ns < 0.25 * total_ns
    assert inside >= 190
    assert narrow == 200


@pytest.mark.parametrize("within", [0.0, 1.0])
def test_a_program_that_becomes_slower_is_followed(within: float) -> None:
    inside = 0
    for seed in range(100):
        total_ns, told = simulated(seed, within, drift=0.5)
        assert told is not None
        inside += told.low_ns <= total_ns <= told.high_ns
    assert inside >= 90


def test_a_few_runs_say_nothing_about_all() -> None:
    assert extrapolated(np.full(1_000, 10.0), np.full(30, 5.0)) is None


def test_where_all_runs_were_profiled_there_is_nothing_to_say() -> None:
    assert extrapolated(np.full(1_000, 10.0), np.full(1_000, 5.0)) is None
