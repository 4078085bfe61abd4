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
    *[SMALL] * 6, *[st.integers(-(10**12), 10**15)] * 2, st.integers(1, 9), st.sets(SMALL)
)
COLUMNS = ("track", "kind", "name", "layer", "module", "phase")
Sums = dict[tuple[int, ...], tuple[int, ...]]


def sums_of(groups: SpanGroups) -> Sums:
    """By what spans have in common their self time, their number and their duration."""
    found: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    common = [groups.columns[name] for name in COMMON if name in groups.columns]
    amounts = (groups.self_ns, groups.calls, groups.dur_ns)
    columns = (*common, groups.measured, groups.in_step, *amounts)
    for *key, self_ns, calls, dur_ns in zip(*(column.tolist() for column in columns), strict=True):
        sums = found[tuple(key)]
        sums[:] = sums[0] + self_ns, sums[1] + calls, sums[2] + dur_ns
    return {key: tuple(sums) for key, sums in found.items()}


@given(st.lists(SPAN, max_size=60), st.sets(st.sampled_from(["module", "phase", "dur_ns"])))
def test_groups_have_the_sums_of_their_spans(
    rows: list[tuple[Any, ...]], left_out: set[str]
) -> None:
    *columns, self_ns, dur_ns, weight, flags = zip(*rows, strict=True) if rows else [()] * 10
    spans = {
        name: np.array(values, np.int32) for name, values in zip(COLUMNS, columns, strict=True)
    }
    spans |= {"self_ns": np.array(self_ns, np.int64), "dur_ns": np.array(dur_ns, np.int64)}
    spans |= {"weight": np.array(weight, np.int32), "name.names": np.array(["a", "b"], object)}
    for name in left_out:
        del spans[name]
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
