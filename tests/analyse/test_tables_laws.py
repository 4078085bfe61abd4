"""Laws of tables: sums, weights, and conditions that part them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse import tables
from tests.analyse.test_tables import opened, rows
from tests.recordings import Recording


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Up to 30 spans of 5 names, each either outermost or inside an earlier one, with children that
    fit.
    """
    recording = Recording()
    for number in range(draw(st.integers(1, 30))):
        room = [span for span in recording.rows.get("spans", []) if span["self_ns"] > 0]
        parent = draw(st.none() | st.sampled_from(room)) if room else None
        longest = parent["self_ns"] if parent else 10**10
        recording.add_span(
            draw(st.sampled_from("abcde")),
            number if parent is None else parent["start_ns"],
            draw(st.integers(0, longest)),
            parent["span"] if parent else None,
            kind=draw(st.sampled_from(["function", "backward"])),
            weight=draw(st.sampled_from([1, 1, 4])),
        )
    return recording


@settings(max_examples=25, deadline=None)
@given(recordings())
@pytest.mark.slow
def test_laws_of_operators(recording: Recording) -> None:
    spans = recording.rows["spans"]
    with opened(recording) as reader:
        plain = tables.build(reader, "operators").data.to_pylist()
        by_kind = tables.build(reader, "operators", "kind").data.to_pylist()

    assert sum(row["count"] for row in plain) == sum(span["weight"] for span in spans)
    assert sum(row["self_ns"] for row in plain) == sum(
        span["self_ns"] * span["weight"] for span in spans
    )
    assert all(0 <= row["self_ns"] <= row["total_ns"] for row in plain)
    assert all(row["min_ns"] <= row["p50_ns"] <= row["p99_ns"] <= row["max_ns"] for row in plain)
    assert all(row["min_ns"] <= row["avg_ns"] <= row["max_ns"] for row in plain)
    if any(span["self_ns"] for span in spans):
        assert sum(row["self_share"] for row in plain) == pytest.approx(1)
    assert sum(row["total_ns"] for row in by_kind) == sum(row["total_ns"] for row in plain)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), min_size=1, max_size=40))
@pytest.mark.slow
def test_a_weight_is_the_same_as_that_many_calls(calls: list[tuple[int, int]]) -> None:
    weighted, repeated = Recording(), Recording()
    for dur_ns, weight in calls:
        weighted.add_span("op", 0, dur_ns, weight=weight)
        for _ in range(weight):
            repeated.add_span("op", 0, dur_ns)

    assert rows(weighted, "operators") == rows(repeated, "operators")


@settings(max_examples=10, deadline=None)
@given(recordings(), st.integers(0, 10**9))
@pytest.mark.slow
def test_where_and_its_negation_part_the_table(recording: Recording, limit_ns: int) -> None:
    every = rows(recording, "spans", sort="start_ns")
    more = rows(recording, "spans", where=f"dur_ns > {limit_ns}")
    less = rows(recording, "spans", where=f"NOT (dur_ns > {limit_ns})")

    assert len(more) + len(less) == len(every)
    assert all(row["dur_ns"] > limit_ns for row in more)
