"""What recording adds to a step, by stretches that were recorded and others."""

from __future__ import annotations

import pytest

from layerscope.session.step_costs import LEAST_STEPS, StepCosts

MS_NS = 1_000_000


def begun() -> StepCosts:
    """Of a program whose first steps have begun."""
    costs = StepCosts()
    costs.add(True, 3000 * MS_NS, 0)
    costs.add(True, 900 * MS_NS, 10)
    return costs


def test_nothing_is_known_without_a_pause_or_without_steps() -> None:
    costs = begun()
    costs.add(True, 1000 * MS_NS, 100)
    assert (costs.added, costs.comparisons) == (0.0, 0)
    costs.add(False, 1000 * MS_NS, 0)
    assert (costs.added, costs.comparisons) == (0.0, 0)


def test_a_stretch_is_compared_with_the_one_before_it_while_it_goes_on() -> None:
    costs = begun()
    costs.add(True, 1100 * MS_NS, 100)
    costs.add(False, 500 * MS_NS, 50)
    assert costs.added == pytest.approx(0.1)
    costs.add(False, 600 * MS_NS, 50)
    assert (costs.added, costs.comparisons) == (0.0, 1)


def test_of_several_comparisons_the_median_counts() -> None:
    costs = begun()
    # The second pause does something else: one comparison on each side of it is wrong.
    is_open = True
    for ms in (1100, 1000, 1100, 1000, 1100, 3000, 1100, 1000, 1100):
        costs.add(is_open, ms * MS_NS, 100)
        is_open = not is_open
    assert costs.added == pytest.approx(0.1)
    assert costs.comparisons == 8


def test_recording_never_makes_a_step_cheaper() -> None:
    costs = begun()
    costs.add(True, 900 * MS_NS, 100)
    costs.add(False, 1000 * MS_NS, 100)
    assert costs.added == 0.0


def test_few_steps_say_nothing() -> None:
    costs = begun()
    costs.add(True, 1100 * MS_NS, 100)
    costs.add(False, 100 * MS_NS, LEAST_STEPS - 1)
    assert costs.comparisons == 0
    costs.add(False, 10 * MS_NS, 1)
    assert costs.comparisons == 1


def test_the_start_of_the_program_is_no_step() -> None:
    costs = StepCosts()
    for ms, steps in ((1000, 0), (5000, 30), (1000, 100)):
        costs.add(True, ms * MS_NS, steps)
    costs.add(False, 1000 * MS_NS, 100)
    assert costs.added == 0.0
