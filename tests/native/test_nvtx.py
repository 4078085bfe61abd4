"""What programs annotate with NVTX becomes exactly these spans and marks, without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.languages import german
from tests.native.clients import NAME_LIMIT, Clients, told, well


def loaded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """(name, depth, arguments), the arguments read."""
    assert {row[0] for row in rows} == {"task"}
    return [(row[1], row[2], json.loads(row[3]) if row[3] else None) for row in rows]


def test_push_and_pop_are_a_stack_in_each_domain(record: Clients, nvtx_client: Path) -> None:
    driven = well(record(nvtx_client, "ranges"))
    mine = {"domain": "mine"}
    assert loaded(told(driven)) == [
        ("outer", 0, None), ("in a domain", 1, mine), ("größe 中 😀", 2, None),
        ("registered", 0, mine), ("registered", 0, mine), ("(no name)", 0, None), ("(no name)", 0, None),
        ("unfinished", 0, None),
    ]  # fmt: skip
    assert [span["name"] for span in driven.spans() if span["unfinished"]] == ["unfinished"]
    marks = driven.rows(
        "SELECT m.name, json FROM marks m LEFT JOIN args USING (args) ORDER BY at_ns"
    )
    assert [tuple(row.values()) for row in marks] == [
        ("a mark", None),
        ("a mark of mine", '{"domain": "mine"}'),
    ]
    assert driven.rows("SELECT DISTINCT name FROM tracks WHERE kind = 'thread'") == [
        {"name": "the one thread"}
    ]


def test_colours_categories_and_payloads_are_arguments(record: Clients, nvtx_client: Path) -> None:
    rows = loaded(told(well(record(nvtx_client, "arguments"))))
    assert [row[2] for row in rows] == [
        {"color": "#ff00ff80"}, {"category": 'work "quoted"'}, {"domain": "mine", "category": "other"},
        {"category": 2}, {"payload": 2**64 - 1}, {"payload": -5}, {"payload": 0.25}, {"payload": -6},
        {"payload": 0.100000001}, None,
    ]  # fmt: skip


def test_payloads_are_json_whatever_the_language(
    record: Clients, nvtx_client: Path, tmp_path: Path
) -> None:
    rows = loaded(told(well(record(nvtx_client, "arguments", **german(tmp_path)))))
    assert [row[2]["payload"] for row in rows if row[2] and "payload" in row[2]][2::2] == [
        0.25,
        0.100000001,
    ]


def test_ranges_with_structs_end_too(record: Clients, nvtx_client: Path) -> None:
    """NCCL ends so what it has begun as any other range."""
    driven = well(record(nvtx_client, "payloads"))
    mine = {"domain": "mine"}
    assert loaded(told(driven)) == [
        ("popped with a payload", 0, mine), ("popped with a payload", 0, mine), ("(no name)", 0, mine), ("(no name)", 0, mine),
    ]  # fmt: skip
    assert not any(span["unfinished"] for span in driven.spans())
    assert len(driven.rows("SELECT name FROM marks")) == 1


def test_start_and_end_on_any_thread_but_not_in_a_child(record: Clients, nvtx_client: Path) -> None:
    driven = well(record(nvtx_client, "carried"))
    assert driven.tree() == [("first", 0, None), ("second", 1, "first")]
    assert driven.tree(int(driven.stdout)) == [("of the child", 0, None)]
    assert not any(span["unfinished"] for span in driven.spans())
    assert {span["tid"] for span in driven.spans()} == {driven.pid}


def test_ranges_that_cross_on_and_on_do_not_pile_up(record: Clients, nvtx_client: Path) -> None:
    rows = loaded(told(well(record(nvtx_client, "pipeline", "3000"))))
    assert [name for name, *_ in rows].count("one") == 3001
    assert [name for name, *_ in rows].count("inside") == 3000
    assert max(depth for _, depth, _ in rows) < 40
    assert rows[-1] == ("after", 0, None)


def test_a_thread_that_ends_inside_of_ranges_ends_them(record: Clients, nvtx_client: Path) -> None:
    driven = well(record(nvtx_client, "deaths", "40"))
    assert driven.tree() == [("dies inside", 0, None)] * 40
    assert not any(span["unfinished"] for span in driven.spans())


def test_names_of_all_kinds(record: Clients, nvtx_client: Path) -> None:
    long, strange, lines, *unique = loaded(told(well(record(nvtx_client, "names", "300"))))
    assert long[0] == "m" * NAME_LIMIT
    assert strange[0] == "\ufffd\ufffd bytes"
    assert lines == ("two lines", 0, None)
    assert unique == [(f"unique {i}", 0, {"payload": i}) for i in range(300)]


def test_the_python_package(record: Clients, tmp_path: Path) -> None:
    program = tmp_path / "annotated.py"
    program.write_text("""
import threading, nvtx
@nvtx.annotate("decorated", color="red", domain="py", category="kind")
def decorated():
    with nvtx.annotate("inner", payload=3.5, color=0x010203):
        pass
decorated()
carried = nvtx.start_range("carried", color=0x010203)
thread = threading.Thread(target=nvtx.end_range, args=[carried])
thread.start()
thread.join()
nvtx.mark("a mark", domain="py")
domain = nvtx.get_domain("fast")
attributes = domain.get_event_attributes(message="made before", color=0x010203)
for _ in range(3):
    domain.push_range(attributes)
    domain.pop_range()
""")
    driven = well(record(sys.executable, program))
    rows = loaded(told(driven))
    assert [(name, depth) for name, depth, _ in rows] == [
        ("decorated", 0), ("inner", 1), ("carried", 0), *[("made before", 0)] * 3,
    ]  # fmt: skip
    assert rows[0][2]["domain"] == "py"
    assert rows[0][2]["category"] == "kind"
    assert rows[1][2] == {"color": "#00010203", "payload": 3.5}
    assert rows[3][2]["domain"] == "fast"
    assert driven.rows("SELECT name FROM marks") == [{"name": "a mark"}]
