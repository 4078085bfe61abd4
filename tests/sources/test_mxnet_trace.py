"""Traces of MXNet's own profiler: every span once, with its thread, domain and device, and every
counter and mark.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from layerscope import cli
from layerscope.ingest.open import open_run
from layerscope.recording.reader import Reader
from layerscope.sources import mxnet_trace
from tests.repeated import times
from tests.sources import mxnet_written as written
from tests.sources.mxnet_written import (
    EVENTS,
    FIRST_US,
    MAIN,
    WORKER,
    call,
    codes,
    counter,
    counts_of,
    marker,
    operator,
    pair,
    spans_of,
    trace,
    write,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "mxnet_trace"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- a trace with a known answer -------------------------------------------------------------------


def test_every_span_of_a_small_trace_is_read_once(folder: Path) -> None:
    content = mxnet_trace.read(write(folder, trace(*EVENTS)))
    assert spans_of(content) == Counter(
        [
            ("function", "dot", WORKER, 1_000_100, 50),
            ("function", "_backward_dot", WORKER, 1_000_160, 40),
            ("function", "Own::dot", WORKER, 1_000_210, 10),
            ("function", "Own::pure_python", MAIN, 1_000_060, 20),
            ("call", "MXImperativeInvoke", MAIN, 1_000_010, 10),
            ("call", "MXNDArrayWaitAll", MAIN, 1_000_030, 200),
            ("task", "a task", MAIN, 1_000_005, 235),
            ("frame", "a frame", MAIN, 1_000_006, 244),
            ("event", "an event", MAIN, 1_000_300, 0),
        ]
    )
    assert content.realtime_ns == FIRST_US * 1000
    assert codes(content) == set()


def test_tables_have_parents_devices_domains_counters_and_marks(folder: Path) -> None:
    run = open_run(write(folder, trace(*EVENTS)))
    with Reader(run) as reader:
        inside = reader.query(
            "SELECT s.name, p.name AS parent FROM spans s LEFT JOIN spans p ON s.parent = p.span "
            "ORDER BY s.start_ns, s.depth"
        ).to_pylist()
        args = reader.query(
            "SELECT s.name, args.json FROM spans s JOIN args ON s.args = args.args ORDER BY s.start_ns"
        ).to_pylist()
        counters = reader.query(
            "SELECT t.name AS domain, c.name, c.value, c.at_ns FROM counters c JOIN tracks t "
            "ON c.track = t.track ORDER BY c.at_ns, c.name"
        ).to_pylist()
        marks = reader.query(
            "SELECT m.name, m.kind, m.at_ns, t.name AS thread, args.json FROM marks m JOIN tracks t "
            "ON m.track = t.track JOIN args ON m.args = args.args"
        ).to_pylist()
    assert {row["name"]: row["parent"] for row in inside} == {
        "a task": None,
        "a frame": "a task",
        "MXImperativeInvoke": "a frame",
        "MXNDArrayWaitAll": "a frame",
        "Own::pure_python": "MXNDArrayWaitAll",
        "dot": None,
        "_backward_dot": None,
        "Own::dot": None,
        "an event": None,
    }
    assert [(row["name"], json.loads(row["json"])) for row in args] == [
        ("a task", {"domain": "Own, domain"}),
        ("a frame", {"domain": "Own, domain"}),
        ("Own::pure_python", {"category": "Custom Operator"}),
        ("dot", {"device": "cpu/0"}),
        ("_backward_dot", {"device": "cpu/0"}),
        ("Own::dot", {"device": "cpu/0", "category": "Custom Operator"}),
    ]
    assert [tuple(row.values()) for row in counters] == [
        ("MXNET_C_API", "MXNet C API Calls", 1, 5_000),
        ("MXNet", "memory_bytes of cpu(0)", 4096, 95_000),
        ("MXNet", "memory_bytes of cpu_pinned(0)", 8, 96_000),
        ("Own, domain", "items", -2, 105_000),
    ]
    (mark,) = marks
    assert tuple(mark.values()) == (
        "half way", "marker", 115_000, f"thread {MAIN}", '{"domain": "Own, domain"}',
    )  # fmt: skip


# The command line, and then the most memory that it had. Not ru_maxrss, which knows of the process
# that started it too.
AND_ITS_MEMORY = """
import sys
from layerscope.cli import main
status = main(sys.argv[1:])
with open("/proc/self/status") as about:
    sys.stderr.write(next(line.split()[1] for line in about if line.startswith("VmHWM:")))
sys.exit(status)
"""


def test_a_large_trace_is_counted_within_bounded_memory(folder: Path) -> None:
    """Of 200 MB in `dev.py stress`."""
    count = times(300_000, 3000)
    with (folder / "large.json").open("w") as file:
        file.write(written.HEADER + written.DEVICES)
        for number in range(count):
            start = FIRST_US + 100 * number
            events = operator(
                f"op{number % 7}", WORKER + number % 2, start, start + 10 + number % 5
            )
            file.write(written.BETWEEN + written.BETWEEN.join(events))
        file.write(written.END)
    if count > 100_000:
        assert (folder / "large.json").stat().st_size > 200_000_000

    words = ["table", "large.json", "operators", "--json"]
    with (folder / "answer.json").open("wb") as out:
        command = [sys.executable, "-c", AND_ITS_MEMORY, *words]
        process = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=True)

    answer = json.loads((folder / "answer.json").read_bytes())
    names = [column["name"] for column in answer["columns"]]
    found = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
    durations = [(f"op{number % 7}", (10 + number % 5) * 1000) for number in range(count)]
    assert {row["name"]: row["count"] for row in found} == Counter(name for name, _ in durations)
    assert sum(row["total_ns"] for row in found) == sum(dur_ns for _, dur_ns in durations)
    assert int(process.stderr.split()[-1]) < 450 * 1024  # KiB


@pytest.mark.parametrize("words", [["table", "trace.json", "operators"], ["table", "trace.json", "spans"],
                                   ["table", "trace.json", "threads"], ["table", "trace.json", "counters"],
                                   ["summary", "trace.json"], ["export", "trace.json", "out.json"],
                                   ["export", "trace.json", "out.fxt"], ["flame", "trace.json", "--kind", "operators", "-o", "o.svg"],
                                   ["query", "trace.json", "SELECT count(*) FROM marks"]])  # fmt: skip
def test_every_command_takes_a_trace(
    folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, trace(*EVENTS))
    assert cli.main(words) == 0, capsys.readouterr().err


def test_the_export_has_the_times_of_the_trace(folder: Path) -> None:
    write(folder, trace(*EVENTS))
    assert cli.main(["export", "trace.json", "out.json"]) == 0
    told = json.loads((folder / "out.json").read_text())
    found = told["traceEvents"] if isinstance(told, dict) else told
    (dot,) = (one for one in found if one.get("name") == "dot" and "dur" in one)
    assert dot["dur"] == 50


# -- twice the same --------------------------------------------------------------------------------


def test_an_operator_whose_second_event_was_lost_is_there_once(folder: Path) -> None:
    """Whichever of both is left, of several of one name; and a longer call is none."""
    first = operator("dot", WORKER, 100, 150, late=2)
    second = operator("dot", WORKER, 200, 260, late=1)
    third = operator("dot", WORKER, 300, 370)
    events = [*first[:2], *second, *third[2:]]
    content = mxnet_trace.read(write(folder, trace(*events)))
    assert spans_of(content) == Counter(
        [
            ("function", "dot", WORKER, 100, 50),
            ("function", "dot", WORKER, 200, 60),
            ("function", "dot", WORKER, 300, 70),
        ]
    )


def test_as_many_of_both_need_not_be_the_same(folder: Path) -> None:
    events = [*operator("dot", WORKER, 100, 150)[:2], *operator("dot", WORKER, 200, 260)[2:]]
    content = mxnet_trace.read(write(folder, trace(*events)))
    assert sum(spans_of(content).values()) == 2


def test_the_same_name_on_two_threads_and_as_a_task_stays(folder: Path) -> None:
    events = [
        *operator("dot", WORKER, 100, 150),
        *operator("dot", WORKER + 1, 100, 150),
        *pair("be", "dot", "Own", 12, WORKER, 100, 150),
    ]
    content = mxnet_trace.read(write(folder, trace(*events)))
    assert Counter(kind for kind, *_ in spans_of(content).elements()) == {"function": 2, "task": 1}


def test_threads_differ_in_the_last_of_64_bits(folder: Path) -> None:
    tids = [(1 << 64) - 1, (1 << 64) - 2, (1 << 53) + 1, 1 << 53]
    events = [one for tid in tids for one in call("MXNDArrayFree", tid, 100, 110)]
    run = open_run(write(folder, trace(*events)))
    with Reader(run) as reader:
        threads = reader.query("SELECT name, tid FROM tracks").to_pylist()
    assert {row["name"] for row in threads} == {f"thread {tid}" for tid in tids}
    assert {row["tid"] for row in threads} == {None}


def test_tasks_that_cross_are_all_there(folder: Path) -> None:
    events = [
        *pair("be", "outer", "Own", 12, MAIN, 100, 200),
        *pair("be", "crosses", "Own", 12, MAIN, 150, 250),
        *pair("be", "same", "Own", 12, MAIN, 160, 170),
        *pair("be", "same", "Own", 12, MAIN, 165, 175),
    ]
    run = open_run(write(folder, trace(*events)))
    with Reader(run) as reader:
        found = reader.query("SELECT name, depth, dur_ns FROM spans ORDER BY start_ns").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("outer", 0, 100_000),
        ("crosses", 1, 100_000),
        ("same", 2, 10_000),
        ("same", 3, 10_000),
    ]


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ('quote " in', 'quote " in'),
        ('"', '"'),
        ("back\\slash", "back\\slash"),
        ("tab\tand line\nbreak", "tab\tand line break"),
        ("Activation{name=node_1;act_type=relu}]", "Activation{name=node_1;act_type=relu}]"),
        ("{", "{"),
        ("}],", "}],"),
        ("ümläut ☃", "ümläut ☃"),
    ],
)
def test_names_are_read_as_they_were_given(folder: Path, name: str, expected: str) -> None:
    events = [
        *pair("be", name, name, 12, MAIN, 100, 200),
        counter(name, name, 100, 7),
        marker(name, name, 150, MAIN),
        *operator("dot", MAIN, 300, 310),
    ]
    content = mxnet_trace.read(write(folder, trace(*events)))
    assert Counter(found for _, found, *_ in spans_of(content)) == {expected: 1, "dot": 1}
    assert sum(counts_of(content).values()) == 1
    assert content.moments.is_mark.tolist() == [False, True]
    assert codes(content) == set()


def test_names_that_mxnet_has_cut_are_told(folder: Path) -> None:
    cut = ("é" * 64).encode()[:127]
    text = trace(
        *pair("be", "n" * 127, "Own", 12, MAIN, 100, 200), *pair("be", "@", "Own", 12, MAIN, 1, 2)
    )
    content = mxnet_trace.read(write(folder, text.encode().replace(b"@", cut)))
    assert {name for _, name, *_ in spans_of(content)} == {"n" * 127, "é" * 63 + "�"}
    (problem,) = (one for one in content.problems if one.code == "names_cut")
    assert problem.what.startswith("2 names have 127 bytes")


# -- traces that MXNet wrote -----------------------------------------------------------------------


def check_against_count(path: Path, text: str) -> None:
    """The recording holds what an independent count finds in the file."""
    spans, counts = written.counted(written.events_of(text))
    content = mxnet_trace.read(path)
    assert spans_of(content) == spans
    assert counts_of(content) == counts
    expected: dict[tuple[str, str], tuple[int, int]] = {}
    for (kind, name, _, _, dur), count in spans.items():
        calls, total = expected.get((kind, name), (0, 0))
        expected[kind, name] = calls + count, total + 1000 * dur * count
    with Reader(open_run(path)) as reader:
        for table, calls, total in (("spans", "1", "dur_ns"), ("totals", "count", "total_ns")):
            found = reader.query(
                f"SELECT kind, name, sum({calls}) AS calls, sum({total}) AS total FROM {table} GROUP BY ALL"
            ).to_pylist()
            rows = {(row["kind"], row["name"]): (row["calls"], row["total"]) for row in found}
            assert rows == expected
        assert reader.rows("counters") == sum(counts.values())


@pytest.mark.parametrize(
    "name", ["cpu_gpu_data_copy_profiler_output", "cpu_mnist_cnn_profile_output"]
)
def test_traces_of_others_are_read_whole(name: str) -> None:
    path = Path(os.environ.get("LAYERSCOPE_CORPUS", "")) / "mxnet" / f"{name}.json"
    if "LAYERSCOPE_CORPUS" not in os.environ or not path.exists():
        pytest.skip("LAYERSCOPE_CORPUS names no folder with these traces")
    check_against_count(path, path.read_text())


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0b1", "naive"])
def test_the_second_of_two_files_is_read_whole(version: str) -> None:
    path = GOLDEN / version / "second.json.gz"
    check_against_count(path, gzip.decompress(path.read_bytes()).decode())
    assert codes(mxnet_trace.read(path)) == {"trace_headless"}


@pytest.mark.parametrize("version", ["1.9.1", "2.0.0b1", "naive"])
def test_the_first_of_two_files_has_what_the_program_did(version: str) -> None:
    content = mxnet_trace.read(GOLDEN / version / "first.json.gz")
    spans = Counter((kind, name) for kind, name, *_ in spans_of(content).elements())
    ranges = {key: count for key, count in spans.items() if key[0] in ("task", "frame", "event")}
    cut = "é" * 63 + "�"
    odd = 'quote " back\\slash\ttab line é'
    assert ranges == dict.fromkeys(
        [("task", "a task"), ("task", "crossing"), ("frame", "a frame"), ("event", "an event"),
         ("task", "n" * 127), ("task", odd), ("task", cut)], 1,
    )  # fmt: skip
    assert spans["function", "AddOne::pure_python"] == 1
    assert spans["function", "AddOne::CopyCPU2CPU"] == 1
    items = sorted(
        (at, value) for (name, value, at), count in counts_of(content).items() if name == "items"
    )
    assert [value for _, value in items] == [4, 7, 6, 0, -1]
    assert int(content.moments.is_mark.sum()) == 1
    expected = {"names_cut", "trace_unended"}
    assert codes(content) == (expected if version == "naive" else expected | {"bulks"})
