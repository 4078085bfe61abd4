"""Sweeps over intervals, against a count of every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyse.gpu.intervals import merged
from layerscope.analyse.gpu.levels import levels, statistics
from layerscope.analyse.gpu.sweep import combined_ns

INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 2)), max_size=25
)


def columns(intervals: list[tuple[int, int, int]]) -> list[np.ndarray]:
    array = np.array(intervals, np.int64).reshape(-1, 3)
    return [array[:, 0], array[:, 0] + array[:, 1], array[:, 2]]


@given(INTERVALS)
def test_the_sums_are_those_of_every_nanosecond(intervals: list[tuple[int, int, int]]) -> None:
    start, end, kind = columns(intervals)

    sums = combined_ns(start, end, kind, 3)

    expected = [0] * 8
    for ns in range(int(start.min(initial=0)), int(end.max(initial=0))):
        mask = 0
        for first, dur, of in intervals:
            mask |= (first <= ns < first + dur) << of
        expected[mask] += ns >= start.min()
    assert sums.tolist() == (expected if intervals else [0] * 8)


@given(INTERVALS)
def test_what_is_covered_is_at_most_the_sum_of_the_durations(
    intervals: list[tuple[int, int, int]],
) -> None:
    start, end, _ = columns(intervals)

    covered = merged(start, end).total_ns

    assert covered <= (end - start).sum()
    assert covered == len({ns for a, b in zip(start, end, strict=True) for ns in range(a, b)})


@given(INTERVALS)
def test_a_level_is_weighted_by_how_long_it_lasts(intervals: list[tuple[int, int, int]]) -> None:
    start, end, _ = columns(intervals)
    changes = np.repeat(np.array([1, -1]), len(start))

    found = statistics(*levels(np.concatenate((start, end)), changes))

    span = int(end.max(initial=0) - start.min(initial=10**6)) if intervals else 0
    if not span:
        assert found is None
        return
    every = [
        sum(a <= ns < b for a, b in zip(start, end, strict=True))
        for ns in range(start.min(), end.max())
    ]
    assert found is not None
    assert found.lasted_ns == span
    assert found.most == max(every)
    assert np.isclose(found.mean, np.mean(every))
    assert found.p99 == sorted(every)[int(np.ceil(0.99 * span)) - 1]
