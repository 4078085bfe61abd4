"""What is made small: how each objective is read from a measurement, and the sentence that states
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from layerscope.model.errors import UsageError
from layerscope.tune.measurement import Measurement
from layerscope.tune.paired import interval
from layerscope.tune.setting import DEFAULT, Setting

# Mean and median are told to disagree from this difference on, and never from fewer common rounds
# than these.
_DISAGREE = 0.02
_FEWEST_ROUNDS = 3
# Values by the name of the setting and by the round.
_ByRound = Mapping[str, Mapping[int, float]]

Shown = tuple[float | None, float | None, float | None]


class Objective(Struct, frozen=True):
    """`unit`: of what is shown: s, ns, bytes, or empty. `statement`: what is compared, and what
    else could be chosen.

    `is_time`: other programs on the same CPUs make it worse.
    """

    name: str
    unit: str
    statement: str
    read: Callable[[Measurement], float | None]
    is_time: bool = False
    larger_is_better: bool = False

    def value(self, measurement: Measurement) -> float | None:
        """As it is compared: a number above zero, less is better; None where there is none."""
        found = self.read(measurement)
        if found is None or not math.isfinite(found):
            return None
        if found <= 0:
            return None
        return 1 / found if self.larger_is_better else found

    def shown(self, value: float) -> float:
        """A value that was compared, or a ratio of two, as it was measured."""
        return 1 / value if self.larger_is_better else value

    def shown_ratio(self, ratio: float | None, low: float | None, high: float | None) -> Shown:
        """A ratio of two that were compared, and its interval, as they were measured: the lower end
        first.
        """
        found, first, last = (
            None if one is None else self.shown(one) for one in (ratio, low, high)
        )
        return (found, last, first) if self.larger_is_better else (found, first, last)


def _step(name: str) -> Callable[[Measurement], float | None]:
    def read(measurement: Measurement) -> float | None:
        if not measurement.steps:
            return None
        value = getattr(measurement, name)
        return float(value)

    return read


def _cpu(measurement: Measurement) -> float | None:
    if not measurement.steps:
        return measurement.cpu_s
    return measurement.step_cpu_ns / 1e9


def _wall(measurement: Measurement) -> float | None:
    # A run that we ended says nothing about how long the program takes.
    return None if measurement.is_cut else measurement.wall_s


_OBJECTIVES = (
    Objective(
        "wall",
        "s",
        "time of the whole run, start and end of the program included",
        _wall,
        is_time=True,
    ),
    Objective(
        "throughput",
        "ns",
        "mean time of a step; the median (--objective p50) may choose another setting",
        _step("step_mean_ns"),
        is_time=True,
    ),
    Objective(
        "p50",
        "ns",
        "median time of a step; the mean (--objective throughput) may choose another setting",
        _step("step_p50_ns"),
        is_time=True,
    ),
    Objective(
        "p99",
        "ns",
        "99th percentile of the time of a step: what the slowest step of a hundred takes",
        _step("step_p99_ns"),
        is_time=True,
    ),
    Objective(
        "cpu",
        "s",
        "CPU time of all threads for a step, in processes with a framework; where no steps are "
        "known of the whole run, in all processes",
        _cpu,
    ),
    Objective(
        "rss",
        "bytes",
        "largest memory of all processes together",
        lambda measurement: measurement.rss_bytes,
    ),
)
NAMES = tuple(objective.name for objective in _OBJECTIVES)


def objective(name: str | None, has_steps: bool) -> Objective:
    """The objective `name`; None: throughput where steps are known, else wall.

    Raises UsageError where there is no such objective, or it needs steps and there are none.
    """
    name = name or ("throughput" if has_steps else "wall")
    found = next((one for one in _OBJECTIVES if one.name == name), None)
    if found is None:
        raise UsageError(f"there is no objective {name!r}. The objectives are {', '.join(NAMES)}")
    if name in ("throughput", "p50", "p99") and not has_steps:
        raise UsageError(
            f"--objective {name} is about steps, and no steps of the program are known: take "
            "--objective wall or cpu, or mark the steps (layerscope.profiler)"
        )
    return found


def metric(pattern: str, larger_is_better: bool) -> Objective:
    """The number that --metric finds in what the program prints."""
    direction = "larger" if larger_is_better else "smaller"
    return Objective(
        "metric",
        "",
        f"the number that {pattern!r} finds in the program's output; {direction} is better",
        lambda measurement: measurement.metric,
        is_time=True,
        larger_is_better=larger_is_better,
    )


def disagreement(measurements: Iterable[Measurement], settings: Mapping[str, Setting]) -> str:
    """A sentence where mean and median of the steps choose opposite settings, surely; empty where
    they do not.
    """
    good = [one for one in measurements if not one.fault and one.steps and one.setting in settings]
    means, medians = (
        _by_round(good, objective(name, has_steps=True)) for name in ("throughput", "p50")
    )
    if DEFAULT.name not in means:
        return ""
    by_mean, by_median = _best(means), _best(medians)
    if by_mean == by_median:
        return ""
    mean_ratio, median_ratio = (_ratio(values, by_median, by_mean) for values in (means, medians))
    if (
        mean_ratio is None
        or median_ratio is None
        or mean_ratio[0] < 1 + _DISAGREE
        or median_ratio[1] > 1 - _DISAGREE
    ):
        return ""
    return (
        f"mean and median of the steps choose opposite settings: {by_median} has the best median, "
        f"{by_mean} the best mean; --objective says which of them counts"
    )


def _by_round(measurements: Sequence[Measurement], of: Objective) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for measurement in measurements:
        value = of.value(measurement)
        if value is None:
            continue
        by_round = found.setdefault(measurement.setting, {})
        by_round[measurement.round] = value
    return found


def _best(values: _ByRound) -> str:
    """The name with the smallest ratio to the defaults."""

    def ratio(name: str) -> float:
        ratios = _ratios(values, name, DEFAULT.name)
        if len(ratios) < _FEWEST_ROUNDS:
            return math.inf
        return interval(ratios).ratio

    return min(values, key=ratio)


def _ratio(values: _ByRound, name: str, other: str) -> tuple[float, float] | None:
    """Between what the ratio of two settings lies."""
    ratios = _ratios(values, name, other)
    if len(ratios) < _FEWEST_ROUNDS:
        return None
    found = interval(ratios)
    return (found.low or 0.0, found.high or math.inf)


def _ratios(values: _ByRound, name: str, other: str) -> list[float]:
    """One for each round that both have."""
    ours = values[name]
    theirs = values[other]
    rounds = sorted(ours.keys() & theirs.keys())
    return [ours[number] / theirs[number] for number in rounds]
