"""What of a flame graph is drawn, the lines of operators, and laws about whole recordings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse.stacks import flame_layout, graphs
from layerscope.analyse.stacks.flame_layout import Drawn
from layerscope.analyse.stacks.frame_filter import layers_called
from layerscope.analyse.stacks.graphs import Look
from layerscope.analyse.stacks.innermost import lines_of_operators
from layerscope.analyse.stacks.sample_reader import Choice
from layerscope.model.errors import UsageError
from layerscope.model.layers import WAITS
from tests.analyse.stacks.made import (
    MAIN,
    compared,
    graph_of,
    many,
    opened,
    partly_in_kernel,
    random_recording,
    sampled,
    stacks_of,
)
from tests.recordings import MS, Recording

# --- what is drawn ---------------------------------------------------------------------------


def wide(count: int) -> Recording:
    return sampled(*(((f"python f{number} a.py:1",), 1 + number % 7) for number in range(count)))


def check_layout(made: Drawn) -> None:
    for place, parent in enumerate(made.parent.tolist()):
        low, high = (
            (made.start[parent], made.start[parent] + made.total[parent])
            if parent >= 0
            else (0, made.whole)
        )
        assert parent < place
        assert low <= made.start[place]
        assert made.start[place] + made.total[place] <= high


def test_siblings_are_drawn_the_heaviest_first() -> None:
    made = flame_layout.draw(
        graph_of(
            sampled((("python a x.py:1",), 1), (("python b x.py:1",), 5), (("python c x.py:1",), 3))
        )
    )

    order = np.argsort(made.start)
    assert made.total[order].tolist() == [5, 3, 1]
    assert made.start[order].tolist() == [0, 5, 8]
    check_layout(made)


def test_what_is_too_thin_is_counted_and_not_drawn() -> None:
    recording = sampled(
        (("python big x.py:1",), 12_000 * 100), (("python small x.py:1", "python inner x.py:2"), 99)
    )
    made = flame_layout.draw(graph_of(recording))
    assert (len(made.node), made.left_out) == (1, 1)

    recording = sampled(
        (("python big x.py:1",), 12_000 * 100 - 100), (("python small x.py:1",), 100)
    )
    made = flame_layout.draw(graph_of(recording))
    assert (len(made.node), made.left_out, made.thinnest_px) == (2, 0, pytest.approx(0.1))


def test_there_are_never_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flame_layout, "MOST_DRAWN", 50)
    made = flame_layout.draw(graph_of(wide(100)))

    assert len(made.node) <= 50
    assert len(made.node) + made.left_out == 100
    assert made.thinnest_px > 0.1
    check_layout(made)


def test_the_rows_of_a_tree_add_up() -> None:
    graph = graph_of(many())
    table = flame_layout.table(graph)

    assert sum(table.data["own_ns"].to_pylist()) == graph.whole == (1 << 24) - 1
    roots = [row for row in table.data.to_pylist() if row["parent"] is None]
    assert sum(row["total_ns"] for row in roots) == graph.whole
    assert {row["layer"] for row in table.data.to_pylist()} == {"python", "modules", "operators"}


@pytest.mark.parametrize("by", [None, "thread"])
def test_a_sample_that_was_partly_in_the_kernel_counts_once_in_every_frame(by: str | None) -> None:
    graph = graph_of(partly_in_kernel(100), Look(by=by))

    assert graph.tree.whole().tolist() == [1000 * MS, 100]
    made = flame_layout.draw(graph)
    found = {
        graph.frames[frame].label: count
        for frame, count in zip(made.frame.tolist(), made.count.tolist(), strict=True)
    }
    assert (found["main (train.py)"], found["f (a.py)"], found["g (a.py)"], found["[kernel]"]) == (
        100,
        50,
        50,
        50,
    )


def test_of_a_comparison_a_sample_that_was_partly_in_the_kernel_is_one() -> None:
    # 28 samples more: less than 1.96 times the root of 228, and more than that of 114.
    graph = compared(partly_in_kernel(128), partly_in_kernel(100))

    assert not flame_layout.draw(graph).sure.any()


# --- lines of operators ----------------------------------------------------------------------


def test_operators_get_the_lines_that_their_samples_came_from() -> None:
    recording = Recording()
    for line, count in ((5, 2), (9, 3)):
        for tail in ((), ("operators aten::mm", "native gemm libmkl.so")):
            stack = recording.add_stack(
                *MAIN, f"python f a.py:{line}", "modules Net", "operators aten::linear", *tail
            )
            for _ in range(count):
                recording.add_sample(stack)
    recording.add_sample(recording.add_stack("native clone libc.so", "operators AddBackward0"))
    python_inside = recording.add_stack(
        *MAIN, "operators Custom", "python backward c.py:3", "operators aten::exp"
    )
    recording.add_sample(python_inside)
    recording.add_sample(recording.add_stack(*MAIN, "operators aten::wait"), kind="offcpu")
    stack = recording.add_stack(
        *MAIN, "operators Custom", "python again c.py:4", "operators Custom"
    )
    for _ in range(9):
        recording.add_sample(stack)

    with opened(recording) as reader:
        of_module = {"a.py:5": 20_000_000, "a.py:9": 30_000_000}
        custom, exp = {"train.py:5": 100_000_000}, {"c.py:3": 10_000_000}
        of_both = {line: 2 * time_ns for line, time_ns in of_module.items()}
        assert lines_of_operators(reader) == {
            ("aten::linear", "Net"): of_both, ("aten::mm", "Net"): of_module, ("Custom", ""): custom,
            ("aten::exp", ""): exp, ("aten::linear", "*"): of_both, ("aten::mm", "*"): of_module,
            ("Custom", "*"): custom, ("aten::exp", "*"): exp,
        }  # fmt: skip
    with opened(Recording()) as reader:
        assert lines_of_operators(reader) == {}


def test_the_line_of_an_operator_is_the_program_s_own_if_one_is_around_it() -> None:
    recording = Recording()
    library = "/env/lib/python3.11/site-packages/torch/nn/functional.py"
    recording.add_sample(
        recording.add_stack(*MAIN, f"python relu {library}:7", "operators aten::relu")
    )
    recording.add_sample(recording.add_stack(f"python relu {library}:7", "operators aten::add"))

    with opened(recording) as reader:
        lines = {key: list(times_ns) for key, times_ns in lines_of_operators(reader).items()}
        assert lines == {
            ("aten::relu", ""): ["train.py:5"], ("aten::add", ""): [f"{library}:7"],
            ("aten::relu", "*"): ["train.py:5"], ("aten::add", "*"): [f"{library}:7"],
        }  # fmt: skip


# --- laws ------------------------------------------------------------------------------------

FRAME = st.sampled_from(
    ["python f a.py:1", "python f a.py:2", "python g a.py:9", "modules Net", "operators aten::mm", "native n libn.so",
     "native m libm.so", "kernel kernel", "primitives gemm"]
)  # fmt: skip
SAMPLE = st.tuples(
    st.none() | st.lists(FRAME, min_size=1, max_size=6).map(tuple), st.integers(1, 10**10),
    st.sampled_from(["cpu", "offcpu", "fault"]), st.sampled_from(WAITS), st.booleans(),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.lists(SAMPLE, min_size=1, max_size=25), st.sampled_from([None, "all", "python", "native", "modules,operators"]),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_whatever_is_shown_the_whole_is_that_of_the_table(
    samples: list[Any], layers: str | None, inverted: bool, by_line: bool, idle: bool
) -> None:
    recording = random_recording(samples)
    rows = [row for row in recording.rows["samples"] if idle or not row["idle"]]
    sums = {
        kind: sum(row["weight_ns"] for row in rows if row["kind"] == kind)
        for kind in ("cpu", "offcpu")
    }
    sums["wall"] = sums["cpu"] + sums["offcpu"]
    sums["pagefaults"] = sum(row["count"] for row in rows if row["kind"] == "fault")
    with opened(recording) as reader:
        for kind, wanted in sums.items():
            look = Look(kind, Choice(idle=idle), layers_called(layers), by_line, inverted)
            if not wanted:
                with pytest.raises(UsageError, match="nothing of kind"):
                    graphs.build(reader, look)
                continue
            graph = graphs.build(reader, look)
            assert graph.whole == wanted
            made = flame_layout.draw(graph)
            assert made.whole == wanted
            assert made.total[made.parent < 0].sum() <= wanted
            check_layout(made)
            if not inverted:
                assert {one.file for one in graph.frames if one.layer == 0} <= {"a.py"}


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(SAMPLE, min_size=1, max_size=20), st.lists(SAMPLE, min_size=1, max_size=20))
def test_each_side_of_a_comparison_is_what_it_is_alone(one: list[Any], other: list[Any]) -> None:
    for side in (one, other):
        side.append((("python f a.py:1",), 5, "cpu", "gil", False))
    after, before = random_recording(one), random_recording(other)
    graph = compared(after, before)

    assert Counter(stacks_of(graph, 0)) == Counter(stacks_of(graph_of(after)))
    assert Counter(stacks_of(graph, 2)) == Counter(stacks_of(graph_of(before)))
