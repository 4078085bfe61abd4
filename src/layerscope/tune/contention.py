"""Whether other programs used the CPUs during a race, and what that means for its result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from layerscope.tune.measurement import Measurement

# Pressure from which on waiting for a CPU is a part of what was measured, in percent of the time.
_PRESSURE = 10.0
# What others use of the CPUs of the program that shows: a tenth, and not less than a quarter of one
# CPU.
_SHARE, _LEAST_CPUS = 0.1, 0.25
# From this share of the rounds on, the machine counts as busy throughout.
NEARLY_ALL = 0.8


def is_contended(measurement: Measurement, cpus: float) -> bool:
    """Whether others used the CPUs beside it, and tasks waited for CPUs.

    Pressure alone says so only where the use is not known, for a program with too many threads
    makes pressure itself. What is not visible does not count.
    """
    presses = None if measurement.pressure is None else measurement.pressure >= _PRESSURE
    if measurement.load is None:
        return presses is True
    return measurement.load >= max(_LEAST_CPUS, cpus * _SHARE) and presses is not False


def rounds(measurements: Iterable[Measurement], cpus: float) -> tuple[int, int]:
    """(contended rounds, all rounds); a round is contended when at least half of its measurements
    are.
    """
    by_round: dict[int, list[bool]] = defaultdict(list)
    for measurement in measurements:
        answer = is_contended(measurement, cpus)
        answers = by_round[measurement.round]
        answers.append(answer)
    contended = 0
    for answers in by_round.values():
        if 2 * sum(answers) >= len(answers):
            contended += 1
    return contended, len(by_round)
