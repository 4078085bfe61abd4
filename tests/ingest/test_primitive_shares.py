"""Shares of primitives on other threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.primitive_shares import Executions, find_primaries

Row = tuple[int, int, int, str, bool]


def executions(rows: list[Row], main: int = 1) -> Executions:
    """From (track, start, end, name, bare)."""
    names = sorted({row[3] for row in rows})
    return Executions(
        track=np.array([row[0] for row in rows], np.int32),
        start_ns=np.array([row[1] for row in rows], np.int64),
        end_ns=np.array([row[2] for row in rows], np.int64),
        name=np.array([names.index(row[3]) for row in rows], np.int32),
        is_bare=np.array([row[4] for row in rows], np.bool_),
        main_track=main,
    )


def test_what_a_worker_runs_within_the_same_primitive_is_a_share() -> None:
    rows = [
        (1, 100, 200, "convolution", False),
        (2, 110, 190, "convolution", True),
        (1, 210, 250, "reorder", False),
        (2, 215, 250, "reorder", True),
        (2, 300, 400, "convolution", True),  # nobody asked for it meanwhile: its own
    ]
    assert find_primaries(executions(rows)).tolist() == [-1, 0, -1, 2, -1]


def test_another_name_or_a_part_outside_is_no_share() -> None:
    rows = [
        (1, 100, 200, "convolution", False),
        (2, 110, 190, "reorder", True),
        (2, 195, 205, "convolution", True),
    ]
    assert find_primaries(executions(rows)).tolist() == [-1, -1, -1]


def test_a_thread_with_operators_has_no_shares() -> None:
    rows = [(1, 100, 200, "matmul", False), (2, 110, 190, "matmul", False)]
    assert find_primaries(executions(rows)).tolist() == [-1, -1]


def test_the_main_thread_of_a_program_without_operators_asks() -> None:
    rows = [
        (2, 110, 190, "matmul", True),
        (1, 100, 200, "matmul", True),
        (3, 120, 130, "matmul", True),
    ]
    assert find_primaries(executions(rows)).tolist() == [1, -1, 1]


def test_a_pool_belongs_to_one_thread() -> None:
    """Two threads ask at the same time: a worker serves the one in whose primitives it lies most
    often.
    """
    rows: list[Row] = []
    for at in (1_000, 2_000, 3_000):
        rows += [(2, at, at + 100, "conv", False), (12, at + 10, at + 90, "conv", True)]
    rows += [
        (3, 2_005, 2_200, "conv", False),
        (13, 2_006, 2_150, "conv", True),
        (13, 2_160, 2_190, "conv", True),
    ]
    found = find_primaries(executions(rows))
    assert found.tolist() == [-1, 0, -1, 2, -1, 4, -1, 6, 6]


def test_threads_of_a_pool_that_ask_and_work_in_turns() -> None:
    rows = [
        (5, 100, 200, "conv", True),
        (6, 110, 150, "conv", True),
        (6, 300, 400, "conv", True),
        (5, 310, 350, "conv", True),
    ]
    assert find_primaries(executions(rows)).tolist() == [-1, 0, -1, 2]


@st.composite
def teams(draw: st.DrawFn) -> tuple[list[Row], list[int]]:
    """Threads that ask one after the other, each with workers of its own, and what is whose
    share.
    """
    rows: list[Row] = []
    truth: list[int] = []
    for asker in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, 50))
        for _ in range(draw(st.integers(1, 5))):
            length = draw(st.integers(10, 60))
            name = draw(st.sampled_from(("conv", "reorder")))
            # What runs at the same time has other names for each asker, so that the answer is
            # certain.
            rows.append((1 + asker, at, at + length, f"{name}{asker}", False))
            truth.append(-1)
            primary = len(rows) - 1
            for worker in range(draw(st.integers(0, 3))):
                begin = draw(st.integers(at, at + length))
                end = draw(st.integers(begin, at + length))
                rows.append((10 * (1 + asker) + worker, begin, end, f"{name}{asker}", True))
                truth.append(primary)
            at += length + draw(st.integers(1, 9))
    return rows, truth


@given(teams())
@pytest.mark.slow
def test_shares_of_teams_are_found(case: tuple[list[Row], list[int]]) -> None:
    rows, truth = case
    assert find_primaries(executions(rows)).tolist() == truth


@given(teams(), st.randoms())
def test_the_order_of_rows_does_not_matter(
    case: tuple[list[Row], list[int]], random: st.DataObject
) -> None:
    rows, truth = case
    order = list(range(len(rows)))
    random.shuffle(order)  # type: ignore[attr-defined]
    place = {old: new for new, old in enumerate(order)}
    found = find_primaries(executions([rows[at] for at in order]))
    assert found.tolist() == [place.get(truth[at], -1) for at in order]
