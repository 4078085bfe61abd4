"""Fragments and damaged files of MXNet's profiler: what is whole is read, and what is missing is said."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope import cli
from layerscope.ingest.limits import IngestLimits
from layerscope.ingest.open import open_run
from layerscope.model.errors import ReadError
from layerscope.recording.reader import Reader
from layerscope.sources import known, mxnet_trace
from tests.sources import mxnet_written as written
from tests.sources.mxnet_written import (
    EVENTS,
    MAIN,
    SPANS,
    WORKER,
    Spans,
    call,
    codes,
    counter,
    counts_of,
    pair,
    spans_of,
    trace,
    write,
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- fragments -------------------------------------------------------------------------------------


def fragments() -> dict[str, tuple[str, set[str]]]:
    """Every kind of file that the profiler leaves, and what is said of it."""
    body = written.BETWEEN.join(EVENTS)
    return {
        "whole": (trace(*EVENTS), set()),
        "no end": (written.HEADER + written.DEVICES + written.BETWEEN + body, {"trace_unended"}),
        "no header": (written.BETWEEN + body + written.END, {"trace_headless"}),
        "neither": (written.BETWEEN + body + "\n", {"trace_headless", "trace_unended"}),
        "begins within an event": (
            trace(*EVENTS)[len(written.HEADER) + 30 :],
            {"trace_headless", "events_rejected"},
        ),
        "an array": (f"[{body}]", set()),
        "end cut": (trace(*EVENTS)[:-12], set()),
        "zeros behind it": (trace(*EVENTS) + "\0" * 512, set()),
    }


@pytest.mark.parametrize("name", fragments())
def test_every_fragment_has_the_same_spans(folder: Path, name: str) -> None:
    text, expected = fragments()[name]
    whole = mxnet_trace.read(write(folder, trace(*EVENTS)))
    content = mxnet_trace.read(write(folder, text))
    assert spans_of(content) == spans_of(whole)
    assert counts_of(content) == counts_of(whole)
    assert codes(content) == expected
    assert mxnet_trace.recognises(text.encode())


def test_two_traces_in_one_file_are_both_read(folder: Path) -> None:
    later = [one.replace('"ts": 1', '"ts": 2') for one in EVENTS]
    one, other = (mxnet_trace.read(write(folder, trace(*events))) for events in (EVENTS, later))
    for text in (
        trace(*EVENTS) + trace(*later),
        trace(*EVENTS)[: -len(written.END)] + trace(*later),
    ):
        content = mxnet_trace.read(write(folder, text))
        assert spans_of(content) == spans_of(one) + spans_of(other)
        assert codes(content) == set()


def test_what_other_programs_did_to_the_file_changes_nothing(folder: Path) -> None:
    whole = mxnet_trace.read(write(folder, trace(*EVENTS)))
    told = json.loads(trace(*EVENTS))
    by_time = sorted(told["traceEvents"], key=lambda one: one.get("ts", 0))
    for text in (
        json.dumps(told),
        json.dumps(told, indent=1, sort_keys=True),
        json.dumps({"displayTimeUnit": "ms", "traceEvents": by_time}),
        trace(*EVENTS).replace("\n", "\r\n"),
        "\ufeff" + trace(*EVENTS),
    ):
        assert mxnet_trace.recognises(text.encode())
        content = mxnet_trace.read(write(folder, text))
        assert spans_of(content) == spans_of(whole)
        assert counts_of(content) == counts_of(whole)
        assert codes(content) == set()


def test_a_packed_trace_is_the_same(folder: Path) -> None:
    path = write(folder, gzip.compress(trace(*EVENTS).encode()), "trace.json.gz")
    with Reader(open_run(path)) as reader:
        assert reader.rows("spans") == SPANS


@pytest.mark.parametrize(
    "text", [written.HEADER + written.END, written.HEADER + written.DEVICES + written.END]
)
def test_a_trace_without_an_event_is_opened_and_says_so(folder: Path, text: str) -> None:
    run = open_run(write(folder, text))
    with Reader(run) as reader:
        assert reader.rows("spans") == 0
        found = reader.query("SELECT code FROM problems").to_pylist()
    assert {"code": "no_events"} in found
    assert cli.main(["summary", "trace.json"]) == 0


def test_a_trace_of_calls_alone_says_how_operators_come_in(folder: Path) -> None:
    content = mxnet_trace.read(write(folder, trace(*call("MXNDArrayFree", MAIN, 100, 110))))
    (problem,) = (one for one in content.problems if one.code == "no_operators")
    assert "MXNET_PROFILER_MODE=15" in problem.remedy


def test_a_file_that_is_not_there_is_an_error(folder: Path) -> None:
    with pytest.raises(ReadError, match="cannot be read"):
        mxnet_trace.read(folder / "none.json")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b'{"traceEvents": []}',
        b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "tid": 1}]}',
        b'{"traceEvents": [{"name": "a", "cat": "b", "ph": "B", "ts": 1, "pid": 1, "tid": 4711}]}',
        b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}]}',
        # A line of a megabyte is searched once, not once for each event.
        pytest.param(
            b'{"traceEvents": [' + b'{"name": "a", "cat": "b", "ph": "X", "ts": 1}, ' * 20_000,
            id="a long line",
        ),
    ],
)
def test_traces_of_others_are_not_taken_for_it(head: bytes) -> None:
    assert not mxnet_trace.recognises(head)


def test_no_other_format_takes_a_trace_for_its_own() -> None:
    for text, _ in fragments().values():
        head = text.encode()
        assert [one.MEANING for one in known() if one.recognises(head)] == [mxnet_trace.MEANING]


# -- damage ----------------------------------------------------------------------------------------


def whole_before(cut: int) -> Spans:
    """What lies in whole pairs before this place of the text, or in half of an operator."""
    text = trace(*EVENTS)
    ends = []
    at = 0
    for one in EVENTS:
        at = text.index(one, at) + len(one)
        ends.append(at)
    kept = [one for one, end in zip(EVENTS, ends, strict=True) if end <= cut]
    if kept and written.events_of(kept[-1])[0]["ph"] in "Bb(":
        kept.pop()
    spans, _ = written.counted([one for text in kept for one in written.events_of(text)])
    return spans


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(len(written.HEADER + written.DEVICES), len(trace(*EVENTS)) - 1))
def test_a_file_that_was_cut_has_all_that_is_before(folder: Path, cut: int) -> None:
    content = mxnet_trace.read(write(folder, trace(*EVENTS)[:cut]))
    assert spans_of(content) == whole_before(cut)
    events_end = len(trace(*EVENTS)) - len(written.END) + len("\n\n    ]")
    assert ("trace_unended" in codes(content)) == (cut < events_end)
    assert "events_rejected" not in codes(content)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(trace(*EVENTS)) - 1), st.integers(0, 255))
def test_a_byte_that_is_another_one_costs_what_is_around_it(
    folder: Path, at: int, byte: int
) -> None:
    text = bytearray(trace(*EVENTS).encode())
    text[at] = byte
    content = mxnet_trace.read(write(folder, bytes(text)))
    whole = mxnet_trace.read(write(folder, trace(*EVENTS)))
    assert (
        sum((spans_of(whole) - spans_of(content)).values()) <= 2
        or content.realtime_ns != whole.realtime_ns
    )
    assert len(content.start_ns) >= SPANS - 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 6000), st.integers(0, 300), st.binary(max_size=20)), max_size=4
    )
)
def test_a_file_that_was_changed_anywhere_is_read(
    folder: Path, changes: list[tuple[int, int, bytes]]
) -> None:
    """Pieces are gone, or others stand there: there is never more than was written."""
    text = trace(*EVENTS).encode()
    for at, length, instead in changes:
        text = text[:at] + instead + text[at + length :]
    content = mxnet_trace.read(write(folder, text))
    assert len(content.start_ns) <= SPANS + 3  # of operators both may be left, as two


def test_what_several_processes_wrote_at_once_is_read_as_far_as_it_is_whole(folder: Path) -> None:
    """Each writes some thousand bytes at a time, wherever an event ends."""
    chance = random.Random(3)
    pieces = []
    for process in range(2):
        events = [
            one for k in range(100) for one in call(f"MX{k}", MAIN + process, 10 * k, 10 * k + 5)
        ]
        text = trace(*events)
        pieces.append([text[at : at + 4000] for at in range(0, len(text), 4000)])
    mixed = []
    while any(pieces):
        own = chance.choice([one for one in pieces if one])
        mixed.append(own.pop(0))
    content = mxnet_trace.read(write(folder, "".join(mixed)))
    borders = len(mixed)
    assert len(content.start_ns) >= 200 - 2 * borders
    assert "events_rejected" in codes(content)
    for kind, name, tid, _, dur in spans_of(content):
        assert (kind, dur) == ("call", 5), (name, tid)  # none is made of two halves


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ('    { "name": "x", "ph": "B", "ts": -5, "pid": 1, "tid": 2 }', "events_rejected"),
        (
            '    { "name": "x", "ph": "B", "ts": 99999999999999999999, "pid": 1, "tid": 2 }',
            "events_rejected",
        ),
        ('    { "name": "x", "ph": "BE", "ts": 5, "pid": 1, "tid": 2 }', "events_rejected"),
        ('    { "name": "x", "ph": "B", "ts": "now", "pid": 1, "tid": 2 }', "events_rejected"),
        ('    { "name": "x", "ph": null, "ts": 5, "pid": 1, "tid": 2 }', "events_rejected"),
        ("    {}", "events_rejected"),
        (
            '    { "name": "x", "ph": "X", "ts": 1000500, "dur": 3, "pid": 1, "tid": 2 }',
            "phases_unknown",
        ),
        ('    { "name": "x", "ph": "B", "ts": 1000500, "pid": 1, "tid": 2 }', "events_unmatched"),
        ('    { "name": "x", "ph": "e", "ts": 1000500, "pid": 1, "tid": 2 }', "events_unmatched"),
        (counter("c", "d", 1_000_500, '"many"'), "counters_without_value"),
        (counter("c", "d", 1_000_500, 1 << 65), "counters_without_value"),
        (
            '    { "name": "c", "ph": "C", "ts": 1000500, "pid": 1, "tid": 2 }',
            "counters_without_value",
        ),
        (written.BETWEEN.join(call("MXBack", MAIN, 1_000_500, 1_000_400)), "clock_stepped"),
    ],
)
def test_an_event_that_cannot_be_costs_itself_alone_and_is_told(
    folder: Path, wrong: str, code: str
) -> None:
    whole = mxnet_trace.read(write(folder, trace(*EVENTS)))
    content = mxnet_trace.read(write(folder, trace(*EVENTS[:2], wrong, *EVENTS[2:])))
    assert spans_of(whole) <= spans_of(content)
    assert counts_of(content) == counts_of(whole)
    assert codes(content) == {code}


# -- any trace -------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["dot", "Convolution", "MXInvoke", 'a "b', "x}, {", "é\\"])
_TIDS = st.sampled_from([MAIN, MAIN + 1, WORKER, 5])
_STARTS, _LENGTHS = st.integers(1_000, 1_040), st.integers(0, 20)
_WRITERS: dict[str, Any] = {
    "function": lambda name, *rest: pair("BE", name, "operator", 0, *rest),
    "call": call,
    "task": lambda name, *rest: pair("be", name, "Own", 12, *rest),
    "frame": lambda name, *rest: pair("()", name, "Own,frame", 13, *rest),
    "event": lambda name, *rest: pair("BE", name, "event", 14, *rest),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(_WRITERS)), _NAMES, _TIDS, _STARTS, _LENGTHS), max_size=30
    ),
    st.integers(40, 400),
    st.booleans(),
)
def test_any_spans_are_read_as_they_were_written(
    folder: Path, spans: list[tuple[str, str, int, int, int]], chunk_bytes: int, has_end: bool
) -> None:
    """In pieces of any size, of a file with an end or without."""
    pairs = [_WRITERS[kind](name, tid, start, start + dur) for kind, name, tid, start, dur in spans]
    text = trace(*(one for both in pairs for one in both))
    path = write(folder, text if has_end else text[: -len(written.END)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layerscope.sources.text_chunks.CHUNK_BYTES", chunk_bytes)
        content = mxnet_trace.read(path)
    expected = [(kind, name, *rest) for kind, name, *rest in spans]
    assert spans_of(content) == Counter(expected)
    assert len(content.depth) == len(spans)
    if spans:
        assert content.depth.min() == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(_WRITERS)), _NAMES, _TIDS, _STARTS, _LENGTHS), max_size=30
    ),
    st.integers(1, 5),
)
def test_spans_that_cross_come_into_the_tables_in_pieces_of_any_size(
    folder: Path, spans: list[tuple[str, str, int, int, int]], piece: int
) -> None:
    pairs = [_WRITERS[kind](name, tid, start, start + dur) for kind, name, tid, start, dur in spans]
    path = write(
        folder, trace(*(one for both in pairs for one in both)), f"{len(os.listdir(folder))}.json"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layerscope.sources.foreign_spans.PIECE_SPANS", piece)
        patch.setattr(
            "layerscope.ingest.conversion.limits_of", lambda *_: IngestLimits(epoch_spans=piece)
        )
        run = open_run(path)
    with Reader(run) as reader:
        found = reader.query("SELECT kind, name, dur_ns // 1000 AS dur FROM spans").to_pylist()
        outside = reader.query(
            "SELECT count(*) AS n FROM spans s JOIN spans p ON s.parent = p.span "
            "WHERE s.start_ns < p.start_ns OR s.start_ns > p.start_ns + p.dur_ns OR s.track != p.track"
        ).to_pylist()
    assert Counter((row["kind"], row["name"], row["dur"]) for row in found) == Counter(
        (kind, name, dur) for kind, name, _, _, dur in spans
    )
    assert outside == [{"n": 0}]
