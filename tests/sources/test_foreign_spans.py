"""Spans of a foreign file: their order, the pieces in which they are given out, and how few bytes
they take.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.sources import foreign_spans, span_depths
from layerscope.sources.foreign_spans import EVER, ForeignSpans, columns_of, narrow
from layerscope.sources.imported import Imported
from layerscope.sources.span_depths import depths, ordered, put_in_order

# Track, start and duration.
SPANS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 40)), max_size=60)


def columns(spans: list[tuple[int, int, int]]) -> dict[str, np.ndarray]:
    """As a scan has them, in the order of a file."""
    track, start, dur = np.array(spans, np.int64).reshape(-1, 3).T.copy()
    return {"track": track.astype(np.int32), "time_ns": start, "duration_ns": dur}


@pytest.mark.parametrize("block_rows", [1, 3, 1 << 17])
@given(spans=SPANS)
def test_the_order_is_by_track_then_start_then_the_longer_one(
    block_rows: int, spans: list[tuple[int, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_depths, "_BLOCK_ROWS", block_rows)
        found = columns(spans)
        put_in_order(found, ordered(found["track"], found))
    rows = [tuple(row) for row in np.column_stack(list(found.values())).tolist()]
    assert rows == sorted(spans, key=lambda span: (span[0], span[1], -span[2]))


@settings(deadline=None)
@given(spans=SPANS, piece=st.integers(1, 20))
def test_every_span_is_given_once_with_what_lies_in_it(
    spans: list[tuple[int, int, int]], piece: int
) -> None:
    kept = columns(spans)
    put_in_order(kept, ordered(kept["track"], kept))
    track, start, dur = kept["track"], kept["time_ns"], kept["duration_ns"]
    content = Imported(
        start_ns=start,
        dur_ns=dur,
        track=track,
        depth=depths(track, start, start + dur),
        kind=np.zeros(len(start), np.uint8),
        name=np.arange(len(start), dtype=np.int32),
        args=np.full(len(start), -1, np.int32),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign_spans, "PIECE_SPANS", piece)
        given_out = ForeignSpans(columns_of(content), 1 + len(start))
    names: list[int] = []
    for number in range(given_out.pieces):
        earliest_ns = given_out.earliest_ns(number)
        for of_track, rows in given_out.rows(number, number + 1):
            assert set(rows["track"].tolist()) == {of_track}
            assert (rows["start"] >= earliest_ns).all()
            place = rows["name"].astype(np.int64) - 1
            assert rows["end"].tolist() == (start + dur)[place].tolist()
            names += place.tolist()
        assert len(names) == given_out.rows_until(number + 1)
    assert sorted(names) == list(range(len(start)))
    assert given_out.earliest_ns(given_out.pieces) == EVER


@given(st.lists(st.integers(-(2**62), 2**62), max_size=5), st.sampled_from([8, 31, 62]))
def test_narrow_numbers_are_the_same(values: list[int], bits: int) -> None:
    whole = np.array([value % (1 << bits) for value in values], np.int64)
    found = narrow(whole)
    assert found.tolist() == whole.tolist()
    assert found.dtype.itemsize <= {8: 1, 31: 4, 62: 8}[bits]
