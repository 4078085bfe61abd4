"""Traces in Chrome's format of any profiler, made by hand: what is a span, on which track, and what is
said of what is none.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope import sources
from layerscope.analyse import tables
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.sources import chrome
from layerscope.sources.imported import Imported

Event = dict[str, Any]
Span = tuple[str, int, int, str, int, bool]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def at(phase: str, name: str, ts: float, tid: Any = 1, **more: Any) -> Event:
    return {"ph": phase, "name": name, "ts": ts, "pid": 1, "tid": tid, **more}


def write(path: Path, *events: Event) -> Path:
    path.write_text(json.dumps(list(events)))
    return path


def spans(found: Imported) -> list[Span]:
    """Name, start and end in us, track, depth, and whether each was still open."""
    rows = []
    for row in range(len(found.start_ns)):
        start_ns = int(found.start_ns[row])
        end_ns = start_ns + int(found.dur_ns[row])
        track = found.tracks[int(found.track[row])].name
        is_open = bool(found.more["unfinished"][row])
        name = found.names[found.name[row]]
        rows.append((name, start_ns // 1000, end_ns // 1000, track, int(found.depth[row]), is_open))
    return rows


def read(path: Path, *events: Event) -> Imported:
    return chrome.read(write(path / "trace.json", *events))


def codes(found: Imported) -> set[str]:
    return {problem.code for problem in found.problems}


def test_begins_and_ends_and_whole_events_nest_on_their_threads(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        at("B", "outer", 0),
        at("X", "whole", 10, dur=20),
        at("B", "inner", 12),
        at("E", "inner", 20),
        at("E", "", 50),
        at("X", "elsewhere", 5, 2, dur=100),
    )
    assert spans(found) == [
        ("outer", 0, 50, "thread 1", 0, False),
        ("whole", 10, 30, "thread 1", 1, False),
        ("inner", 12, 20, "thread 1", 2, False),
        ("elsewhere", 5, 105, "thread 2", 0, False),
    ]


def test_an_end_without_a_name_belongs_to_the_innermost_begin(tmp_path: Path) -> None:
    ends = [{"ph": "E", "ts": ts, "pid": 1, "tid": 1} for ts in (20, 30)]
    found = read(tmp_path, at("B", "outer", 0), at("B", "inner", 10), *ends)
    assert spans(found) == [
        ("outer", 0, 30, "thread 1", 0, False),
        ("inner", 10, 20, "thread 1", 1, False),
    ]


def test_an_end_of_another_name_belongs_to_the_begin_of_that_name(tmp_path: Path) -> None:
    """What it crosses lies on a track of its own."""
    found = read(tmp_path, at("B", "a", 0), at("B", "b", 10), at("E", "a", 20), at("E", "b", 30))
    assert spans(found) == [
        ("a", 0, 20, "thread 1", 0, False),
        ("b", 10, 30, "thread 1 (2)", 0, False),
    ]


def test_whole_events_that_cross_lie_on_tracks_of_their_own(tmp_path: Path) -> None:
    found = read(tmp_path, at("X", "a", 0, dur=10), at("X", "b", 5, dur=10), at("X", "c", 6, dur=4))
    assert spans(found) == [
        ("a", 0, 10, "thread 1", 0, False),
        ("c", 6, 10, "thread 1", 1, False),
        ("b", 5, 15, "thread 1 (2)", 0, False),
    ]


def test_ends_without_a_begin_are_counted_and_begins_without_an_end_are_open(
    tmp_path: Path,
) -> None:
    found = read(tmp_path, at("E", "lost", 5), at("B", "open", 10), at("X", "x", 12, dur=8))
    assert spans(found) == [
        ("open", 10 - 10, 10, "thread 1", 0, True),
        ("x", 2, 10, "thread 1", 1, False),
    ]
    (problem,) = found.problems
    assert problem.what == "1 events end something whose begin is not in the file"


def test_asynchronous_spans_are_paired_by_their_id_on_tracks_of_their_category(
    tmp_path: Path,
) -> None:
    found = read(
        tmp_path,
        at("b", "request", 0, id="0x1", cat="net"),
        at("b", "request", 5, id="0x2", cat="net"),
        at("e", "request", 10, id="0x1", cat="net"),
        at("e", "request", 20, id="0x2", cat="net"),
        at("S", "old", 30, id=7, cat="net"),
        at("F", "old", 35, id=7, cat="net"),
    )
    assert spans(found) == [
        ("request", 0, 10, "net", 0, False),
        ("old", 30, 35, "net", 0, False),
        ("request", 5, 20, "net (2)", 0, False),
    ]


def test_counters_instants_and_names_of_threads_and_processes_are_kept(tmp_path: Path) -> None:
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "main"}}
    process = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "server"}}
    path = write(
        tmp_path / "trace.json",
        name,
        process,
        at("X", "x", 0, dur=9, cat="gui", args={"a": 1}),
        at("C", "memory", 3, args={"used": 7, "free": -2.6}),
        at("I", "now", 4),
        {**at("X", "y", 0, dur=1), "pid": "other", "tid": "worker"},
    )
    with Reader(open_run(path)) as reader:

        def rows(query: str) -> list[tuple[Any, ...]]:
            found = reader.query(query)
            columns = (column.to_pylist() for column in found.columns)
            return list(zip(*columns, strict=True))

        assert rows("SELECT name, value, at_ns FROM counters ORDER BY name") == [
            ("memory.free", -3, 3000),
            ("memory.used", 7, 3000),
        ]
        assert rows("SELECT kind, name, at_ns FROM marks") == [("marker", "now", 4000)]
        assert rows("SELECT argv FROM processes ORDER BY process") == [("server",), ("other",)]
        names = "SELECT name, tid FROM tracks WHERE kind = 'thread' ORDER BY name"
        assert rows(names) == [("main", 1), ("worker", None)]
        assert json.loads(rows("SELECT json FROM args")[0][0]) == {"category": "gui", "a": 1}
        assert rows("SELECT layer, kind FROM spans") == [("ranges", "event")] * 2


def test_what_has_no_place_here_is_counted(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        at("X", "x", 0, dur=-5),
        at("s", "arrow", 0, id=1),
        at("f", "arrow", 2, id=1),
        at("N", "object", 3),
        at("X", "no time", float("nan")),
        at("C", "text", 4, args={"value": "much"}),
    )
    wanted = {"durations_negative", "arrows_unread", "phases_unknown", "events_rejected"}
    assert codes(found) == {*wanted, "counters_without_value"}
    assert spans(found) == [("x", 0, 0, "thread 1", 0, False)]


def test_a_profile_of_onnx_runtime_has_operators_with_provider_and_shapes(tmp_path: Path) -> None:
    node = {
        "op_name": "Conv",
        "provider": "CPUExecutionProvider",
        "node_index": "3",
        "input_type_shape": [{"float": [1, 3, 8, 8]}, {"int64": [2]}],
    }
    session = {"cat": "Session", "ph": "X", "pid": 4, "tid": 5, "args": {}}
    run = {**session, "name": "model_run", "ts": 10, "dur": 90}
    kernel = {
        **run,
        "cat": "Node",
        "name": "conv1_nchwc_kernel_time",
        "ts": 20,
        "dur": 30,
        "args": node,
    }
    path = write(tmp_path / "profile_2026.json", run, kernel)
    with Reader(open_run(path)) as reader:
        rows = reader.query(
            """SELECT s.name, layer, kind, dur_ns, parent IS NOT NULL AS inside, json FROM spans s
            LEFT JOIN args USING (args) ORDER BY start_ns"""
        ).to_pylist()
        shapes = tables.build(reader, "operators", "shape").data["shape"].to_pylist()
    assert "float32[1, 3, 8, 8], int64[2]" in shapes
    assert [list(row.values())[:5] for row in rows] == [
        ["model_run", "operators", "range", 90_000, False],
        ["Conv", "operators", "function", 30_000, True],
    ]
    assert json.loads(rows[1]["json"]) == {
        "node": "conv1_nchwc",
        "shapes": [[1, 3, 8, 8], [2]],
        "dtypes": ["float32", "int64"],
        "provider": "CPUExecutionProvider",
        "node_index": "3",
    }


@pytest.mark.parametrize("content", [b"[", b'{"traceEvents": [', b'[{"ph": "X"'])
def test_a_trace_without_an_event_opens_and_says_that_it_was_cut(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert "trace_cut" in codes(chrome.read(path))


@pytest.mark.parametrize("content", [b"", b"{}", b'{"nodes": [1]}', b"\x00\xff", b"text"])
def test_what_is_no_trace_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert not chrome.recognises(content)
    with pytest.raises(ReadError, match=r"trace\.json is damaged"):
        chrome.read(path)


TEXT = json.dumps(
    {"traceEvents": [at("X", f'n"{n}\\', n, dur=5, args={"k": [n, {"a": None}]}) for n in range(9)]}
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 60), st.binary(max_size=9)), max_size=5)
)
def test_a_trace_that_was_changed_anywhere_is_read(
    tmp_path: Path, changes: list[tuple[int, int, bytes]]
) -> None:
    content = TEXT.encode()
    for place, length, instead in changes:
        content = content[:place] + instead + content[place + length :]
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    try:
        found = chrome.read(path)
    except ReadError:
        return
    assert len(found.start_ns) <= 9 + len(changes)
    for text in found.args_texts:
        assert isinstance(json.loads(text), dict)


def independent(path: Path) -> Counter[str]:
    """The spans of a whole file, by name: what is whole, and what begins."""
    text = path.read_bytes()
    if text.startswith(b"\x1f\x8b"):
        import gzip

        text = gzip.decompress(text)
    told = json.loads(text)
    events = told if isinstance(told, list) else told["traceEvents"]
    begun = [event for event in events if event.get("ph") in ("X", "B", "b", "S")]
    return Counter(" ".join(str(event.get("name", "")).split()) or "(no name)" for event in begun)


def test_every_trace_of_the_corpus_has_all_its_spans() -> None:
    folder = os.environ.get("LAYERSCOPE_CORPUS")
    paths = sorted((Path(str(folder)) / "chrome").rglob("*.json*")) if folder else []
    if not paths:
        pytest.skip("LAYERSCOPE_CORPUS names no folder with traces in Chrome's format")
    for path in paths:
        if path.suffix != ".gz":
            known = [one.MEANING for one in sources.known() if one.recognises(path.read_bytes())]
            assert known == [chrome.MEANING], path
        found = chrome.read(path)
        if "partial" in path.name:
            assert (len(found.start_ns), codes(found)) == (4, {"trace_cut"}), path
            continue
        counts = Counter(found.names[name] for name in found.name.tolist())
        assert counts == independent(path), path
