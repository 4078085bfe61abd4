"""The scan of traces: exact times, texts as they are, memory that is bounded, and what it does without
its compiled part.
"""

from __future__ import annotations

import gzip
import json
import resource
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerscope.model.errors import ReadError
from layerscope.sources import trace_scan
from layerscope.sources.scanned_spans import ScannedSpans
from layerscope.sources.trace_scan import (
    HAS_TIME,
    IMPOSSIBLE,
    ScannedTrace,
    as_json,
    lanes,
    pairs,
    scan,
)

NO_SPANS = ScannedSpans()
FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def scanned(
    folder: Path, content: str | bytes, numbers: bool = False
) -> tuple[ScannedTrace, dict[str, list[int]]]:
    path = folder / "trace.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found: dict[str, list[int]] = {}

    def take(columns: dict[str, np.ndarray]) -> None:
        for name, values in columns.items():
            found.setdefault(name, []).extend(values.tolist())

    trace = scan(path, take, numbers)
    spans, trace.spans = trace.spans, NO_SPANS
    places = spans.places[spans.columns["place"]]
    kept = {name: values.tolist() for name, values in spans.columns.items()}
    kept |= {name: places[name].tolist() for name in places.dtype.names if len(places)}
    kept |= {
        name: spans.whole(spans.columns[name]).tolist() for name in ("external", "correlation")
    }
    return trace, found if not numbers else kept


NUMBERS = st.one_of(
    st.decimals(
        allow_nan=False, allow_infinity=False, min_value=-(10**14), max_value=10**14, places=4
    ),
    st.integers(-(10**15), 10**15),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e14, max_value=1e14),
)


@FIXTURE
@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_times_are_the_decimals_of_the_file(tmp_path: Path, numbers: list[Any]) -> None:
    texts = [str(number) for number in numbers]
    events = ",".join(f'{{"ph": "X", "ts": {text}, "dur": "{text}"}}' for text in texts)
    _, columns = scanned(tmp_path, f"[{events}]")
    wanted = [round(Decimal(text) * 1000) for text in texts]
    assert columns["time_ns"] == columns["duration_ns"] == wanted


@pytest.mark.parametrize(
    "text", ["NaN", "-inf", "1e400", "99999999999999999999", "true", '"soon"', "[]", "-", '""']
)
def test_times_that_are_none_are_said_to_be(tmp_path: Path, text: str) -> None:
    found, columns = scanned(tmp_path, f'[{{"ph": "X", "ts": {text}}}, {{"ph": "X", "ts": 1}}]')
    told = [flags & (HAS_TIME | IMPOSSIBLE) for flags in columns["flags"]]
    assert told[-1] == HAS_TIME
    assert told[:-1] == [IMPOSSIBLE] or found.damaged == 1


@FIXTURE
@given(st.text(), st.text(), st.booleans())
def test_names_and_arguments_are_texts_as_they_were_written(
    tmp_path: Path, name: str, value: str, is_ascii: bool
) -> None:
    event = {"ph": "X", "name": name, "ts": 1, "args": {"key": value, "more": [value, None]}}
    text = json.dumps([event], ensure_ascii=is_ascii)
    found, columns = scanned(tmp_path, text.encode("utf-8", "surrogatepass"))
    meant = name.encode("utf-8", "replace").decode()
    if not any("\ud800" <= letter <= "\udfff" for letter in name + value):
        assert found.names == [meant]
        assert json.loads(found.arguments[columns["args"][0]]) == event["args"]


@FIXTURE
@given(st.integers(1, 400))
def test_pieces_of_any_size_give_the_same(tmp_path: Path, chunk_bytes: int) -> None:
    args = {"External id": 3, "correlation": 4, "rest": [1, {"a": "}{"}]}
    event = {"ph": "X", "cat": "kernel", "name": 'a "b"', "ts": 1.5, "dur": 2, "args": args}
    text = json.dumps({"beside": [1, 2], "traceEvents": [event] * 3, "behind": "x"}, indent=1)
    whole = scanned(tmp_path, text, numbers=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("layerscope.sources.text_chunks.CHUNK_BYTES", chunk_bytes)
        assert scanned(tmp_path, text, numbers=True) == whole
    found, columns = whole
    assert found.beside == {"beside": [1, 2], "behind": "x"}
    assert columns["external"] == [3, 3, 3]
    assert found.arguments == ['{"rest": [\n     1,\n     {\n      "a": "}{"\n     }\n    ]}']


@pytest.mark.parametrize("number", [0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1])
def test_numbers_of_any_size_are_kept(tmp_path: Path, number: int) -> None:
    args = {"External id": number, "correlation": 7, "stream": number}
    event = {"ph": "X", "cat": "kernel", "ts": 1, "args": args}
    second = {**event, "args": {**args, "External id": 5}}
    _, columns = scanned(tmp_path, json.dumps([event, second, event]), numbers=True)
    assert columns["external"] == [max(number, 0), 5, max(number, 0)]
    assert columns["correlation"] == [7, 7, 7]
    assert columns["stream"] == [number] * 3


@pytest.mark.parametrize("quoted", ["", '"'])
def test_a_line_that_does_not_end_takes_no_more_memory_than_an_event_may_have(
    tmp_path: Path, quoted: str
) -> None:
    path = tmp_path / "long.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'[{"ph": "X", "name": "a", "ts": 1}, {"ph": "X", "name": "b", "args": [')
        file.write(quoted.encode())
        for _ in range(100):
            file.write(b"1," * (1 << 19))
        file.write(quoted.encode() + b'1], "ts": 2}, {"ph": "X", "name": "c", "ts": 3}]')
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    names: list[int] = []
    found = scan(path, lambda columns: names.extend(columns["name"].tolist()))
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert [found.names[name] for name in names] == ["a", "c"]
    assert (found.damaged, found.has_end) == (1, True)
    assert grown_kb < 80_000


def test_what_is_nested_too_deep_costs_its_event_alone(tmp_path: Path) -> None:
    deep = "[" * 5000 + "]" * 5000
    text = f'[{{"ph": "X", "name": "a", "args": {{"x": {deep}}}}}, {{"ph": "X", "name": "b", "ts": 1}}]'
    found, columns = scanned(tmp_path, text)
    assert [found.names[name] for name in columns["name"]] == ["b"]
    assert found.damaged == 1


def test_a_field_that_is_there_twice_has_the_last_value(tmp_path: Path) -> None:
    text = '[{"ph": "B", "ts": 1, "args": {"a": 1}, "ph": "X", "ts": 2, "args": {"b": 2}}]'
    found, columns = scanned(tmp_path, text)
    assert (columns["phase"], columns["time_ns"]) == ([ord("X")], [2000])
    assert found.arguments == ['{"b": 2}']


def test_invalid_text_and_control_characters_are_read(tmp_path: Path) -> None:
    found, _ = scanned(tmp_path, b'[{"ph": "X", "name": "a\xff\x01\tb", "ts": 1}]')
    assert found.names == ["a\ufffd\x01\tb"]


def test_a_file_that_unpacks_without_an_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_scan, "MOST_UNPACKED_BYTES", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * (8 << 20)))
    with pytest.raises(ReadError, match=r"bomb\.json\.gz unpacks to more than"):
        scan(path, lambda columns: None)


def test_without_the_compiled_part_the_remedy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_scan, "LIBRARY", tmp_path / "none.so")
    trace_scan.compiled_scan.cache_clear()
    try:
        with pytest.raises(ReadError, match="install a C compiler"):
            scanned(tmp_path, "[]")
    finally:
        trace_scan.compiled_scan.cache_clear()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"a": NaN, "b": [-Infinity, nan]}', {"a": "NaN", "b": ["-Infinity", "nan"]}),
        ('{"a": true, "b": "NaN, nan",}', {"a": True, "b": "NaN, nan"}),
        ("[1, 2]", {"args": [1, 2]}),
        ('{"a": +5}', {"unreadable": '{"a": +5}'}),
        ('{"a": 1e5, "b": 1.5E-3}', {"a": 1e5, "b": 1.5e-3}),
    ],
)
def test_arguments_that_are_no_json_become_json(text: str, meant: Any) -> None:
    assert json.loads(as_json(text)) == meant


def test_ends_belong_to_the_innermost_begin_of_their_name() -> None:
    group = np.array([0, 0, 0, 0, 0, 1])
    name = np.array([1, 2, 1, -1, 7, 1])
    begins = np.array([True, True, False, False, False, False])
    assert pairs(group, name, begins).tolist() == [2, 3, 0, 1, -1, -1]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20)), max_size=30))
def test_in_a_lane_nothing_crosses(spans: list[tuple[int, int]]) -> None:
    rows = sorted((start, -(start + dur)) for start, dur in spans)
    start, end = (np.array([abs(row[of]) for row in rows], np.int64) for of in (0, 1))
    lane = lanes(np.zeros(len(rows)), start, end, len(rows) + 1).tolist()
    for at, one in enumerate(lane):
        for before in range(at):
            crosses = start[at] < end[before] < end[at]
            assert not (lane[before] == one and crosses and one < 63)
