"""A time stamp counter that is set back goes on where it was; one that keeps its rate is not
doubted.
"""

from __future__ import annotations

import numpy as np
import pytest

from layerscope.rawfile import dtypes, layout
from layerscope.sources.raw.ticks import Ticks, uneven

MS = 1_000_000
PER_NS = 3


def records(*rows: tuple[int, int, int]) -> np.ndarray:
    """Records of (start, end, kind)."""
    made = np.zeros(len(rows), dtypes.RECORD)
    for column, values in zip(("start", "end", "kind"), zip(*rows, strict=True), strict=True):
        made[column] = values
    return made


def moments(made: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(made["start"].tolist(), made["end"].tolist(), strict=True))


@pytest.mark.parametrize("back", [1, 10**6, 3 * 10**9 - 7])
def test_what_comes_after_the_counter_was_set_back_goes_on(back: int) -> None:
    ticks = Ticks()
    base = 3 * 10**9
    assert ticks.read(base, 0, []) == base
    assert ticks.read(base + 200 * MS * PER_NS, 200 * MS, []) == base + 200 * MS * PER_NS
    true = base + 400 * MS * PER_NS
    back += 200 * MS * PER_NS
    before, across = (true - 900, true - 800, 0), (true - 700, true - 500 - back, 0)
    waiting = records(before, across, (true - 400 - back, true - 300 - back, 0))

    assert ticks.read(true - back, 400 * MS, [waiting]) == true
    assert moments(waiting) == [before[:2], (true - 700, true - 500), (true - 400, true - 300)]
    assert ticks.set_backs == 1
    begun = (true + 30 - back, 4711, layout.THREAD_BEGIN)
    later = ticks.mended(records((true + 10 - back, true + 20 - back, 0), begun))
    assert moments(later) == [(true + 10, true + 20), (true + 30, 4711)]
    value = (5, 0, layout.EXTRA)
    assert moments(ticks.mended(records(value))) == [(5, 0)]


def test_a_counter_that_is_never_set_back_is_left_alone() -> None:
    ticks = Ticks()
    for number in range(5):
        assert ticks.read(number * 10, number * 3, []) == number * 10
    assert ticks.read(40, 12, []) == 40  # the same reading once more
    made = records((1, 2, 0))
    assert ticks.mended(made) is made
    assert (ticks.set_backs, ticks.moment(7)) == (0, 7)


def readings(rates: list[float], error_ns: int = 50) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Readings 200 ms apart, of a counter with these rates in between."""
    run_ns = np.arange(len(rates) + 1) * 200 * MS
    its = np.concatenate([[0], np.cumsum(np.array(rates) * 200 * MS)]).astype(np.int64)
    return its, run_ns, np.full(len(run_ns), error_ns)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([3.0] * 10, 0),
        ([3.0, 3.00001, 2.9999] * 4, 0),
        ([3.0] * 9 + [4.0], 1),
        ([3.0] * 6 + [2.0] * 3, 3),
        ([], 0),
    ],
)
def test_stretches_at_another_rate_are_counted(rates: list[float], expected: int) -> None:
    assert uneven(*readings(rates)) == expected


def test_a_reading_that_took_long_is_no_proof() -> None:
    assert uneven(*readings([3.0] * 9 + [3.1], error_ns=20 * MS)) == 0
