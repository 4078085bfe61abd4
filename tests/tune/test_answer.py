"""What `layerscope tune` says of an outcome."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from layerscope.tune import answer, objective
from layerscope.tune.race import FASTER, LEADS, NO_DIFFERENCE, Outcome, Standing
from layerscope.tune.setting import Setting

THREADS = Setting("threads=1", {"OMP_NUM_THREADS": "1"})
SMALL_BATCH = Setting("--batch-size=8", arguments={"--batch-size": "8"})


def tuned(setting: Setting, *, verdict: str = FASTER, metric: str | None = None) -> Any:
    final = Standing(setting, LEADS, 10, 1.0, 0.25, 0.2, 0.5)
    found = Outcome(verdict, setting if verdict == FASTER else None, (final,), final, ())
    wish = SimpleNamespace(program=("python", "train.py"), metric=metric and re.compile(metric))
    compared = (
        objective.metric(metric, larger_is_better=True)
        if metric
        else objective.objective("p50", True)
    )
    return SimpleNamespace(outcome=found, objective=compared, wish=wish)


def test_a_rate_that_is_four_times_as_large_is_said_so() -> None:
    assert answer.verdict(tuned(THREADS, metric="x")).startswith(
        "threads=1 is better: 4.00 [2.00, 5.00] of the defaults"
    )
    assert answer.verdict(tuned(THREADS)).startswith(
        "threads=1 is better: 0.25 [0.20, 0.50] of the defaults"
    )
    nothing = answer.verdict(tuned(THREADS, verdict=NO_DIFFERENCE, metric="x"))
    assert nothing.endswith("The best one, threads=1: 4.00 [2.00, 5.00] of the defaults.")


@pytest.mark.parametrize(("setting", "metric", "warns"), [
    (THREADS, None, False), (SMALL_BATCH, None, True), (THREADS.together(SMALL_BATCH), None, True),
    (SMALL_BATCH, "images/s", False),
])  # fmt: skip
def test_a_winner_that_may_do_less_work_is_called_that(
    setting: Setting, metric: str | None, warns: bool
) -> None:
    assert (
        "Whether it does the same work is not known"
        in answer.verdict(tuned(setting, metric=metric))
    ) is warns


def test_the_row_has_the_ratio_as_it_was_measured() -> None:
    one = tuned(THREADS, metric="x")
    row = dict(zip([column.name for column in answer._columns(one.objective)],
                   answer._row(one, one.outcome.standings[0]), strict=True))  # fmt: skip
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == (4.0, 2.0, 5.0)
