"""Laws of parents and self time, on random threads cut into random batches."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.parents import Keys, TrackNesting
from tests.ingest.threads import Span, threads

LAYERS = 3


def nest(spans: list[Span], borders: list[int], layer: dict[int, int] | None = None) -> None:
    """Fill in key, told parent and self time of every span that was not lost; `layer` of a span by
    its start.
    """
    nesting = TrackNesting(Keys(), layers=LAYERS if layer else 1)
    of = layer or {}
    before = -1
    for border in borders:
        batch = sorted(
            (s for s in spans if before < s.end <= border and not s.lost), key=lambda span: span.end
        )
        before = border
        nested = nesting.add(
            np.array([span.start for span in batch], np.int64),
            np.array([span.end for span in batch], np.int64),
            np.array([span.depth for span in batch], np.int32),
            np.array([of.get(span.start, 0) for span in batch], np.int8),
        )
        for i, span in enumerate(batch):
            span.key, span.told, span.self_ns = (
                int(nested.key[i]),
                int(nested.parent[i]),
                int(nested.self_ns[i]),
            )
    nesting.finish()
    for span in spans:
        if span.told in nesting.never_came:
            span.told = -1


def told(spans: list[Span]) -> list[Span]:
    recorded = [span for span in spans if not span.lost]
    assert len({span.key for span in recorded}) == len(recorded), "a key was given twice"
    return recorded


@given(threads())
def test_parents_and_self_times_are_the_truth_wherever_the_batches_end(
    thread: tuple[list[Span], list[int]],
) -> None:
    spans, borders = thread
    nest(spans, borders)

    for span in told(spans):
        assert span.told == (span.parent.key if span.parent else -1)
        assert span.self_ns == span.end - span.start - sum(
            child.end - child.start for child in span.children
        )
    outermost = sum(span.end - span.start for span in spans if not span.parent)
    assert sum(span.self_ns for span in spans) == outermost


def inside(span: Span, layer: dict[int, int], of: int) -> int:
    """The time of the nearest spans of the layer `of` in `span`."""
    return sum(
        c.end - c.start if layer[c.start] == of else inside(c, layer, of) for c in span.children
    )


@given(threads(), st.randoms(use_true_random=False))
def test_self_time_leaves_out_the_nearest_spans_of_the_same_layer(
    thread: tuple[list[Span], list[int]], random: Random
) -> None:
    spans, borders = thread
    layer = {span.start: random.randrange(LAYERS) for span in spans}
    nest(spans, borders, layer)

    for span in told(spans):
        assert span.told == (span.parent.key if span.parent else -1)
        assert span.self_ns == span.end - span.start - inside(span, layer, layer[span.start])


@given(st.one_of(threads(disorder=True), threads(losses=True)), st.randoms(use_true_random=False))
def test_layers_keep_self_time_within_the_span_whatever_is_lost_or_crosses(
    thread: tuple[list[Span], list[int]], random: Random
) -> None:
    spans, borders = thread
    layer = {span.start: random.randrange(LAYERS) for span in spans}
    nest(spans, borders, layer)

    for span in told(spans):
        assert span.told in (-1, span.parent.key if span.parent else -1)
        assert 0 <= span.self_ns <= span.end - span.start


@given(threads(disorder=True))
def test_parents_are_the_truth_for_spans_that_end_out_of_order_or_elsewhere(
    thread: tuple[list[Span], list[int]],
) -> None:
    spans, borders = thread
    nest(spans, borders)

    for span in told(spans):
        assert span.told == (span.parent.key if span.parent else -1)
        assert 0 <= span.self_ns <= span.end - span.start


def ancestors(span: Span) -> list[Span]:
    """The spans around it, from the inside outwards."""
    return [span.parent, *ancestors(span.parent)] if span.parent else []


def covered(spans: list[Span]) -> int:
    """The time in which at least one of the spans was open."""
    total = until = 0
    for span in sorted(spans, key=lambda span: span.start):
        total += max(span.end - max(span.start, until), 0)
        until = max(until, span.end)
    return total


@given(threads(disorder=True))
def test_self_times_of_spans_that_cross_add_up_to_the_time_in_which_any_was_open(
    thread: tuple[list[Span], list[int]],
) -> None:
    """What a span outlives its parent by lies in the next one around."""
    spans, borders = thread
    nest(spans, borders[-1:])
    assert sum(span.self_ns for span in spans) == covered(spans)
    nest(spans, borders)
    # What went with an earlier batch does not learn of a span in it that outlives it; nobody else
    # pays for that.
    late = sum(
        max(around.end - span.start, 0)
        for span in spans
        for around in ancestors(span)
        if any(around.end <= border < span.end for border in borders)
    )
    assert covered(spans) <= sum(span.self_ns for span in spans) <= covered(spans) + late


@given(st.one_of(threads(losses=True), threads(disorder=True, losses=True)))
def test_after_a_loss_nobody_gets_a_wrong_parent(thread: tuple[list[Span], list[int]]) -> None:
    spans, borders = thread
    nest(spans, borders)

    for span in told(spans):
        assert span.told in (-1, span.parent.key if span.parent else -1)
        assert 0 <= span.self_ns <= span.end - span.start


@given(threads(losses=True))
def test_after_a_loss_a_parent_that_was_recorded_is_found(
    thread: tuple[list[Span], list[int]],
) -> None:
    """Unless its children came before it, behind those of a lost span of its level: then nobody can
    tell.
    """
    spans, borders = thread
    nest(spans, borders)

    for span in told(spans):
        parent = span.parent
        if parent is None or parent.lost or span.told == parent.key:
            continue
        assert span.told == -1
        assert any(
            other.lost and other.depth == parent.depth and other.end < parent.start
            for other in spans
        )
        assert any(span.end <= border < parent.end for border in borders)


@given(threads(losses=True))
def test_self_time_leaves_out_what_is_known_of_the_children(
    thread: tuple[list[Span], list[int]],
) -> None:
    """The time of a lost span stays with the nearest recorded span around it, less what was
    recorded in it.
    """
    spans, borders = thread

    def known_inside(span: Span) -> int:
        return sum(known_inside(c) if c.lost else c.end - c.start for c in span.children)

    nest(spans, borders)
    for span in told(spans):
        assert span.end - span.start - known_inside(span) <= span.self_ns <= span.end - span.start
    nest(spans, borders[-1:])
    for span in told(spans):
        assert span.self_ns == span.end - span.start - known_inside(span)


def test_a_batch_may_be_empty() -> None:
    nothing = np.zeros(0, np.int64)
    nested = TrackNesting(Keys()).add(nothing, nothing, nothing)

    assert len(nested.key) == len(nested.parent) == len(nested.self_ns) == 0


@given(st.lists(threads(), min_size=2, max_size=4))
def test_tracks_share_the_keys_and_nothing_else(
    several: list[tuple[list[Span], list[int]]],
) -> None:
    keys = Keys()
    nestings = [TrackNesting(keys) for _ in several]
    seen: list[int] = []
    for border in sorted({border for _, borders in several for border in borders}):
        for nesting, (spans, borders) in zip(nestings, several, strict=True):
            if border not in borders:
                continue
            before = max([earlier for earlier in borders if earlier < border], default=-1)
            batch = sorted(
                (span for span in spans if before < span.end <= border), key=lambda span: span.end
            )
            columns = [
                np.array([getattr(span, name) for span in batch])
                for name in ("start", "end", "depth")
            ]
            nested = nesting.add(*(column.astype(np.int64) for column in columns))
            for i, span in enumerate(batch):
                span.key, span.told = int(nested.key[i]), int(nested.parent[i])
            seen += nested.key.tolist()

    assert len(set(seen)) == len(seen)
    for spans, _ in several:
        assert all(span.told == (span.parent.key if span.parent else -1) for span in spans)


def test_time_behind_a_parent_that_is_gone_lies_in_no_span_that_began_later() -> None:
    """The third outlives the second, which went with an earlier batch, and ends before the late one
    begins; that has not ended yet when the third comes.
    """

    def span(start: int, end: int, depth: int, parent: Span | None) -> Span:
        made = Span(start, depth, parent)
        made.end = end
        return made

    outermost = span(0, 100, 0, None)
    first = span(5, 12, 1, outermost)
    second = span(8, 30, 2, first)
    third = span(10, 60, 3, second)
    late = span(65, 95, 1, outermost)
    inside_late = span(70, 78, 2, late)

    nest([outermost, first, second, third, late, inside_late], [30, 80, 100])
    assert late.self_ns == 30 - 8
    assert outermost.self_ns == 100 - (60 - 5) - 30
