"""When a recording pauses, so that it costs no more than a share of the program's CPU time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.session.allowance import FIRST_S, LEAST_STRETCH_S, Allowance

SECOND_NS = 1_000_000_000


class Run:
    """A program of one CPU, second by second. Recording costs `open_share` of its CPU time, and
    `closed_share` while it pauses.
    """

    def __init__(self, share: float, open_share: float, closed_share: float = 0.0) -> None:
        self.allowance = Allowance(share)
        self.shares = {True: open_share, False: closed_share}
        self.at_s = 0
        self.program_ns = self.ours_ns = 0
        self.makes_steps = True
        self.states: list[bool] = []

    def run(self, seconds: int, program: float = 1.0, idle: float = 0.0) -> None:
        """`program`: CPUs that it uses; `idle`: those that we use in any case."""
        for _ in range(seconds):
            self.states.append(self.allowance.is_open)
            self.at_s += 1
            self.program_ns += round(program * SECOND_NS)
            share = self.shares[self.allowance.is_open]
            self.ours_ns += round((share * program + idle) * SECOND_NS)
            self.allowance.look(self.at_s, self.program_ns, self.ours_ns, self.makes_steps)

    def stretches(self) -> list[tuple[bool, int]]:
        """Open and closed ones, and how long each was."""
        found: list[tuple[bool, int]] = []
        for state in self.states:
            if found and found[-1][0] == state:
                found[-1] = state, found[-1][1] + 1
            else:
                found.append((state, 1))
        return found


def test_a_recording_far_within_its_share_never_pauses() -> None:
    one = Run(0.05, open_share=0.015)
    one.run(1000)
    assert all(one.states)
    assert one.allowance.pauses == 0


def test_the_first_seconds_are_recorded_and_paid_by_nobody() -> None:
    one = Run(0.05, open_share=10.0)
    one.run(int(FIRST_S))
    one.shares[True] = 0.01
    one.run(1000)
    assert all(one.states)


def test_one_that_uses_a_good_part_pauses_once_to_compare() -> None:
    one = Run(0.05, open_share=0.04)
    one.run(1000)
    assert one.stretches() == [(True, 6), (False, 3), (True, 991)]
    assert one.allowance.was_compared
    one = Run(0.05, open_share=0.04)
    one.makes_steps = False
    one.run(1000)
    assert all(one.states)


def test_a_program_that_waits_for_hours_is_recorded_when_it_works_again() -> None:
    one = Run(0.05, open_share=0.04)
    one.run(60)
    one.run(8 * 3600, program=0.0, idle=0.003)
    one.states.clear()
    one.run(3600)
    assert sum(one.states) > 3500


def test_a_program_that_begins_to_work_late_is_recorded_then() -> None:
    one = Run(0.05, open_share=0.04)
    one.run(60, program=0.0, idle=0.01)
    assert all(one.states)


def test_one_that_costs_twice_its_share_is_recorded_half_of_the_time() -> None:
    one = Run(0.05, open_share=0.10)
    one.run(2000)
    assert sum(one.states) == pytest.approx(1000, rel=0.03)
    assert one.allowance.used_share == pytest.approx(0.05, rel=0.03)
    assert one.allowance.paused_s == pytest.approx(1000, rel=0.04)


def test_what_pauses_cost_is_in_the_account() -> None:
    one = Run(0.05, open_share=0.20, closed_share=0.03)
    one.run(5000)
    assert one.allowance.used_share == pytest.approx(0.05, rel=0.05)
    assert sum(one.states) / 5000 == pytest.approx((0.05 - 0.03) / (0.20 - 0.03), rel=0.1)


def test_one_that_costs_too_much_even_when_it_pauses_stays_paused() -> None:
    one = Run(0.01, open_share=0.10, closed_share=0.02)
    one.run(500)
    assert one.stretches() == [(True, 6), (False, 494)]


def test_stretches_of_a_long_run_are_longer() -> None:
    one = Run(0.05, open_share=0.15)
    one.run(36_000)
    lengths = [length for is_open, length in one.stretches() if is_open]
    assert min(lengths) >= LEAST_STRETCH_S
    assert lengths[-2] >= 250
    assert len(lengths) < 400


def test_a_phase_that_costs_little_is_recorded_whole() -> None:
    one = Run(0.05, open_share=0.15)
    one.run(100)
    one.shares[True] = 0.01
    one.states.clear()
    one.run(300)
    assert all(one.states[100:])


def test_the_end_counts_a_pause_that_goes_on() -> None:
    one = Run(0.05, open_share=1.0)
    one.run(50)
    assert not one.allowance.is_open
    one.allowance.finish(50)
    one.allowance.finish(50)
    assert one.allowance.paused_s == one.states.count(False)


@given(
    st.floats(0.005, 0.5),
    st.lists(st.tuples(st.floats(0, 2), st.floats(0, 0.004), st.integers(1, 200)), min_size=1),
)
def test_the_account_is_overdrawn_by_one_stretch_at_most(
    share: float, phases: list[tuple[float, float, int]]
) -> None:
    one = Run(share, open_share=0.0)
    for open_share, closed_share, seconds in phases:
        one.shares = {True: open_share, False: closed_share}
        for _ in range(seconds):
            one.run(1)
            used_ns = one.allowance.used_share * max(one.program_ns - FIRST_S * SECOND_NS, 0)
            longest_s = max(LEAST_STRETCH_S, 0.01 * one.at_s) + 1
            most_ns = share * one.program_ns + 2 * longest_s * SECOND_NS
            assert used_ns <= most_ns
