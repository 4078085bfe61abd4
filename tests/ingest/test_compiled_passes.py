"""What is compiled and what NumPy does where there was no compiler give the same, whatever they are
given.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest import parents, totals
from layerscope.ingest.autograd_links import operators_of
from layerscope.ingest.parents import Keys, TrackNesting
from layerscope.ingest.phases import last_starts
from layerscope.ingest.spans import BACKWARD
from layerscope.model import compiled as module
from layerscope.model.clocks import Conversion
from layerscope.rawfile import dtypes, layout
from layerscope.rawfile.sums import RawTotals
from layerscope.sources.process import by_field
from layerscope.sources.raw.record_spans import spans_of
from tests.ingest.without_library import without_library

LAYERS = 3


@pytest.fixture(autouse=True, scope="module")
def _library() -> None:
    if module.compiled() is None:
        pytest.skip("the library is not compiled: python3 dev.py native")


def unsigned(bits: int) -> st.SearchStrategy[int]:
    most = (1 << bits) - 1
    small = st.integers(0, 9)
    return st.one_of(small, st.integers(0, most))


KIND = st.one_of(st.integers(0, 10), st.sampled_from(range(layout.COUNTER, 256)), unsigned(8))
RECORD = st.tuples(
    unsigned(64),
    unsigned(64),
    unsigned(32),
    st.integers(-(1 << 31), (1 << 31) - 1),
    unsigned(32),
    unsigned(16),
    KIND,
    unsigned(8),
)
RECORDS = st.lists(RECORD, max_size=30).map(lambda rows: np.array(rows, dtypes.RECORD))


@given(RECORDS, st.integers(0, 5), st.booleans())
def test_spans_of_any_records_are_the_same(
    records: np.ndarray, track: int, has_other_kinds: bool
) -> None:
    kinds = np.arange(256, dtype=np.uint8)[::-1].copy() if has_other_kinds else None

    found = spans_of(records, track, kinds)
    with without_library():
        expected = spans_of(records, track, kinds)

    for name in expected.spans.dtype.names or ():
        assert found.spans[name].tolist() == expected.spans[name].tolist(), name
    columns = by_field(found.spans)
    with without_library():
        expected_columns = by_field(expected.spans)
    for name, values in expected_columns.items():
        assert columns[name].tolist() == values.tolist(), name
        assert columns[name].dtype == values.dtype
    assert found.special.tolist() == expected.special.tolist()
    assert found.track.tolist() == expected.track.tolist()
    assert found.highest_name == expected.highest_name
    assert found.is_one_track == expected.is_one_track


@given(st.lists(RECORDS, max_size=4))
def test_sums_of_any_records_are_the_same(chunks: list[np.ndarray]) -> None:
    for records in chunks:
        records["name"] %= 1 << 20  # there are no more names
        records["start"] %= 1 << 50
        records["end"] %= 1 << 50
    found, expected = RawTotals(), RawTotals()
    for records in chunks:
        found.add(records)
    with without_library():
        for records in chunks:
            expected.add(records)

    assert found.packed() == expected.packed()


READING = st.tuples(st.integers(1, 1000), st.integers(1, 1000))
MOMENT = st.one_of(st.integers(-100, 9000), st.integers(-(1 << 62), 1 << 62))


@given(
    st.lists(READING, max_size=6), st.lists(MOMENT, max_size=30), st.sampled_from([1, 977, 10**12])
)
def test_moments_on_the_clock_of_the_run_are_the_same(
    steps: list[tuple[int, int]], moments: list[int], scale: int
) -> None:
    clock, ticks, run_ns = Conversion(), 5, 7
    for more_ticks, more_ns in steps:
        ticks, run_ns = ticks + more_ticks * scale, run_ns + more_ns * scale
        clock.add(ticks, run_ns)
    rows = np.zeros(len(moments), [("before", "<i4"), ("at", "<i8")])
    rows["at"] = moments

    clock.put_on_run(rows["at"])

    with np.errstate(invalid="ignore"):  # of a moment that no whole number of ns can say
        expected = clock.to_run(np.array(moments, np.int64))
    assert rows["at"].tolist() == expected.tolist()


@given(st.lists(MOMENT, max_size=9), st.lists(MOMENT, max_size=30))
def test_the_last_start_before_each_moment_is_the_same(
    starts: list[int], moments: list[int]
) -> None:
    ascending, at = np.sort(np.array(starts, np.int64)), np.array(moments, np.int64)

    found = last_starts(ascending, at)
    with without_library():
        assert last_starts(ascending, at).tolist() == found.tolist()


SPAN = st.tuples(
    st.integers(0, 40), st.integers(0, 30), st.integers(0, 4), st.integers(0, LAYERS - 1)
)


def nested(batches: list[list[tuple[int, int, int, int]]]) -> list[list[int]]:
    """Keys, parents and self times of all batches, and what never came."""
    nesting, found = TrackNesting(Keys(), LAYERS), []
    for batch in batches:
        rows = np.array(batch, np.int64).reshape(-1, 4)
        start, dur, depth, layer = rows.T.copy()
        depth, layer = depth.astype(np.int32), layer.astype(np.int8)
        out = nesting.add(start, start + dur, depth, layer)
        found += [out.key.tolist(), out.parent.tolist(), out.self_ns.tolist()]
    nesting.finish()
    return [*found, sorted(nesting.never_came)]


@given(st.lists(st.lists(SPAN, max_size=20), max_size=4))
def test_parents_and_self_times_of_any_spans_are_the_same(
    batches: list[list[tuple[int, int, int, int]]],
) -> None:
    found = nested(batches)
    with without_library():
        assert nested(batches) == found


# What a thread does next: begin a span of a layer, end the innermost one, and whether its record
# is lost; after so many ns. Then a batch may end.
MOVE = st.tuples(
    st.one_of(st.none(), st.integers(0, LAYERS - 1)),
    st.sampled_from([False] * 9 + [True]),
    st.sampled_from([1] * 9 + [0]),
    st.sampled_from([False] * 9 + [True]),
)
Move = tuple[int | None, bool, int, bool]


def as_recorded(moves: list[Move]) -> list[list[tuple[int, int, int, int]]]:
    """The batches that a thread leaves which makes these moves, in the order of ends."""
    batches: list[list[tuple[int, int, int, int]]] = [[]]
    now_ns, open_spans = 5, []
    for layer, is_lost, after_ns, ends_batch in moves:
        now_ns += after_ns
        if layer is not None:
            open_spans.append((now_ns, layer))
        elif open_spans:
            start_ns, own = open_spans.pop()
            if not is_lost:
                batches[-1].append((start_ns, now_ns - start_ns, len(open_spans), own))
        if ends_batch:
            batches.append([])
    return batches


@given(st.lists(MOVE, max_size=120))
def test_parents_and_self_times_of_what_a_thread_records_are_the_same(moves: list[Move]) -> None:
    batches = as_recorded(moves)
    found = nested(batches)
    with without_library():
        assert nested(batches) == found


@given(st.lists(MOVE, max_size=120))
def test_spans_that_do_not_cross_are_looked_at_in_one_pass(moves: list[Move]) -> None:
    moves = [(layer, False, 1, ends_batch) for layer, _, _, ends_batch in moves]
    batches = [batch for batch in as_recorded(moves) if batch]

    with patch.object(parents, "by_depth", side_effect=AssertionError):
        assert len(nested(batches)) == 3 * len(batches) + 1


NS = st.integers(0, 1 << 40)
SUMMED = st.tuples(unsigned(62), NS, NS)


@given(st.lists(SUMMED, max_size=40), st.integers(1, 12))
def test_sums_by_key_are_the_same(rows: list[tuple[int, int, int]], bits: int) -> None:
    key, dur_ns, self_ns = np.array(rows, np.int64).reshape(-1, 3).T

    with patch.object(totals, "_PLACES_BITS", bits):
        keys, sums = totals.by_key(key, dur_ns, self_ns)
    with without_library():
        expected_keys, expected = totals.by_key(key, dur_ns, self_ns)

    assert keys.tolist() == expected_keys.tolist()
    assert sums.tolist() == expected.tolist()


SMALL = st.integers(-1, 4)
IN_GRAPH = st.tuples(
    st.integers(0, 2), SMALL, SMALL, st.integers(0, 3), st.integers(0, 20), st.integers(0, 20)
)


@given(st.lists(IN_GRAPH, max_size=60))
def test_operators_of_backward_functions_are_the_same(
    rows: list[tuple[int, int, int, int, int, int]],
) -> None:
    kind, seq, thread, track, start, dur = np.array(rows, np.int64).reshape(-1, 6).T
    columns = {
        "span": np.arange(len(rows)),
        "kind_code": kind.astype(np.uint8),
        "sequence": seq.astype(np.int32),
        "thread": thread.astype(np.int32),
        "track": track.astype(np.int32),
        "start_ns": start,
        "dur_ns": dur,
    }
    backward = np.flatnonzero(kind == BACKWARD)
    process_of = np.array([0, 0, 1, 1], np.int32)

    found = operators_of(columns, process_of, backward)
    with without_library():
        expected = operators_of(columns, process_of, backward)

    assert found.tolist() == expected.tolist()


def test_a_library_of_other_sources_is_not_called() -> None:
    with patch.object(module, "VERSION", 0):
        module.compiled.cache_clear()
        assert module.compiled() is None
    module.compiled.cache_clear()


def test_no_library_is_no_error(tmp_path: Path) -> None:
    with without_library():
        assert module.compiled() is None
