"""What a recording may cost: when the rate of samples follows the budget, and when it does not."""

from __future__ import annotations

import os
import time

import pytest

from layerscope.session.budget import LEAST_HZ, RateControl, Spent, Used, cpu_ns_of

SECOND_NS = 1_000_000_000


class Costs:
    """A program that runs on one CPU, and its recording, second by second."""

    def __init__(self, share: float, hz: int = 99) -> None:
        self.control = RateControl(share, hz)
        self.used = Used()
        self.at_s = 0.0
        self.rates: list[tuple[float, int]] = []

    def run(
        self,
        seconds: int,
        stacks: float,
        others: float = 0.0,
        program: float = 1.0,
        fixed: float = 0.0,
    ) -> None:
        """Use CPU time: `stacks`, at 99 Hz, `others` and what stacks cost at any rate (`fixed`) are
        shares of the program's.
        """
        for _ in range(seconds):
            self.at_s += 1
            ns = program * SECOND_NS
            of_samples = stacks * self.control.hz / 99 * ns
            self.used = self.used.plus(Used(*map(round, (ns, fixed * ns, of_samples, others * ns))))
            if self.control.look(self.at_s, self.used):
                self.rates.append((self.at_s, self.control.hz))


def test_a_recording_within_its_budget_keeps_its_rate() -> None:
    one = Costs(0.05)
    one.run(600, stacks=0.03, others=0.015)
    assert one.rates == []


def test_a_recording_that_costs_more_is_sampled_more_rarely() -> None:
    one = Costs(0.05)
    one.run(60, stacks=0.08)
    assert one.rates == [(7.0, 49)]
    assert one.used.share < 0.05


def test_a_recording_far_above_its_budget_is_so_at_once() -> None:
    one = Costs(0.005)
    one.run(60, stacks=0.02)
    assert one.rates == [(5.0, 49), (9.0, 24)]


def test_the_rate_has_a_lower_bound() -> None:
    one = Costs(0.0001, hz=499)
    one.run(60, stacks=0.5)
    assert [hz for _, hz in one.rates] == [249, 124, 62, 31, 15, LEAST_HZ]


def test_a_rate_that_is_low_already_stays() -> None:
    one = Costs(0.0001, hz=5)
    one.run(60, stacks=0.5)
    assert one.rates == []


def test_the_start_of_a_program_is_left_out() -> None:
    one = Costs(0.05)
    one.run(3, stacks=0.9, others=0.9)
    one.run(60, stacks=0.01)
    assert one.rates == []
    assert one.control.whole.share == pytest.approx(0.01)


def test_no_samples_are_lost_where_stacks_are_not_what_costs() -> None:
    one = Costs(0.05)
    one.run(60, stacks=0.01, others=0.2)
    assert one.rates == []
    assert one.control.whole.share == pytest.approx(0.21)


def test_a_lower_rate_that_saves_nothing_is_taken_back() -> None:
    one = Costs(0.05)
    one.run(600, stacks=0.002, fixed=0.08)
    assert [hz for _, hz in one.rates] == [49, 99]


def test_a_program_that_does_something_else_is_measured_again() -> None:
    one = Costs(0.05)
    one.run(60, stacks=0.002, fixed=0.08)
    assert one.control.hz == 99
    one.run(60, stacks=0.2)
    assert one.control.hz == 24


def test_the_rate_is_not_lowered_for_the_rest_of_a_saving() -> None:
    one = Costs(0.03)
    one.run(600, stacks=0.03, fixed=0.01, others=0.04)
    assert [hz for _, hz in one.rates] == [49, 24]


def test_the_rate_goes_up_again_where_there_is_room() -> None:
    one = Costs(0.05)
    one.run(20, stacks=0.08)
    one.run(60, stacks=0.01)
    assert [hz for _, hz in one.rates] == [49, 99]


def test_the_rate_does_not_go_up_and_down() -> None:
    one = Costs(0.05)
    one.run(600, stacks=0.055)
    assert [hz for _, hz in one.rates] == [49]


def test_a_program_that_waits_is_not_measured_by_its_waiting() -> None:
    one = Costs(0.05)
    one.run(600, stacks=0.5, program=0.0001)
    assert one.rates == []


def test_one_batch_of_the_converter_does_not_lower_the_rate() -> None:
    one = Costs(0.05)
    one.run(20, stacks=0.022)
    one.run(2, stacks=0.022, others=0.06)
    one.run(20, stacks=0.022)
    assert one.rates == []


def test_processes_count_without_their_start() -> None:
    of = {7: 2 * SECOND_NS, 8: SECOND_NS}
    spent = Spent(of.get)
    assert spent.read(0.0, (7, 0)) == 0
    of[7] += 900
    assert spent.read(1.0, (7,)) == 0
    of[7] += 50
    assert spent.read(2.0, (7,)) == 50
    of[8] += 70
    assert spent.read(3.0, (7, 8)) == 50
    del of[7]
    of[8] += 5
    assert spent.read(5.0, (7, 8)) == 55


def test_the_cpu_time_of_a_process_is_that_of_all_its_threads() -> None:
    before = time.process_time_ns()
    now = cpu_ns_of(os.getpid())
    assert now is not None
    assert before <= now <= time.process_time_ns()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert cpu_ns_of(child) is None
