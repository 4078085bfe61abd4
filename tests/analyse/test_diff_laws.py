"""Laws of `diff`: nothing changed against itself, mirrored when turned round."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyse.test_diff import NO_SHRINK, OPPOSITE, looped, noisy, rows
from tests.recordings import MS, Recording


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    names = st.sampled_from(["mm", "add", "relu", "a b", "ü"])
    operators = st.dictionaries(names, st.integers(0, 10**6), max_size=4)
    steps = draw(st.lists(operators, min_size=0, max_size=9))
    return looped(steps, warmup=draw(st.integers(0, 2)))


@pytest.mark.slow
@settings(max_examples=25, deadline=None, phases=NO_SHRINK)
@given(recordings(), st.sampled_from(["mean", "median"]))
def test_a_recording_does_not_differ_from_itself(recording: Recording, statistic: str) -> None:
    found = rows(recording, recording, statistic=statistic)

    assert {row["verdict"] for row in found} <= {"no measurable difference", "not repeated"}
    assert all(row["change_ns"] == 0 for row in found)
    assert all(
        row["change_low_ns"] <= 0 <= row["change_high_ns"]
        for row in found
        if row["change_low_ns"] is not None
    )


@pytest.mark.slow
@settings(max_examples=25, deadline=None, phases=NO_SHRINK)
@given(recordings(), recordings(), st.sampled_from(["mean", "median"]))
def test_a_comparison_mirrors_its_reverse(a: Recording, b: Recording, statistic: str) -> None:
    forth = {(row["what"], row["name"]): row for row in rows(a, b, statistic=statistic)}
    back = {(row["what"], row["name"]): row for row in rows(b, a, statistic=statistic)}

    assert forth.keys() == back.keys()
    for key, row in forth.items():
        other = back[key]
        assert row["verdict"] == OPPOSITE[other["verdict"]]
        assert (row["a_ns"], row["b_ns"], row["change_ns"]) == (
            other["b_ns"],
            other["a_ns"],
            -other["change_ns"],
        )
        for limit, opposite in (
            ("change_low_ns", "change_high_ns"),
            ("change_high_ns", "change_low_ns"),
        ):
            assert row[limit] == (None if other[opposite] is None else -other[opposite])


def test_a_slow_operator_among_milliseconds_of_noise_is_found() -> None:
    a, b = noisy(MS, 5), noisy(1.2 * MS, 6)

    assert [row["verdict"] for row in rows(a, b, "operators")] == ["slower"]
