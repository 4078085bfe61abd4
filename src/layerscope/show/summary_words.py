"""Units and nouns of the summary."""

from __future__ import annotations

from layerscope.analyse.step_times import StepTimes

WIDTH = 108
MODULE = 24
LEAST_SHOWN = 0.005  # of a unit: less would be written as 0.00


def step_noun(steps: StepTimes) -> str:
    """What a step is called."""
    return steps.noun


def scale(dur_ns: float) -> tuple[int, str]:
    """One unit for all the durations of a block, so that they can be compared."""
    for divisor, unit in ((1_000_000_000, "s"), (1_000_000, "ms")):
        if dur_ns >= divisor:
            return divisor, unit
    return 1_000, "µs"


def plural(noun: str, number: float) -> str:
    """`noun` as it stands behind `number`."""
    return noun if number == 1 else f"{noun}{'es' if noun.endswith('s') else 's'}"
