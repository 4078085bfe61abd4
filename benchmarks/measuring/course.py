"""The course of a value over a long run: whether it stays where it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# The first minutes do not count: buffers fill, and everything that is kept whole is still being
# kept.
SETTLED_SHARE, SETTLED_AT_MOST_S = 0.1, 180.0
HOUR_NS = 3600 * 10**9
POINTS = 300

# (monotonic ns, value)
Samples = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Course:
    """Medians of the first and the last third, the straight line through all, and the highest
    value.
    """

    first: float
    last: float
    an_hour: float
    peak: float


def settled_ns(begin_ns: int, end_ns: int) -> int:
    """From when on a run from `begin_ns` to `end_ns` is judged."""
    return begin_ns + round(min((end_ns - begin_ns) * SETTLED_SHARE, SETTLED_AT_MOST_S * 1e9))


def course(samples: Samples, begin_ns: int, end_ns: int) -> Course | None:
    """Of the samples in that span of time; None if there are too few."""
    times, values = (
        np.array([one for one in samples if begin_ns <= one[0] <= end_ns], float).reshape(-1, 2).T
    )
    if len(times) < 6:
        return None
    third = (times[-1] - times[0]) / 3
    first, last = values[times <= times[0] + third], values[times >= times[-1] - third]
    slope = float(np.polyfit((times - times[0]) / HOUR_NS, values, 1)[0])
    return Course(float(np.median(first)), float(np.median(last)), slope, float(values.max()))


def thinned(
    samples: Samples, begin_ns: int, unit_ns: float, unit: float
) -> list[tuple[float, float]]:
    """At most some hundred points, the highest value of each stretch, for a picture: (time, value)
    in these units.
    """
    samples = [one for one in samples if one[0] >= begin_ns]
    size = max(1, -(-len(samples) // POINTS))
    stretches = [samples[i : i + size] for i in range(0, len(samples), size)]
    return [
        (
            round((part[-1][0] - begin_ns) / unit_ns, 4),
            round(max(value for _, value in part) / unit, 3),
        )
        for part in stretches
    ]
