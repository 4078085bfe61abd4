"""All spans of a recording as a block of columns, by track and start.

What many spans have in common stands once: a class is a name with its kind, layer, module and line.
The page works out for itself what follows from the order: parents, and self times but for those
of `self_exceptions`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from layerscope.analyse.ordered_spans import (
    OrderedSpans,
    SpanClasses,
    about_spans,
    phase_numbers,
)
from layerscope.analyse.self_times import nested_parents, nested_self_ns
from layerscope.recording.reader import Reader
from layerscope.show.report.blocks import DELTA, Block, IntColumn, column_block, json_block


class SpanBlocks(Struct, frozen=True):
    """The blocks, and the keys of the spans in the order of the page: what links name."""

    blocks: list[Block]
    keys: np.ndarray


def span_blocks(reader: Reader, origin_ns: int) -> SpanBlocks:
    """The spans of `reader`'s recording; times count from `origin_ns`."""
    spans = OrderedSpans(reader)
    start_ns = spans.start_ns - origin_ns
    classes = SpanClasses(spans)
    about = about_spans(spans, classes)
    about["self_exceptions"] = _self_exceptions(spans)
    times = column_block("spans", _times(spans, start_ns, about["begins"], classes))
    details = column_block("span_details", _details(spans))
    blocks = [json_block("span_classes", about), times, details]
    return SpanBlocks(blocks, spans.column("span"))


def _times(
    spans: OrderedSpans, start_ns: np.ndarray, begins: list[int], classes: SpanClasses
) -> Iterator[IntColumn]:
    yield IntColumn("start", _from_neighbour(start_ns, begins))
    yield IntColumn("dur", spans.column("dur_ns"))
    yield IntColumn("class", classes.of_span)
    yield IntColumn("depth", spans.depth)
    yield IntColumn("step", spans.column("step") + 1, DELTA)


def _details(spans: OrderedSpans) -> Iterator[IntColumn]:
    yield IntColumn("phase", phase_numbers(spans))
    yield IntColumn("args", spans.column("args") + 1, DELTA)
    yield IntColumn("weight", spans.column("weight"))


def _from_neighbour(start_ns: np.ndarray, begins: list[int]) -> np.ndarray:
    """The difference to the span before on the same track; the first one of each has its start."""
    difference = np.diff(start_ns, prepend=0)
    difference[begins] = start_ns[begins]
    return difference


def _self_exceptions(spans: OrderedSpans) -> list[list[int]]:
    """[row, self_ns] where the self time does not follow from the order, depths and layers."""
    dur_ns = spans.column("dur_ns")
    parent = nested_parents(spans.track, spans.depth, spans.start_ns, dur_ns)
    derived = nested_self_ns(parent, dur_ns, spans.column("layer"))
    self_ns = spans.column("self_ns")
    rows = np.flatnonzero(derived != self_ns)
    pairs = np.column_stack((rows, self_ns[rows]))
    found: list[list[int]] = pairs.tolist()
    return found
