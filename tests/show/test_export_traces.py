"""Chrome JSON and FXT hold exactly the spans of the recording, read back by readers that share
nothing with us.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show import exports
from layerscope.show.exports import fxt
from tests.recordings import MS, Recording, S
from tests.show.exported import (
    NAMES,
    REALTIME_NS,
    ReadTrace,
    depths,
    read_fxt,
    read_json,
    recordings,
    write_pieces,
)

READERS: dict[str, Callable[[Path], ReadTrace]] = {
    ".json": read_json,
    ".json.gz": read_json,
    ".fxt": read_fxt,
}
BOTH = pytest.mark.parametrize("suffix", [".json", ".fxt"])


def export(run: Run, suffix: str, steps: range | None = None) -> ReadTrace:
    path = run.path.parent / f"trace{suffix}"
    with Reader(run) as reader:
        exports.export(reader, path, steps)
    return READERS[suffix](path)


def zero(trace: ReadTrace) -> int:
    """What to add to a time of the file to get CLOCK_REALTIME."""
    return trace.zero_ns or 0


def base_thread(trace: ReadTrace, pid: int, tid: int) -> str:
    return trace.threads[pid, tid].partition(" (crossing")[0]


@settings(max_examples=50, deadline=None)
@given(recordings())
@pytest.mark.slow
def test_a_trace_holds_exactly_the_spans_of_the_recording(
    made: tuple[Recording, list[int]],
) -> None:
    recording, cuts = made
    spans, tracks = recording.rows.get("spans", []), recording.rows["tracks"]
    with tempfile.TemporaryDirectory() as folder:
        run = write_pieces(recording, Path(folder) / "r.layerscope", cuts)
        for suffix in READERS:
            trace = export(run, suffix)
            assert len(depths(trace)) == len(spans)
            found = [
                (base_thread(trace, span.pid, span.tid), span.name, span.category, span.start_ns + zero(trace),
                 span.dur_ns, _plain(span.args))
                for span in trace.spans
            ]  # fmt: skip
            wanted = [
                (tracks[row["track"]]["name"], row["name"], "operators,function", row["start_ns"] + REALTIME_NS,
                 row["dur_ns"], _plain(_arguments(recording, row, suffix)))
                for row in spans
            ]  # fmt: skip
            assert Counter(found) == Counter(wanted)
            keys = Counter((trace.spans[a].name, trace.spans[b].name) for a, b in trace.flows)
            links = recording.rows.get("links", [])
            by_key = {row["span"]: row["name"] for row in spans}
            assert keys == Counter(
                (by_key[link["from_span"]], by_key[link["to_span"]]) for link in links
            )


def _arguments(recording: Recording, row: dict[str, Any], suffix: str) -> dict[str, Any]:
    """What the arguments of a span in the file must be."""
    args: dict[str, Any] = {
        name: row[name] for name in ("step", "sequence", "phase", "line") if row[name] is not None
    }
    if row["module"] is not None:
        args["module"] = recording.rows["modules"][row["module"]]["path"]
    if row["weight"] > 1:
        args["weight"] = row["weight"]
    if row["unfinished"]:
        args["unfinished"] = True
    if row["args"] is not None:
        text = recording.rows["args"][row["args"]]["json"]
        args["args"] = json.loads(text)
    if suffix != ".fxt":
        args["self_ns"] = row["self_ns"]
    return args


def _plain(args: dict[str, Any]) -> str:
    if isinstance(args.get("args"), str):
        args = args | {"args": json.loads(args["args"])}
    return json.dumps(args, sort_keys=True)


@pytest.fixture
def recording() -> Recording:
    """Two ranks that share a process id, each with two threads that share a thread id; two
    steps.
    """
    recording = Recording(rows={"processes": [], "tracks": []})
    recording.rows = {}
    for rank, argv in ((1, "second"), (0, "first")):
        process = recording.add_process(100, rank=rank, argv=argv, host=f"host{rank}")
        recording.thread = recording.add_thread(process, 7, f"worker{rank}")
        recording.add_span("op", 1000, 50)
        recording.thread = recording.add_thread(process, 7, f"later{rank}")
        recording.add_span("op", 5000, 60)
    recording.process = 0
    recording.add_step(0, 1000, (1, 2, 3, 4, 5))
    recording.add_step(1, 5000, (10, 20, 30, 40, 50))
    recording.rows["spans"][0]["step"], recording.rows["spans"][1]["step"] = 0, 1
    recording.add_counter(0, "rss_bytes", [(900, 5), (1010, -3), (5100, 2**60)], "bytes")
    recording.rows["marks"] = [
        {"track": 1, "at_ns": 5010, "kind": "marker", "name": NAMES[2], "args": 0},
        {"track": 2, "at_ns": 700, "kind": "marker", "name": "plain"},
    ]
    recording.rows["args"] = [{"args": 0, "json": '{"loss": 0.5}'}]
    return recording


@BOTH
def test_a_server_of_the_ranks_is_called_so(tmp_path: Path, suffix: str) -> None:
    recording = Recording()
    recording.add_process(7, argv="serve", role="server")
    recording.add_span("op", 0, 10, track=recording.add_thread(1, 7, "python"))

    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    assert "server: serve" in trace.processes.values()


@BOTH
def test_processes_and_threads_have_numbers_of_their_own(
    recording: Recording, tmp_path: Path, suffix: str
) -> None:
    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    assert list(trace.processes.values()) == ["rank 0: first", "rank 1: second"]
    assert sorted(trace.threads.values()) == ["later0", "later1", "steps", "worker0", "worker1"]
    assert len({(span.pid, span.tid) for span in trace.spans if span.category != "steps"}) == 4
    assert 100 in trace.processes
    assert min(set(trace.processes) - {100}) > 4_194_304


@BOTH
def test_a_thread_whose_number_is_negative_gets_another(tmp_path: Path, suffix: str) -> None:
    recording = Recording()
    recording.add_span("op", 0, 10, track=recording.add_thread(0, -2, "odd"))

    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    assert [span.name for span in trace.spans] == ["op"]
    assert min(span.tid for span in trace.spans) > 0


@BOTH
def test_steps_are_a_track_of_their_own(recording: Recording, tmp_path: Path, suffix: str) -> None:
    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    steps = [span for span in trace.spans if span.category == "steps"]
    assert {trace.threads[span.pid, span.tid] for span in steps} == {"steps"}
    assert [(span.name, span.dur_ns, span.args["backward_ns"]) for span in steps] == [
        ("step 0", 15, 3),
        ("step 1", 150, 30),
    ]


@BOTH
def test_counters_marks_and_losses_are_there(
    recording: Recording, tmp_path: Path, suffix: str
) -> None:
    recording.add_gap("ring_full", 1204, track=0)
    recording.add_gap("damaged", None)
    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    assert [value for _, _, _, value in trace.counters] == [5, -3, 2**60]
    marks = {span.name: span for span in trace.instants if span.category == "marks,marker"}
    assert marks.keys() == {NAMES[2], "plain"}
    told = marks[NAMES[2]].args["args"]
    assert json.loads(told) == {"loss": 0.5} if isinstance(told, str) else told == {"loss": "0.5"}
    assert [
        (span.name, span.args["reason"]) for span in trace.instants if span.category == "gaps"
    ] == [
        ("1,204 records lost", "ring_full"),
        ("an unknown number of records lost", "damaged"),
    ]


@BOTH
def test_counters_that_only_grow_are_shown_as_how_fast_they_do(tmp_path: Path, suffix: str) -> None:
    recording = Recording()
    recording.add_counter(0, "cpu_ns", [(0, 0), (S, 2 * S), (3 * S, 2 * S)], "ns")
    recording.add_counter(0, "storage_read_bytes", [(0, 10), (S // 2, 1010)], "bytes")
    recording.add_counter(0, "faults_major", [(0, 5), (S, 5)])
    recording.add_counter(0, "throttled_ns", [(0, 7 * S), (4 * S, 9 * S)], "ns", "cgroup")
    recording.add_counter(0, "rss_bytes", [(0, 3), (S, 4)], "bytes")
    recording.add_counter(0, "cpu_ns", [(0, 6), (S, 9)], domain="mine")

    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    assert sorted((name, value) for _, name, _, value in trace.counters) == [
        ("cpu_ns", 6), ("cpu_ns", 9),  # the program's own
        ("cpu_percent", 0), ("cpu_percent", 200), ("rss_bytes", 3), ("rss_bytes", 4),
        ("storage_read_bytes_per_s", 2000), ("throttled_percent", 50),
    ]  # fmt: skip
    began = {value: at_ns for _, name, at_ns, value in trace.counters if name == "cpu_percent"}
    assert began[0] - began[200] == S


@BOTH
def test_some_steps_alone(recording: Recording, tmp_path: Path, suffix: str) -> None:
    run = recording.write(tmp_path / "r.layerscope")
    trace = export(run, suffix, range(1, 2))

    assert [(span.name, span.dur_ns) for span in trace.spans] == [("op", 60), ("step 1", 150)]
    assert [value for _, _, _, value in trace.counters] == [2**60]
    assert [span.name for span in trace.instants] == [NAMES[2]]
    with pytest.raises(
        UsageError, match=r"--steps 2:9 holds no step of the recording: it has the steps 0 to 1"
    ):
        export(run, suffix, range(2, 9))


@BOTH
def test_flows_of_some_steps_have_both_ends(tmp_path: Path, suffix: str) -> None:
    recording = Recording()
    spans = [recording.add_span(f"op{number}", number * 10, 5, step=number) for number in range(3)]
    for number in range(3):
        recording.add_step(number, number * 10, (0, 10, 0, 0, 0))
    recording.rows["links"] = [
        {"from_span": a, "to_span": b, "kind": "forward_backward"}
        for a in spans
        for b in spans
        if a <= b
    ]
    trace = export(recording.write(tmp_path / "r.layerscope"), suffix, range(1, 3))

    pairs = sorted((trace.spans[a].name, trace.spans[b].name) for a, b in trace.flows)
    assert pairs == [("op1", "op1"), ("op1", "op2"), ("op2", "op2")]


@BOTH
def test_a_recording_of_nothing_is_a_whole_file(tmp_path: Path, suffix: str) -> None:
    recording = Recording()
    recording.rows.clear()

    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    assert trace.spans == []
    assert len(trace.processes) == 1


@BOTH
@pytest.mark.slow
def test_more_names_threads_and_arguments_than_the_format_has_numbers_for(
    tmp_path: Path, suffix: str
) -> None:
    recording = Recording()
    tracks = [
        recording.add_thread(recording.process, 1000 + number, f"t{number}")
        for number in range(700)
    ]
    count = 40_000
    for number in range(count):
        recording.add_span(
            f"name {number}", number * 10, 5, track=tracks[number % len(tracks)], args=number
        )
    recording.rows["args"] = [
        {"args": number, "json": f'{{"n":{number}}}'} for number in range(count)
    ]

    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    for span in trace.spans:
        number = int(span.name.removeprefix("name "))
        told = span.args["args"]
        assert (json.loads(told) if isinstance(told, str) else told) == {"n": number}
        assert trace.threads[span.pid, span.tid] == f"t{number % len(tracks)}"
    assert len({span.name for span in trace.spans}) == count


@BOTH
def test_pieces_with_other_layers_and_kinds_keep_their_categories(
    tmp_path: Path, suffix: str
) -> None:
    """Their names come as codes into a list that grows from piece to piece, from the newest on."""
    recording = Recording()
    pairs = [("operators", "function"), ("modules", "module")]
    pairs += [("ranges", "task"), ("operators", "function"), ("operators", "backward")]
    for number, (layer, kind) in enumerate(pairs):
        recording.add_span(f"{layer},{kind}", number * 10, 5, layer=layer, kind=kind)
    trace = export(write_pieces(recording, tmp_path / "r.layerscope", [2]), suffix)

    assert [span.category for span in trace.spans] == [span.name for span in trace.spans]
    assert len(trace.spans) == len(pairs)


@BOTH
def test_a_span_with_very_many_flows(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fxt, "_FLOW_ROOM", 50)
    recording = Recording()
    spans = [
        recording.add_span(f"op{number}", number * 10, 5, sequence=number % 3 or None)
        for number in range(40)
    ]
    recording.rows["links"] = [
        {"from_span": spans[7], "to_span": span, "kind": "forward_backward"} for span in spans
    ]
    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    pairs = sorted((trace.spans[a].name, trace.spans[b].name) for a, b in trace.flows)
    assert pairs == sorted(("op7", f"op{number}") for number in range(40))


@BOTH
def test_times_do_not_lose_a_nanosecond_after_a_year_of_uptime(tmp_path: Path, suffix: str) -> None:
    year_ns = 365 * 86_400 * 10**9
    recording = Recording()
    recording.add_span("late", year_ns + 1, 3)
    recording.add_span("early", 0, 1)

    trace = export(recording.write(tmp_path / "r.layerscope"), suffix)

    assert sorted((span.start_ns, span.dur_ns) for span in trace.spans) == [
        (0, 1),
        (year_ns + 1, 3),
    ]


def test_what_is_no_json_is_a_text(tmp_path: Path) -> None:
    recording = Recording()
    for key, text in enumerate(['{"cut": "of', "NaN", "", '{"fine": [1, null]}']):
        recording.add_span("op", key * 10, 5, args=key)
        recording.rows.setdefault("args", []).append({"args": key, "json": text})

    trace = export(recording.write(tmp_path / "r.layerscope"), ".json")

    assert [span.args["args"] for span in trace.spans] == [
        '{"cut": "of',
        "NaN",
        "",
        {"fine": [1, None]},
    ]


def test_a_text_that_no_record_of_fxt_can_hold_is_cut_between_characters(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("op", 0, 5, args=0)
    recording.rows["args"] = [
        {"args": 0, "json": json.dumps({"k": "ä" * 40_000}, ensure_ascii=False)}
    ]

    (span,) = export(recording.write(tmp_path / "r.layerscope"), ".fxt").spans

    assert span.args["args"] == '{"k":"' + "ä" * 15_997


def test_problems_stand_in_the_file_and_a_clock_that_was_set_is_said(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_problem("modules", "no modules", "do this")
    recording.rows["clock_readings"] = [
        {"clock": "realtime", "clock_value": 10**18, "run_ns": 0, "error_ns": 5},
        {"clock": "realtime", "clock_value": 10**18 + 40 * MS, "run_ns": 10 * MS, "error_ns": 1},
    ]
    trace = export(recording.write(tmp_path / "r.layerscope"), ".json")

    assert trace.about["problems"][0]["what"] == "no modules"
    assert "set by 30.0 ms" in trace.about["notes"][0]
    assert trace.zero_ns == 10**18 + 30 * MS


def test_without_a_reading_of_the_wall_clock_the_file_begins_at_zero(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("op", 5, 5)
    trace = export(recording.write(tmp_path / "r.layerscope"), ".json")

    assert trace.zero_ns is None
    assert "has no reading of the wall clock" in trace.about["notes"][0]
