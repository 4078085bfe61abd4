"""A budget that pauses the recording: what it looks at, and what it asks of drainer and sampler."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from layerscope.capture.drainer_messages import WINDOW
from layerscope.session import budget, budget_pauses
from layerscope.session.budget import BudgetOptions, Spent, twice
from layerscope.session.budget_pauses import PausingBudget

SECOND_NS = 1_000_000_000
PROGRAM, CHILD, DRAINER = 10, 11, 20


class Machine:
    """A program of one CPU with 50 steps a second, and its recorder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, share: float, cost: float) -> None:
        self.cost = cost  # of recording inside the program
        self.at_s = 0
        self.cpu_ns = {PROGRAM: 0, CHILD: 0, DRAINER: 0}
        self.step_count = 0
        self.asked: list[Any] = []
        self.is_recording = True
        self.pid, self.start_ns, self.end_ns = PROGRAM, 1, 0
        self.problems: list[Any] = []
        self.on_watch: list[Any] = []
        self.span_costs_ns = 0.0, 0.0
        self.link = SimpleNamespace(
            pid=DRAINER,
            program_pids={CHILD},
            records=lambda: 0,
            steps=lambda: self.step_count,
            order=self.order,
        )
        self.sampler = None
        monkeypatch.setattr(budget, "cpu_ns_of", self.cpu_ns.get)
        monkeypatch.setattr(time, "process_time_ns", lambda: 0)
        converter: Any = SimpleNamespace(pid=0)
        recorder: Any = self
        self.budget = PausingBudget(BudgetOptions(share, is_asked=True), recorder, converter)
        for name in ("_of_program", "_of_drainer", "_of_converter"):
            starts_s = 0.0 if name == "_of_program" else 2.0
            setattr(self.budget, name, Spent(self.cpu_ns.get, starts_s))
        monkeypatch.setattr(self.budget, "_at_s", lambda: float(self.at_s))

    def order(self, order: dict[str, Any], _patience_s: float) -> bool:
        self.asked.append((self.at_s, order))
        self.is_recording = order["until_ns"] is None
        return True

    def run(self, seconds: int) -> None:
        """The same work each second, so that recording makes it longer."""
        for _ in range(seconds):
            self.at_s += 1
            added = self.cost if self.is_recording else 0.0
            self.cpu_ns[PROGRAM] += round(0.2 * SECOND_NS)
            self.cpu_ns[CHILD] += round((0.8 + added) * SECOND_NS)
            self.cpu_ns[DRAINER] += round(0.01 * SECOND_NS)
            self.step_count += 50
            (look,) = self.on_watch
            look()
            turning = self.budget._turning
            if turning is not None:
                turning.join()
        self.end_ns = self.start_ns + self.at_s * SECOND_NS


def test_what_nobody_states_is_found_by_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Machine(monkeypatch, share=0.02, cost=0.10)
    one.run(300)
    assert one.asked[0] == (6, {"type": WINDOW, "until_ns": 0})
    assert one.asked[1][1] == {"type": WINDOW, "until_ns": None}
    assert one.budget._step_costs.added == pytest.approx(0.10, abs=0.005)
    recorded = one.budget.finish()
    assert recorded is not None
    share = float(recorded.split()[0]) / 300
    # The drainer takes 0.01 in any case.
    assert share == pytest.approx((0.02 - 0.01) / 0.10, rel=0.2)
    (paused,) = (each for each in one.problems if each.code == budget_pauses.PAUSED)
    assert "whose steps took 10 % more CPU time than the others" in paused.what
    assert paused.remedy == "--budget 4% records more, --budget none everything"


def test_one_that_only_compares_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Machine(monkeypatch, share=0.02, cost=0.001)
    one.run(300)
    assert [order["until_ns"] for _, order in one.asked] == [0, None]
    assert one.budget.finish() == "297.0 of 300.0 s, as a budget of 2 % allows"
    (paused,) = (each for each in one.problems if each.code == budget_pauses.PAUSED)
    assert "paused once, to compare recorded steps with others" in paused.what


def test_the_remedy_is_never_more_than_everything() -> None:
    assert twice(0.05) == "--budget 10%"
    assert twice(0.7) == "--budget 100%"


def test_a_number_of_a_process_that_another_one_has_next_counts_from_zero() -> None:
    clocks: dict[int, int | None] = {7: 5 * SECOND_NS}
    spent = Spent(lambda pid: clocks[pid], starts_s=0.0)
    spent.read(1.0, (7,))
    clocks[7] = 6 * SECOND_NS
    assert spent.read(2.0, (7,)) == SECOND_NS
    clocks[7] = 0
    assert spent.read(3.0, (7,)) == SECOND_NS
    clocks[7] = None
    assert spent.read(4.0, (7,)) == SECOND_NS
    clocks[7] = SECOND_NS
    assert spent.read(5.0, (7,)) == SECOND_NS
