"""The table of modules, and operators by module, from recordings whose answer is known."""

from __future__ import annotations

import pytest

from tests.analyse.test_tables import result_of, rows
from tests.recordings import Recording

OUTSIDE = "outside any module"


def network(steps: bool = False) -> Recording:
    """Two calls of Net, which holds conv and fc; conv runs 30 forward and 50 backward, fc 10, Net
    itself 5, and 20 lie outside. Every call takes 100 longer than its operators.
    """
    recording = Recording()
    recording.rows["modules"] = [
        {"module": 0, "parent": 1, "path": "Net.conv", "class": "Conv2d", "line": "/a.py:3"},
        {"module": 1, "parent": None, "path": "Net", "class": "Net", "line": "/a.py:9"},
        {"module": 2, "parent": 1, "path": "Net.fc", "class": "Linear", "line": None},
        {"module": 3, "parent": None, "path": "Loss", "class": "Loss", "line": "/a.py:12"},
    ]
    for at in (0, 1000):
        call = {"layer": "modules", "kind": "module"}
        recording.add_span("Net", at, 345, module=1, **call)
        recording.add_span("Net.conv", at, 130, module=0, **call)
        recording.add_span("aten::conv2d", at + 10, 30, module=0, phase="forward")
        recording.add_span("aten::relu", at + 200, 5, module=1, phase="forward")
        recording.add_span("Net.fc", at + 210, 110, module=2, **call)
        recording.add_span("aten::linear", at + 220, 10, module=2, phase="forward")
        recording.add_span("aten::sum", at + 400, 20, phase="forward")
        recording.add_span(
            "ConvBackward", at + 500, 50, module=0, phase="backward", kind="backward"
        )
    if steps:
        recording.add_step(0, 0, (0, 65, 50, 0, 0))
    return recording


def test_modules_add_up_their_own_operators_and_those_of_their_parts() -> None:
    found = rows(network(), "modules")

    kept = ("path", "calls", "self_ns", "total_ns", "backward_ns", "avg_ns", "line")
    assert [tuple(row[name] for name in kept) for row in found] == [
        ("Net.conv", 2, 160, 160, None, 130, "/a.py:3"), (OUTSIDE, None, 40, 40, None, None, None),
        ("Net.fc", 2, 20, 20, None, 110, None), ("Net", 2, 10, 190, None, 345, "/a.py:9"),
        ("Loss", None, 0, 0, None, None, "/a.py:12"),
    ]  # fmt: skip
    assert sum(row["self_share"] for row in found) == pytest.approx(1)
    assert next(row["total_share"] for row in found if row["path"] == "Net") == pytest.approx(
        190 / 230
    )


def test_time_of_the_backward_pass_is_known_where_there_are_steps() -> None:
    found = {row["path"]: row["backward_ns"] for row in rows(network(steps=True), "modules")}

    assert found == {"Net.conv": 100, "Net": 100, "Net.fc": 0, "Loss": 0, OUTSIDE: 0}


def test_modules_by_class_are_added_up() -> None:
    recording = network()
    recording.rows["modules"].append(
        {"module": 4, "parent": 1, "path": "Net.last", "class": "Linear", "line": None}
    )
    recording.add_span("Net.last", 2000, 50, module=4, layer="modules", kind="module")
    recording.add_span("aten::linear", 2010, 7, module=4)
    found = {row["class"]: row for row in rows(recording, "modules", by="class")}

    assert {name: (row["calls"], row["self_ns"], row["avg_ns"]) for name, row in found.items()} == {
        "Conv2d": (2, 160, 130), "Linear": (3, 27, 90), "Net": (2, 10, 345), OUTSIDE: (None, 40, None),
        "Loss": (None, 0, None),
    }  # fmt: skip


def test_calls_that_never_ended_count_but_have_no_mean() -> None:
    recording = network()
    recording.add_span("Loss", 3000, 10, module=3, layer="modules", kind="module", unfinished=True)
    found = {row["path"]: row for row in rows(recording, "modules")}

    assert (found["Loss"]["calls"], found["Loss"]["avg_ns"]) == (1, None)


def test_thinned_calls_count_as_often_as_their_weight_says() -> None:
    recording = network()
    recording.add_span("Loss", 3000, 10, module=3, layer="modules", kind="module", weight=4)
    recording.add_span("Loss", 3100, 60, module=3, layer="modules", kind="module")
    recording.add_span("aten::mean", 3000, 10, module=3, weight=3)
    found = {row["path"]: row for row in rows(recording, "modules")}

    assert (found["Loss"]["calls"], found["Loss"]["avg_ns"], found["Loss"]["self_ns"]) == (
        5,
        20,
        30,
    )


def test_operators_by_module_keep_two_modules_of_one_path_apart() -> None:
    recording = network()
    recording.rows["modules"].append(
        {"module": 4, "parent": None, "path": "Net.fc", "class": "Other", "line": None}
    )
    recording.add_span("aten::linear", 2010, 7, module=4)
    found = [
        (row["module"], row["name"], row["count"], row["self_ns"])
        for row in rows(recording, "operators", "module")
    ]

    assert found == [
        ("Net.conv", "ConvBackward", 2, 100), ("Net.conv", "aten::conv2d", 2, 60), (OUTSIDE, "aten::sum", 2, 40),
        ("Net.fc", "aten::linear", 2, 20), ("Net", "aten::relu", 2, 10), ("Net.fc", "aten::linear", 1, 7),
    ]  # fmt: skip


def test_without_modules_all_is_outside_and_the_table_says_why_it_is_empty() -> None:
    recording = Recording()
    recording.add_span("aten::add", 0, 10)

    assert [row["module"] for row in rows(recording, "operators", "module")] == [OUTSIDE]
    result = result_of(recording, "modules")
    assert result.data.num_rows == 0
    assert result.empty.startswith("No modules were recorded")
