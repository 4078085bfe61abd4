"""Operators by the range of the program around them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyse.stacks.tree import by_level, nearest
from tests.analyse.test_tables import rows
from tests.recordings import MS, Recording


def by_range(recording: Recording) -> set[tuple[str, str, int]]:
    found = rows(recording, "operators", "range")
    return {(row["range"], row["name"], row["count"]) for row in found}


def test_an_operator_belongs_to_the_innermost_range_around_it() -> None:
    recording = Recording()
    epoch = recording.add_span("epoch", 0, 90 * MS, kind="range")
    batch = recording.add_span("batch", 10 * MS, 40 * MS, layer="ranges", kind="task", parent=epoch)
    mm = recording.add_span("aten::mm", 11 * MS, 20 * MS, parent=batch)
    recording.add_span("aten::copy", 12 * MS, 2 * MS, parent=mm)
    recording.add_span("aten::mm", 60 * MS, 20 * MS, parent=epoch)
    recording.add_span("aten::mm", 95 * MS, MS)

    assert by_range(recording) == {
        ("epoch", "epoch", 1), ("batch", "aten::mm", 1), ("batch", "aten::copy", 1), ("epoch", "aten::mm", 1),
        ("none", "aten::mm", 1),
    }  # fmt: skip


def test_what_runs_elsewhere_belongs_where_it_was_asked_for() -> None:
    """Of the engine of a framework, and of the backward pass, whose operator may be submitted."""
    recording = Recording()
    step = recording.add_span("step", 0, 10 * MS, kind="range")
    submitted = recording.add_span("dot", MS, MS, layer="api", kind="submit", parent=step)
    executed = recording.add_span("dot", 20 * MS, 10 * MS, track=1)
    recording.add_span("inside", 21 * MS, MS, track=1, parent=executed)
    backward = recording.add_span("DotBackward", 40 * MS, 10 * MS, track=1, kind="backward")
    own = recording.add_span("own", 60 * MS, 10 * MS, track=1, kind="range")
    kept = recording.add_span("dot", 61 * MS, 5 * MS, track=1, parent=own)
    for kind, cause, effect in (
        ("submit_execute", submitted, executed), ("forward_backward", executed, backward),
        ("submit_execute", submitted, kept),
    ):  # fmt: skip
        recording.rows.setdefault("links", []).append(
            {"from_span": cause, "to_span": effect, "kind": kind}
        )

    assert by_range(recording) == {
        ("step", "step", 1), ("step", "dot", 1), ("step", "inside", 1), ("step", "DotBackward", 1),
        ("own", "own", 1), ("own", "dot", 1),
    }  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=30))
def test_the_nearest_is_the_first_on_the_way_up(tree: list[tuple[int, bool]]) -> None:
    parent = np.array([min(up, row) for row, (up, _) in enumerate(tree)])
    up = np.where(parent == np.arange(len(tree)), -1, parent).astype(np.int32)
    is_wanted = np.array([wanted for _, wanted in tree])

    def walk(row: int) -> int:
        while not is_wanted[row]:
            if parent[row] == row:
                return -1
            row = parent[row]
        return row

    assert nearest(up, is_wanted, by_level(up)).tolist() == [walk(row) for row in range(len(tree))]
