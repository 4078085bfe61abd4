"""What holds for all blocks: the live curve, the peak and the categories against sums by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyse.memory.blocks import Steps
from layerscope.analyse.memory.categories import CATEGORIES, categories_of
from layerscope.analyse.memory.grouping import grouped_by
from layerscope.analyse.memory.live_curve import live_curve, thinned_curve
from layerscope.analyse.memory.peak import peak_of, peaks_of_steps
from layerscope.analyse.memory.phases import PhaseSpans, SpansOfPhase
from layerscope.model.layers import PHASES
from tests.analyse.memory.made import blocks_of

Rows = list[tuple[int, int, int]]

MOMENTS = 60
ROWS = st.lists(
    st.tuples(st.integers(0, MOMENTS), st.integers(0, MOMENTS), st.integers(0, 100)),
    min_size=1,
    max_size=40,
)


def live_by_hand(rows: Rows, at_ns: int) -> int:
    return sum(size for start, dur, size in rows if start <= at_ns < start + dur)


def steps_of(edges: list[int]) -> Steps:
    bounds = np.array(sorted(edges), np.int64)
    number = np.arange(len(bounds) - 1)
    return Steps(number, bounds[:-1], bounds[1:], number < 0)


@given(ROWS)
def test_the_live_curve_is_the_sum_at_every_moment_and_never_negative(rows: Rows) -> None:
    curve = live_curve(blocks_of(rows))

    moments = curve.at_ns.tolist()
    assert moments == sorted(set(moments))
    assert curve.live_bytes.tolist() == [live_by_hand(rows, at_ns) for at_ns in moments]
    assert all(value >= 0 for value in curve.live_bytes.tolist())
    if len(moments):
        assert curve.live_bytes[-1] == 0


@given(ROWS)
def test_the_peak_is_the_largest_sum_and_its_blocks_add_up_to_it(rows: Rows) -> None:
    blocks = blocks_of(rows)

    peak = peak_of(blocks)

    assert peak.bytes == max(live_by_hand(rows, at_ns) for at_ns in range(2 * MOMENTS + 1))
    assert peak.bytes == blocks.bytes[peak.is_live].sum()
    assert peak.bytes == live_by_hand(rows, peak.at_ns)


@given(ROWS, st.integers(1, 30))
def test_a_thinned_curve_keeps_the_highest_point_and_invents_none(rows: Rows, most: int) -> None:
    curve = live_curve(blocks_of(rows))

    thin = thinned_curve(curve, most)

    assert len(thin.at_ns) <= max(most, 2)
    points = set(zip(curve.at_ns.tolist(), curve.live_bytes.tolist(), strict=True))
    assert points.issuperset(zip(thin.at_ns.tolist(), thin.live_bytes.tolist(), strict=True))
    if len(curve.at_ns):
        assert thin.live_bytes.max() == curve.live_bytes.max()
        assert thin.at_ns[-1] == curve.at_ns[-1]


@given(ROWS, st.sets(st.integers(0, 2 * MOMENTS), min_size=2, max_size=6))
def test_the_peak_of_a_step_is_the_largest_sum_within_it(rows: Rows, edges: set[int]) -> None:
    steps = steps_of(list(edges))

    found = peaks_of_steps(blocks_of(rows), steps).tolist()

    bounds = zip(steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)
    assert found == [max(live_by_hand(rows, at) for at in range(*bound)) for bound in bounds]


@given(
    st.lists(
        st.tuples(st.integers(-1, 3), st.sampled_from([0, 1, 1 << 40]), st.integers(0, 9)),
        min_size=1,
    )
)
def test_groups_are_those_of_a_dictionary(rows: Rows) -> None:
    first, second, value = (np.array(column, np.int64) for column in zip(*rows, strict=True))

    groups = grouped_by([first, second])

    sums: dict[tuple[int, int], list[int]] = {}
    for one, other, number in rows:
        sums.setdefault((one, other), []).append(number)
    places = groups.first
    keys = list(zip(first[places].tolist(), second[places].tolist(), strict=True))
    assert sorted(keys) == sorted(sums)
    assert groups.sums(value).tolist() == [sum(sums[key]) for key in keys]
    assert groups.counts().tolist() == [len(sums[key]) for key in keys]
    assert groups.most(value).tolist() == [max(sums[key]) for key in keys]


@given(ROWS, st.data())
def test_every_block_is_in_one_category_whatever_spans_there_are(
    rows: Rows, data: st.DataObject
) -> None:
    moments = st.lists(st.integers(0, 2 * MOMENTS), max_size=6)
    phases = data.draw(
        st.lists(st.integers(0, len(PHASES) - 1), min_size=len(rows), max_size=len(rows))
    )
    steps = steps_of(sorted({0, *data.draw(moments)}))
    blocks = blocks_of(rows, phases)

    found = categories_of(
        blocks, steps, PhaseSpans(spans(data.draw(moments)), spans(data.draw(moments)))
    )

    peak = peak_of(blocks)
    by_category = [
        int(blocks.bytes[peak.is_live & (found.category == place)].sum())
        for place in range(len(CATEGORIES))
    ]
    assert sum(by_category) == peak.bytes
    assert len(found.is_certain) == len(rows)
    # Passes do not overlap and are in order.
    passes = found.passes
    assert (passes.begin_ns <= passes.end_ns).all()
    assert (passes.end_ns[:-1] <= passes.begin_ns[1:]).all()


def spans(starts: list[int]) -> SpansOfPhase:
    start_ns = np.array(sorted(starts), np.int64)
    none = np.zeros(len(start_ns), np.int64)
    return SpansOfPhase(none, start_ns, start_ns + 3, none)
