"""What is compared, and where mean and median choose opposite settings."""

from __future__ import annotations

import pytest

from layerscope.model.errors import UsageError
from layerscope.tune.measurement import Measurement
from layerscope.tune.objective import NAMES, disagreement, metric, objective
from layerscope.tune.setting import DEFAULT, Setting

WITH_STEPS = Measurement(
    "default", 1, 12.0, 20.0, 1 << 30, steps=100, step_mean_ns=4e6, step_p50_ns=3e6, step_p99_ns=9e6, step_cpu_ns=7e6,
    metric=250.0,
)  # fmt: skip
WITHOUT = Measurement("default", 1, 12.0, 20.0, 1 << 30)


@pytest.mark.parametrize(
    ("name", "value", "unit"),
    [("wall", 12.0, "s"), ("throughput", 4e6, "ns"), ("p50", 3e6, "ns"), ("p99", 9e6, "ns"), ("cpu", 0.007, "s"),
     ("rss", float(1 << 30), "bytes")],
)  # fmt: skip
def test_each_objective_reads_its_own_figure(name: str, value: float, unit: str) -> None:
    found = objective(name, has_steps=True)
    assert found.value(WITH_STEPS) == pytest.approx(value)
    assert found.shown(value) == value
    assert (found.name, found.unit) == (name, unit)
    assert name in NAMES


def test_the_default_is_throughput_with_steps_and_wall_without() -> None:
    assert objective(None, has_steps=True).name == "throughput"
    assert objective(None, has_steps=False).name == "wall"
    assert (
        "the median (--objective p50) may choose another setting"
        in objective(None, has_steps=True).statement
    )


def test_cpu_is_of_the_whole_run_where_no_steps_are_known() -> None:
    assert objective("cpu", has_steps=False).value(WITHOUT) == 20.0


@pytest.mark.parametrize("name", ["throughput", "p50", "p99"])
def test_objectives_of_steps_need_steps(name: str) -> None:
    assert objective(name, has_steps=True).value(WITHOUT) is None
    with pytest.raises(
        UsageError, match="no steps of the program are known: take --objective wall or cpu"
    ):
        objective(name, has_steps=False)


def test_an_unknown_objective_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match="The objectives are wall, throughput, p50, p99, cpu, rss"):
        objective("speed", has_steps=True)


def test_a_run_that_we_ended_has_no_wall_time() -> None:
    cut = Measurement("default", 1, 12.0, 20.0, 1 << 30, is_cut=True)
    assert objective("wall", has_steps=False).value(cut) is None


def test_a_metric_is_compared_by_its_direction_and_shown_as_it_is() -> None:
    larger, smaller = metric("x", larger_is_better=True), metric("x", larger_is_better=False)
    assert larger.value(WITH_STEPS) == 1 / 250
    assert larger.shown(1 / 250) == 250
    # A quarter of the time is four times the rate.
    assert larger.shown_ratio(0.25, 0.2, 0.5) == (4.0, 2.0, 5.0)
    assert larger.shown_ratio(0.25, None, None) == (4.0, None, None)
    assert smaller.shown_ratio(0.25, 0.2, 0.5) == (0.25, 0.2, 0.5)
    assert smaller.value(WITH_STEPS) == smaller.shown(250.0) == 250
    assert larger.value(WITHOUT) is None


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_metric_that_has_no_ratio_is_no_value(value: float) -> None:
    found = Measurement("default", 1, 1.0, 1.0, 1, metric=value)
    assert metric("x", larger_is_better=True).value(found) is None


def steps(name: str, mean: float, median: float, noise: float = 0.0) -> list[Measurement]:
    return [
        Measurement(
            name,
            at,
            1,
            1,
            1,
            10,
            mean * (1 + noise * (-1) ** at),
            median * (1 + noise * (-1) ** at),
        )
        for at in range(6)
    ]


SETTINGS = {name: Setting(name) for name in ("one", "two")} | {DEFAULT.name: DEFAULT}


def test_opposite_winners_of_mean_and_median_are_named() -> None:
    # What was measured of an MLP: two threads have the better median, one thread the far better
    # mean.
    found = [*steps("default", 4.3, 0.22), *steps("one", 0.84, 0.28), *steps("two", 29.7, 0.21)]
    assert disagreement(found, SETTINGS) == (
        "mean and median of the steps choose opposite settings: two has the best median, one the best mean; "
        "--objective says which of them counts"
    )


@pytest.mark.parametrize(
    "found",
    [
        [
            *steps("default", 4.3, 0.3),
            *steps("one", 0.8, 0.2),
            *steps("two", 3.0, 0.25),
        ],  # one has both
        [
            *steps("default", 1, 1),
            *steps("one", 0.5, 0.505),
            *steps("two", 0.505, 0.5),
        ],  # by less than matters
        [
            *steps("default", 1, 1),
            *steps("one", 0.5, 0.6, 0.5),
            *steps("two", 0.6, 0.5),
        ],  # in the noise
        [*steps("one", 0.5, 0.6), *steps("two", 0.6, 0.5)],  # nothing to compare with
        [WITHOUT],
        [],
    ],
)
def test_no_opposite_winners_no_sentence(found: list[Measurement]) -> None:
    assert disagreement(found, SETTINGS) == ""
