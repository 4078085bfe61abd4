"""Calls of GPUs found by their numbers, however many came before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest import device_work


@pytest.mark.parametrize("most_runs", [1, 3, 31])
@given(st.lists(st.lists(st.integers(-30, 30), max_size=6), max_size=12))
def test_of_rows_with_the_same_number_the_first_that_came_counts(
    most_runs: int, pieces: list[list[int]]
) -> None:
    known = device_work._Known(2)
    first: dict[int, int] = {}
    came = 0
    wanted = np.arange(-31, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_work, "_MOST_RUNS", most_runs)
        for piece in pieces:
            for number in piece:
                first.setdefault(number, came)
                came += 1
            if piece:
                known.add(np.array(piece), np.arange(came - len(piece), came))
            rows, is_there = known.find(wanted)
            assert {int(one) for one in wanted[is_there]} == set(first)
            assert {int(number): int(row) for number, row in rows[is_there]} == first
