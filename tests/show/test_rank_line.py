"""The line about the slowest rank."""

from __future__ import annotations

import pytest

from layerscope.analyse.ranks import SlowestRank
from layerscope.show.rank_line import rank_line

MS = 1_000_000


@pytest.mark.parametrize(
    ("slowest", "expected"),
    [
        (
            SlowestRank(1, 4, 65 * MS, 0.857, 30 * MS),
            "rank 1 of 4 is the slowest: 65.0 ms of its own work in a step, 86 % more than the others; "
            "they wait 30.0 ms in a step",
        ),
        (
            SlowestRank(0, 2, 8.2 * MS, 0.2, None),
            "rank 0 of 2 is the slowest: 8.20 ms a step, 20 % more than the other; how much of it is "
            "waiting for other ranks is not known",
        ),
        (
            SlowestRank(0, 2, 5 * MS, 0.02, None),
            "steps of 2 ranks take alike: rank 0 is the slowest, with 5.00 ms; how much of it is "
            "waiting for other ranks is not known",
        ),
        (
            SlowestRank(3, 8, 5 * MS, 0.02, 0.1 * MS),
            "8 ranks work alike: rank 3 is the slowest, with 5.00 ms of its own work in a step",
        ),
    ],
)
def test_the_slowest_rank_is_named_with_what_it_costs(slowest: SlowestRank, expected: str) -> None:
    assert rank_line(slowest) == expected
