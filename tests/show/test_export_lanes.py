"""Spans that cross get lanes of their own, whatever pieces they come in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.show.exports import trace_lanes
from layerscope.show.exports.trace_lanes import TrackLanes

Span = tuple[int, int]  # start, end
SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 15)).map(lambda span: (span[0], sum(span))),
    max_size=40,
)


def lanes_of(pieces: list[list[Span]]) -> list[list[Span]]:
    """By lane the spans in the order in which a file would hold them: the newest piece first."""
    track = TrackLanes()
    found: list[list[Span]] = []
    for number in reversed(range(len(pieces))):
        spans = sorted(pieces[number], key=lambda span: (span[0], -span[1]))
        older = max((end for piece in pieces[:number] for _, end in piece), default=-1)
        start, end = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
        lanes = track.assign(start, end, older)
        found += [[] for _ in range(int(lanes.max(initial=-1)) + 1 - len(found))]
        for span, lane in zip(spans, lanes.tolist(), strict=True):
            found[lane].append(span)
    return found


def dropped(lane: list[Span]) -> list[Span]:
    """The spans that a viewer's stack has no place for; it sorts by start alone."""
    stack: list[int] = []
    lost = []
    for start, end in sorted(lane, key=lambda span: span[0]):
        while stack and stack[-1] <= start:
            stack.pop()
        if stack and end > stack[-1]:
            lost.append((start, end))
        else:
            stack.append(end)
    return lost


def cut(spans: list[Span], cuts: list[int]) -> list[list[Span]]:
    borders = sorted({0, len(spans), *(at for at in cuts if at < len(spans))})
    return [spans[a:b] for a, b in pairwise(borders)]


@settings(max_examples=300, deadline=None)
@given(SPANS, st.lists(st.integers(1, 39), max_size=4))
def test_no_lane_holds_spans_that_cross_and_no_span_is_lost(
    spans: list[Span], cuts: list[int]
) -> None:
    lanes = lanes_of(cut(sorted(spans, key=lambda span: span[1]), cuts))

    assert sorted(span for lane in lanes for span in lane) == sorted(spans)
    assert [dropped(lane) for lane in lanes] == [[] for _ in lanes]


@settings(max_examples=300, deadline=None)
@given(SPANS, st.lists(st.integers(1, 39), max_size=4))
def test_it_holds_for_pieces_that_do_not_follow_each_other_in_time_too(
    spans: list[Span], cuts: list[int]
) -> None:
    assert all(dropped(lane) == [] for lane in lanes_of(cut(spans, cuts)))


@settings(max_examples=500, deadline=None)
@given(SPANS, st.data())
def test_a_depth_is_a_hint_and_changes_nothing(spans: list[Span], data: st.DataObject) -> None:
    spans.sort(key=lambda span: (span[0], -span[1]))
    start, end = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
    right = [
        sum(behind > start for _, behind in spans[:number])
        for number, (start, _) in enumerate(spans)
    ]
    wrong = data.draw(st.lists(st.integers(0, 4), min_size=len(spans), max_size=len(spans)))
    none_long_ago = np.iinfo(np.int64).min
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_lanes, "_AT_ONCE", data.draw(st.integers(1, 12)))
        wanted = TrackLanes().assign(start, end, none_long_ago).tolist()
        for depth in (right, wrong):
            assert (
                TrackLanes().assign(start, end, none_long_ago, np.array(depth, np.int32)).tolist()
                == wanted
            )


def test_that_spans_nest_is_seen_from_their_depths() -> None:
    spans = [(0, 10), (1, 5), (2, 3), (3, 5), (5, 9), (6, 7), (20, 20)]
    start, end = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))

    assert trace_lanes._nest(start, end, np.array([0, 1, 2, 2, 1, 2, 0], np.int32))
    assert not trace_lanes._nest(start, end, np.array([0, 1, 2, 2, 0, 2, 0], np.int32))
    assert not trace_lanes._nest(start, end, np.array([0, 1, 2, 3, 1, 2, 0], np.int32))


@settings(max_examples=300, deadline=None)
@given(SPANS, st.lists(st.integers(1, 39), max_size=4))
def test_spans_that_nest_stay_on_one_lane(spans: list[Span], cuts: list[int]) -> None:
    nested: list[Span] = []
    for start, end in spans:
        if all(
            end <= a or start >= b or (a <= start and end <= b) or (start <= a and b <= end)
            for a, b in nested
        ):
            nested.append((start, end))

    assert len(lanes_of(cut(sorted(nested, key=lambda span: span[1]), cuts))) <= 1


def test_of_two_spans_that_cross_the_later_one_leaves() -> None:
    assert lanes_of([[(0, 10), (5, 15), (6, 8)]]) == [[(0, 10), (6, 8)], [(5, 15)]]


def test_a_chain_of_spans_hidden_behind_each_other_is_taken_apart() -> None:
    lanes = lanes_of([[(0, 10), (5, 20), (6, 18), (7, 16), (8, 9)]])

    assert lanes == [[(0, 10), (8, 9)], [(5, 20), (6, 18), (7, 16)]]


def test_many_spans_that_all_cross_each_other_get_as_many_lanes() -> None:
    assert [
        len(lane) for lane in lanes_of([[(number, 1000 + number) for number in range(300)]])
    ] == [1] * 300
