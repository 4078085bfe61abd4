"""Groups of spans have the sums of their spans, compiled or not."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyse.span_groups import COMMON, SpanGroups, grouped
from tests.ingest.without_library import without_library

SMALL = st.integers(-1, 3)
SPAN = st.tuples(
    SMALL, SMALL, SMALL, SMALL, st.integers(-(10**12), 10**15), st.integers(1, 9), st.sets(SMALL)
)
COLUMNS = ("track", "kind", "name", "module")
Sums = dict[tuple[int, ...], tuple[int, int]]


def sums_of(groups: SpanGroups) -> Sums:
    """By what spans have in common their self time and their number."""
    found: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0])
    common = [groups.columns[name] for name in COMMON if name in groups.columns]
    columns = (*common, groups.measured, groups.in_step, groups.self_ns, groups.calls)
    for *key, self_ns, calls in zip(*(column.tolist() for column in columns), strict=True):
        found[tuple(key)][0] += self_ns
        found[tuple(key)][1] += calls
    return {key: (self_ns, calls) for key, (self_ns, calls) in found.items()}


@given(st.lists(SPAN, max_size=60), st.booleans())
def test_groups_have_the_sums_of_their_spans(
    rows: list[tuple[Any, ...]], has_modules: bool
) -> None:
    *columns, self_ns, weight, flags = zip(*rows, strict=True) if rows else [()] * 7
    spans = {
        name: np.array(values, np.int32) for name, values in zip(COLUMNS, columns, strict=True)
    }
    if not has_modules:
        del spans["module"]
    spans |= {"layer": spans["kind"] + 1, "name.names": np.array(["a", "b"], object)}
    spans |= {"self_ns": np.array(self_ns, np.int64), "weight": np.array(weight, np.int32)}
    measured = np.array([0 in one for one in flags], np.bool_)
    in_step = np.array([1 in one for one in flags], np.bool_)

    found = grouped(spans, measured, in_step)
    with without_library():
        expected = grouped(spans, measured, in_step)

    assert sums_of(found) == sums_of(expected)
    assert found.columns["name.names"] is spans["name.names"]


def test_more_groups_than_there_is_room_for() -> None:
    count = 10_000
    numbers = np.arange(count, dtype=np.int32)
    ones = np.ones(count, np.int32)
    spans = dict.fromkeys(("track", "kind", "layer"), ones) | {"name": numbers, "weight": ones}
    spans["self_ns"] = numbers.astype(np.int64)

    found = grouped(spans, ones > 0, ones > 1)

    assert sorted(found.columns["name"].tolist()) == numbers.tolist()
    assert found.self_ns.tolist() == found.columns["name"].tolist()
