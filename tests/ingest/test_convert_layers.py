"""From raw files to tables: modules, ranges of the library, counters, marks, lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from layerscope.rawfile import counters, raw_file
from tests.ingest.raw_file import BACKWARD, EVENT, MODULE, OPTIMIZER, RANGE, TASK, RawFile
from tests.ingest.test_convert import STEP, Converted

NET = "Net\nNet\n/a/train.py:9"
CONV = "Net.conv\nConv2d\n/a/train.py:5"
LOSS = "NLLLoss\nNLLLoss\n"
SPANS = (
    "SELECT s.name, s.layer, s.depth, s.self_ns, p.name AS parent, path, s.sequence FROM spans s "
    "LEFT JOIN spans p ON p.span = s.parent LEFT JOIN modules m ON m.module = s.module ORDER BY s.start_ns, s.depth"
)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def training(file: RawFile) -> list[tuple]:
    """A forward pass of Net.conv in Net, and the backward pass on the same thread."""
    net, conv = file.number(NET), file.number(CONV)
    return [
        *file.span(120, 180, 2, "aten::conv2d", module=conv, seq=4),
        *file.span(110, 200, 1, CONV, MODULE, module=conv, seq=1),
        *file.span(210, 250, 1, "aten::relu", module=net, seq=5),
        *file.span(100, 300, 0, NET, MODULE, module=net, seq=0),
        *file.span(310, 330, 0, "aten::sum", seq=6),
        *file.span(410, 430, 1, "ReluBackward0", BACKWARD, seq=5, forward_thread=1),
        *file.span(400, 440, 0, "autograd::engine::evaluate_function: ReluBackward0", BACKWARD),
        *file.span(465, 475, 2, "aten::mm"),
        *file.span(460, 480, 1, "ConvBackward", BACKWARD, seq=4, forward_thread=1),
        *file.span(450, 490, 0, "autograd::engine::evaluate_function: ConvBackward", BACKWARD),
        *file.span(
            500,
            510,
            0,
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
            BACKWARD,
        ),
        *file.span(600, 700, 0, STEP, OPTIMIZER, optimizer=1),
    ]


def test_modules_are_spans_around_the_operators_and_leave_their_self_time_alone(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    file.records(0, [*file.thread_begin(50, 100, 1), *training(file)])
    file.end(1000)
    made = Converted(raw)

    rows = [tuple(row.values()) for row in made.rows(SPANS)]
    assert rows[:5] == [
        ("Net", "modules", 0, 200 - 90, None, "Net", None),
        ("Net.conv", "modules", 1, 90, "Net", "Net.conv", None),
        ("aten::conv2d", "operators", 2, 60, "Net.conv", "Net.conv", 4),
        ("aten::relu", "operators", 1, 40, "Net", "Net", 5),
        ("aten::sum", "operators", 0, 20, None, None, 6),
    ]
    assert made.table("modules", "path", "class", "line", "parent") == [
        ("Net", "Net", "/a/train.py:9", None), ("Net.conv", "Conv2d", "/a/train.py:5", made.rows(
            "SELECT module FROM modules WHERE path = 'Net'")[0]["module"]),
    ]  # fmt: skip


def test_the_backward_pass_belongs_to_the_modules_of_the_forward_operators(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    file.records(0, [*file.thread_begin(50, 100, 1), *training(file)])
    file.end(1000)
    made = Converted(raw)

    found = {
        (row["name"], row["path"]) for row in made.rows(SPANS) if row["name"] != "aten::conv2d"
    }
    engine = "autograd::engine::evaluate_function: "
    assert {(name, path) for name, path in found if "ackward" in name or "Grad" in name or "mm" in name} == {
        ("ReluBackward0", "Net"), (f"{engine}ReluBackward0", "Net"),
        ("ConvBackward", "Net.conv"), (f"{engine}ConvBackward", "Net.conv"), ("aten::mm", "Net.conv"),
        (f"{engine}torch::autograd::AccumulateGrad", "Net.conv"),
    }  # fmt: skip
    assert (STEP, None) in found


def test_two_processes_share_the_modules_of_the_same_path_and_class(raw: Path) -> None:
    for pid, other in ((100, LOSS), (200, NET)):
        file = RawFile(raw, pid)
        file.poll(0)
        records = [*file.thread_begin(50, pid, 1)]
        for at, text in ((100, other), (200, CONV)):
            records += file.span(at, at + 10, 0, text, MODULE, module=file.number(text), seq=0)
        file.records(0, records)
        file.end(1000)
    made = Converted(raw)

    assert made.table("modules", "path", "class", "line") == [
        ("NLLLoss", "NLLLoss", None), ("Net", "Net", "/a/train.py:9"), ("Net.conv", "Conv2d", "/a/train.py:5")
    ]  # fmt: skip
    assert (
        made.rows(
            "SELECT count(*) AS n FROM spans JOIN modules USING (module) WHERE path = 'Net.conv'"
        )[0]["n"]
        == 2
    )


def test_open_modules_are_unfinished_and_tell_where_the_program_died(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    file.records(0, [*file.thread_begin(50, 100, 1), *file.span(60, 70, 0, "aten::ones")])
    opened = [
        (100, NET, MODULE, False),
        (110, CONV, MODULE, False),
        (120, "aten::conv2d", 0, False),
    ]
    file.open_spans(0, 1, 100, opened)
    file.end(1000)
    made = Converted(raw)

    rows = [(row["name"], row["path"], row["parent"]) for row in made.rows(SPANS)]
    assert rows[1:] == [
        ("Net", "Net", None),
        ("Net.conv", "Net.conv", "Net"),
        ("aten::conv2d", "Net.conv", "Net.conv"),
    ]


def test_tasks_have_their_domain_and_lie_in_the_tree_without_taking_self_time(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    file.records(
        0,
        [
            *file.thread_begin(50, 100, 1),
            *file.span(120, 150, 2, "aten::mul"),
            *file.span(110, 160, 1, "load\nmine", TASK),
            *file.span(100, 200, 0, "whole", RANGE),
            *file.span(300, 400, 0, "tick", EVENT),
        ],
    )
    file.end(1000)
    made = Converted(raw)

    rows = [tuple(row.values())[:5] for row in made.rows(SPANS)]
    assert rows == [
        ("whole", "operators", 0, 70, None), ("load", "ranges", 1, 50, "whole"),
        ("aten::mul", "operators", 2, 30, "load"), ("tick", "ranges", 0, 100, None),
    ]  # fmt: skip
    told = made.rows("SELECT name, json FROM spans JOIN args USING (args)")
    assert [(row["name"], json.loads(row["json"])) for row in told] == [
        ("load", {"domain": "mine"})
    ]
    assert made.table("totals", "layer", "kind", "name", order="3") == [
        ("operators", "function", "aten::mul"), ("ranges", "task", "load"), ("ranges", "event", "tick"),
        ("operators", "range", "whole"),
    ]  # fmt: skip


def test_counters_and_marks_of_the_program(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    file.records(
        0,
        [
            *file.thread_begin(50, 100, 1),
            *file.counter(100, "queue\nloader", 7),
            *file.mark(150, "half\nmine", 0),
            *file.counter(200, "queue\nloader", -2),
            *file.counter(300, "plain", 1),
            *file.counter(350, "rss_bytes\nprocess", 5),
            *file.counter(360, "throttled\ncgroup", 6),
            *file.mark(400, "", 2),
            *file.mark(500, "", 3),
        ],
    )
    file.end(1000)
    made = Converted(raw)

    assert made.rows(
        "SELECT t.name AS domain, c.name, at_ns, value, unit FROM counters c JOIN tracks t USING (track) ORDER BY at_ns"
    ) == [
        {"domain": "loader", "name": "queue", "at_ns": 100, "value": 7, "unit": "count"},
        {"domain": "loader", "name": "queue", "at_ns": 200, "value": -2, "unit": "count"},
        {"domain": "program", "name": "plain", "at_ns": 300, "value": 1, "unit": "count"},
        # Not the track of what was read from the system.
        {
            "domain": "process (program)",
            "name": "rss_bytes",
            "at_ns": 350,
            "value": 5,
            "unit": "bytes",
        },
        {
            "domain": "cgroup (program)",
            "name": "throttled",
            "at_ns": 360,
            "value": 6,
            "unit": "count",
        },
    ]
    assert made.rows(
        "SELECT m.kind, m.name, at_ns, tid, json FROM marks m JOIN tracks USING (track) LEFT JOIN args USING (args) "
        "ORDER BY at_ns"
    ) == [
        {"kind": "marker", "name": "half", "at_ns": 150, "tid": 100, "json": '{"domain": "mine"}'},
        {"kind": "paused", "name": "", "at_ns": 400, "tid": 100, "json": None},
        {"kind": "resumed", "name": "", "at_ns": 500, "tid": 100, "json": None},
    ]


def test_what_a_control_group_used_is_on_a_track_of_its_own_and_what_was_not_read_is_told(
    raw: Path,
) -> None:
    refused = {"io": "Permission denied"}
    for pid, unread in ((100, refused), (101, refused | {"cgroup": "not mounted"})):
        file = RawFile(raw, pid)
        file.poll(0)
        values = {"cpu_ns": 7} | ({"throttled": 2, "throttled_ns": 900} if pid == 100 else {})
        file.write(raw_file.COUNTERS, counters.packed(500, values))
        file.end(1000, unread=unread)
    made = Converted(raw)

    assert made.rows(
        "SELECT pid, t.name AS domain, c.name, value, unit FROM counters c JOIN tracks t USING (track) "
        "JOIN processes USING (process) ORDER BY ALL"
    ) == [
        {"pid": 100, "domain": "cgroup", "name": "throttled", "value": 2, "unit": "count"},
        {"pid": 100, "domain": "cgroup", "name": "throttled_ns", "value": 900, "unit": "ns"},
        {"pid": 100, "domain": "process", "name": "cpu_ns", "value": 7, "unit": "ns"},
        {"pid": 101, "domain": "process", "name": "cpu_ns", "value": 7, "unit": "ns"},
    ]
    assert made.rows("SELECT layer, code, what FROM problems ORDER BY code") == [
        {
            "layer": "counters", "code": "cgroup_unread",
            "what": "the control group of process 101 could not be read: not mounted",
        },
        {
            "layer": "counters", "code": "io_unread",
            "what": "/proc/PID/io of 2 processes could not be read: Permission denied",
        },
    ]  # fmt: skip


def test_ranges_have_the_line_that_opened_them(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    line = file.number("/a/train.py:7")
    spans = [*file.span(100, 200, 0, "a", RANGE, line=line), *file.span(300, 400, 0, "b")]
    file.records(0, [*file.thread_begin(50, 100, 1), *spans])
    file.end(1000)

    assert Converted(raw).table("spans", "name", "line", order="start_ns") == [
        ("a", "/a/train.py:7"),
        ("b", None),
    ]


@pytest.mark.parametrize("mark", ["batch", "train.py:7", "a/train.py:7"])
def test_the_user_says_what_a_step_is_by_name_or_by_line(raw: Path, mark: str) -> None:
    (raw / "options.json").write_text(json.dumps({"step_mark": mark}))
    file = RawFile(raw, 100)
    file.poll(0)
    line = file.number("/a/train.py:7")
    records = [*file.thread_begin(50, 100, 1)]
    for at in (1000, 2000, 3000):
        records += file.span(at + 100, at + 300, 1, "aten::add")
        records += file.span(at, at + 500, 0, "batch", RANGE, line=line)
        records += file.span(at + 600, at + 700, 0, STEP, OPTIMIZER, optimizer=1)
    file.records(0, records)
    file.end(5000)

    assert Converted(raw).table("steps", "rule", "start_ns", order="step") == [
        ("mark", 1000), ("mark", 2000), ("mark", 3000)
    ]  # fmt: skip


def test_marks_of_the_program_end_steps(raw: Path) -> None:
    file = RawFile(raw, 100)
    file.poll(0)
    records = [*file.thread_begin(50, 100, 1)]
    for at in (1000, 2000, 3000):
        records += [*file.span(at, at + 500, 0, "aten::add"), *file.mark(at + 600, "", 1)]
    file.records(0, records)
    file.end(5000)
    steps = Converted(raw).rows("SELECT rule, start_ns, dur_ns FROM steps ORDER BY step")

    assert [(row["rule"], row["start_ns"] + row["dur_ns"]) for row in steps] == [
        ("mark", 1600), ("mark", 2600), ("mark", 3600)
    ]  # fmt: skip
