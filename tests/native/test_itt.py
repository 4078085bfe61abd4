"""What programs tell by ITT becomes exactly these spans, counters and marks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.languages import german
from tests.native.clients import NAME_LIMIT, Clients, told, well

MINE = {"domain": "mine"}


def loaded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The same with the arguments read."""
    return [(*row[:3], json.loads(row[3]) if row[3] else None) for row in rows]


def test_tasks_are_a_stack_in_each_domain_and_primitives_have_their_text(
    record: Clients, itt_client: Path
) -> None:
    driven = well(record(itt_client, "tasks"))
    *rows, function, unfinished = loaded(told(driven))
    assert rows == [
        ("task", "outer", 0, MINE), ("task", "inner of theirs", 1, {"domain": "theirs"}),
        ("task", "after outer", 2, MINE),
        ("create", "convolution", 0, {"library": "oneDNN", "call": "cpu,convolution,jit:avx2"}),
        ("execute", "convolution", 0, {"library": "oneDNN", "call": "cpu,convolution,call 0"}),
        ("execute", "convolution", 0, {"library": "oneDNN", "call": "cpu,convolution,call 1"}),
        ("execute", "convolution", 0, {"library": "oneDNN", "call": "cpu,convolution,call 2"}),
    ]  # fmt: skip
    assert function[1].startswith("itt_client+0x")
    assert unfinished == ("task", "unfinished", 0, MINE)
    assert [span["name"] for span in driven.spans() if span["unfinished"]] == ["unfinished"]


def test_metadata_is_json_of_the_task_that_it_is_about(record: Clients, itt_client: Path) -> None:
    *rows, long = loaded(told(well(record(itt_client, "metadata"))))
    assert rows == [
        ("task", "told", 0, {**MINE, "shape": [3, 65535], 'in"side\n': -7, "half": 0.5, "infinite": None,
                             "text": "back\\slash"}),
        ("task", "inner", 1, {**MINE, "metadata": "i=5 of six"}),
        ("task", "by id", 0, {**MINE, "whose": "its"}),
        ("task", "has none", 1, MINE),
    ]  # fmt: skip
    assert set(long[3]) == {"domain", "text"}
    assert 400 < len(long[3]["text"]) < NAME_LIMIT
    assert set(long[3]["text"]) == {'"'}


def test_what_has_an_id_ends_by_it_on_any_thread(record: Clients, itt_client: Path) -> None:
    driven = well(record(itt_client, "carried"))
    assert loaded(told(driven)) == [
        ("task", "first", 0, MINE), ("task", "second", 1, MINE), ("frame", "frame", 2, MINE),
        ("frame", "frame", 0, MINE), ("frame", "frame", 0, MINE),
        ("event", "moment", 0, None), ("event", "moment", 0, None), ("event", "span", 0, None),
    ]  # fmt: skip
    spans = driven.spans()
    assert {span["tid"] for span in spans} == {driven.pid}
    assert not any(span["unfinished"] for span in spans)
    assert [span["dur_ns"] == 0 for span in spans if span["name"] == "moment"] == [True, False]


def test_counters_and_markers(record: Clients, itt_client: Path) -> None:
    driven = well(record(itt_client, "moments"))
    counters = driven.rows(
        "SELECT c.name, value, tracks.name AS domain FROM counters c JOIN tracks USING (track) "
        "WHERE tracks.name IN ('mine', 'program') ORDER BY at_ns"
    )
    assert [tuple(row.values()) for row in counters] == [
        ("counter", 40, "mine"), ("real", -3, "mine"), ("level", 1, "program"), ("level", 2, "program"),
        ("level", -3, "program"), ("third", 3, "mine"), ("third", 6, "mine"),
    ]  # fmt: skip
    marks = driven.rows("SELECT name, kind FROM marks ORDER BY at_ns")
    assert [tuple(row.values()) for row in marks] == [
        ("here", "marker"),
        ("ITT", "paused"),
        ("ITT", "resumed"),
    ]
    assert driven.rows("SELECT name FROM tracks WHERE kind = 'thread'") == [
        {"name": "the one thread"}
    ]


def test_counters_without_end_are_bounded(record: Clients, itt_client: Path) -> None:
    driven = well(record(itt_client, "counters", "5000"))
    assert driven.rows("SELECT name, value FROM counters WHERE name LIKE '%counter%' ORDER BY at_ns") == [
        {"name": "counter 0", "value": 1}, {"name": "(other counters)", "value": 1},
    ]  # fmt: skip


def test_numbers_are_json_whatever_the_language(
    record: Clients, itt_client: Path, tmp_path: Path
) -> None:
    row, *_ = loaded(told(well(record(itt_client, "metadata", **german(tmp_path)))))
    assert row[3]["half"] == 0.5


def test_a_child_ends_nothing_of_its_parent(record: Clients, itt_client: Path) -> None:
    driven = well(record(itt_client, "forks"))
    child = int(driven.stdout)
    assert driven.tree() == [("of the parent", 0, None), ("carried", 1, "of the parent")]
    assert driven.tree(child) == [("of the child", 0, None), ("of the parent", 0, None)]
    unfinished = driven.rows("SELECT name, json FROM spans JOIN args USING (args) WHERE unfinished")
    assert unfinished == [{"name": "of the parent", "json": '{"domain": "new in child"}'}]


def test_a_thread_that_ends_inside_of_tasks_ends_them(record: Clients, itt_client: Path) -> None:
    driven = well(record(itt_client, "deaths", "40"))
    assert driven.tree() == [("dies inside", 0, None), ("inner", 1, "dies inside")] * 40
    assert not any(span["unfinished"] for span in driven.spans())
    assert len({span["tid"] for span in driven.spans()}) == 40
    (handed,) = driven.door.handed.values()
    assert len(handed.rings) == 1  # the next thread has it


def test_names_of_all_kinds(record: Clients, itt_client: Path) -> None:
    rows = loaded(told(well(record(itt_client, "names", "300"))))
    (_, long, _, of_long), (_, _, _, in_long), strange, *unique, last = rows
    assert set(long) == {"m"}
    assert len(long) == NAME_LIMIT - len("mine") - 1
    assert (of_long, set(in_long["domain"])) == (MINE, {"m"})
    assert strange[1] == "\ufffd\ufffd bytes"
    assert unique == [("task", f"unique {i}", 0, {**MINE, "number": i}) for i in range(300)]
    assert last == ("task", "the last one", 0, MINE)


@pytest.mark.slow
def test_millions_of_names_are_bounded(record: Clients, itt_client: Path) -> None:
    """Those that are never the same again leave room to the others, and no memory grows without
    end.
    """
    driven = record(itt_client, "names", "600000")
    assert (driven.status, driven.stderr) == (0, "")
    lost = driven.losses()
    assert set(lost) <= {"ring_full"}
    (row,) = driven.rows(
        "SELECT count(*) AS spans, count(DISTINCT name) AS names, count(DISTINCT args) AS args FROM spans"
    )
    assert row["spans"] + lost.get("ring_full", 0) == 600_004
    assert row["names"] < 1 << 18
    assert row["args"] <= 1 << 19
    assert int(driven.door.page(driven.pid)["lost_names"]) > 0
    (handed,) = driven.door.handed.values()
    assert sum(len(names) for names in handed.names) < 200 << 20


@pytest.mark.parametrize(
    ("window", "recorded"), [([1, 3, 0, 0, "step"], [1, 2]), ([2, -1, 0, 0, "step"], [2, 3, 4]),
                             ([1, 2, 2, 0, "step"], [1, 3]), ([0, -1, 0, 1, ""], [])],
)  # fmt: skip
def test_only_the_window_is_recorded(
    record: Clients, itt_client: Path, window: list[object], recorded: list[int]
) -> None:
    driven = well(record(itt_client, "steps", window=window))
    assert driven.tree() == [
        row for i in recorded for row in (("step", 0, None), (f"in step {i}", 1, "step"))
    ]  # fmt: skip


def test_primitives_before_the_first_mark_make_no_step_whether_recorded_or_not(
    record: Clients, itt_client: Path
) -> None:
    driven = well(record(itt_client, "primitives_in_steps", window=[1, 3, 0, 0, ""]))
    assert driven.tree() == [("convolution", 0, None)] * (
        3 + 4
    )  # steps 1 and 2: behind the second and third mark


def test_the_static_library_of_intel_finds_us(record: Clients, tmp_path: Path) -> None:
    """Its own layout of everything, as it is compiled into the package `ittapi`."""
    program = tmp_path / "marked.py"
    program.write_text("""
import ittapi
with ittapi.task("outer", domain="py"), ittapi.overlapped_task("crossing", domain="py"):
    event = ittapi.event("an event")
    event.begin()
    event.end()
@ittapi.task
def decorated():
    pass
decorated()
""")
    assert loaded(told(well(record(sys.executable, program)))) == [
        ("task", "outer", 0, {"domain": "py"}), ("task", "crossing", 1, {"domain": "py"}),
        ("event", "an event", 2, None), ("task", "decorated", 0, {"domain": "ittapi"}),
    ]  # fmt: skip
