"""What called a function, and what it called: hand-computed answers."""

from __future__ import annotations

import pytest

from layerscope.analyse.stacks import callers
from layerscope.model.errors import UsageError
from tests.analyse.stacks.made import opened, sampled
from tests.recordings import Recording


def made() -> Recording:
    """`work` is called by two functions and by itself; it calls `helper` and native code."""
    a = ("python main m.py:1", "python a m.py:2")
    b = ("python main m.py:1", "python b m.py:3")
    work = "python work m.py:4"
    return sampled(
        ((*a, work), 10),
        ((*a, work, "native gemm libmkl.so"), 20),
        ((*a, work, "python helper m.py:5", "native read libc.so"), 30),
        ((*b, work, "python again m.py:6", work, "python helper m.py:5"), 100),
        ((work,), 5),
        ((*b, "python helper m.py:5"), 1000),
    )


def rows(table: str, name: str, direction: str) -> dict[str, int]:
    with opened(made()) as reader:
        found = callers.build(reader, table, name, direction).data.to_pylist()
    assert sum(row["total_share"] for row in found) == pytest.approx(1)
    return {row["name"]: row["total_ns"] for row in found}


def test_callers_have_the_time_of_the_function_that_they_called() -> None:
    expected = {"b": 100, "a": 60, "where its thread began": 5}
    assert rows("functions", "work", callers.CALLERS) == expected


def test_callees_have_the_time_that_the_function_gave_them() -> None:
    expected = {"helper": 130, "itself": 35}
    assert rows("functions", "work", callers.CALLEES) == expected


def test_a_name_may_have_its_file_and_native_functions_have_callers_too() -> None:
    assert rows("functions", "helper (m.py)", callers.CALLERS) == {"b": 1000, "work": 130}
    assert rows("symbols", "read", callers.CALLERS) == {"where its thread began": 30}
    assert rows("symbols", "gemm", callers.CALLEES) == {"itself": 20}


def test_a_function_that_is_not_there_is_a_sentence() -> None:
    with opened(made()) as reader:
        with pytest.raises(
            UsageError, match=r"no function is called 'helpr'. Did you mean 'helper'?"
        ):
            callers.build(reader, "functions", "helpr", callers.CALLERS)
        with pytest.raises(UsageError, match="waits has no --callers"):
            callers.build(reader, "waits", "work", callers.CALLERS)
