"""What recording adds to a step, by stretches that were recorded and others."""

from __future__ import annotations

import pytest

from layerscope.session.step_costs import ADDED_MOST, LEAST_STEPS, StepCosts

MS_NS = 1_000_000


class Program:
    """A program whose first steps have begun."""

    def __init__(self) -> None:
        self.costs = StepCosts()
        self.costs.add(True, 3000 * MS_NS, 0)
        self.costs.add(True, 900 * MS_NS, 10)

    def run(self, is_open: bool, step_ms: float, seconds: int = 3, steps: int = 100) -> None:
        """Seconds with so many steps, each of which takes this CPU time."""
        for _ in range(seconds):
            self.costs.add(is_open, round(steps * step_ms * MS_NS), steps)


def test_nothing_is_known_without_a_pause_or_without_steps() -> None:
    one = Program()
    one.run(True, 10)
    assert one.costs.added == 0.0
    one.costs.add(False, 1000 * MS_NS, 0)
    assert (one.costs.added, one.costs.comparisons) == (0.0, 0)


def test_a_stretch_is_compared_with_the_one_before_it_while_it_goes_on() -> None:
    one = Program()
    one.run(True, 11)
    one.run(False, 10, seconds=1)
    assert one.costs.added == pytest.approx(0.1)
    one.run(False, 11, seconds=1)
    assert one.costs.added == pytest.approx(11 / 10.5 - 1)


def test_of_several_comparisons_the_median_counts() -> None:
    one = Program()
    # The third pause does something else: the comparisons on both sides of it are wrong.
    for number, step_ms in enumerate((11, 10, 11, 10, 11, 30, 11, 10, 11, 10, 11)):
        one.run(number % 2 == 0, step_ms)
    assert one.costs.added == pytest.approx(0.1)
    assert one.costs.comparisons == 9


def test_a_second_in_which_the_program_does_something_else_is_left_out() -> None:
    one = Program()
    one.run(True, 11)
    one.run(True, 1000, seconds=1, steps=1)
    one.run(False, 10)
    assert one.costs.added == pytest.approx(0.1)


def test_recording_never_makes_a_step_cheaper_and_never_half_as_dear_again() -> None:
    one = Program()
    one.run(True, 9)
    one.run(False, 10)
    assert one.costs.added == 0.0
    one = Program()
    one.run(True, 100)
    one.run(False, 10)
    assert one.costs.added == ADDED_MOST


def test_few_steps_say_nothing() -> None:
    one = Program()
    one.run(True, 11)
    one.run(False, 10, seconds=1, steps=LEAST_STEPS - 1)
    assert one.costs.added == 0.0
    one.run(False, 10, seconds=1, steps=1)
    assert one.costs.added == pytest.approx(0.1)


def test_the_start_of_the_program_is_no_step() -> None:
    one = StepCosts()
    for ms, steps in ((1000, 0), (5000, 30), (1000, 100)):
        one.add(True, ms * MS_NS, steps)
    one.add(False, 1000 * MS_NS, 100)
    assert one.added == 0.0
