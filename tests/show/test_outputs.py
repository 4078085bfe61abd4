"""The same table as text, JSON and CSV: the same numbers, each in its own form."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyse import tables
from layerscope.analyse.result import Result, select
from layerscope.model import units
from layerscope.model.schema import SCHEMA_VERSION
from layerscope.recording.reader import Reader
from layerscope.show import csv_output, json_output, terminal
from tests.recordings import Recording


def result_of(recording: Recording, table: str) -> Result:
    with (
        tempfile.TemporaryDirectory() as folder,
        Reader(recording.write(Path(folder) / "x.layerscope")) as reader,
    ):
        return select(tables.build(reader, table))


def as_json(result: Result) -> Any:
    stream = io.BytesIO()
    json_output.write(result, stream, "table", "x.layerscope")
    return json.loads(stream.getvalue())


def as_csv(result: Result) -> list[list[str]]:
    stream = io.StringIO(newline="")
    csv_output.write(result, stream)
    return list(csv.reader(io.StringIO(stream.getvalue(), newline="")))


def test_json_has_the_stable_shape() -> None:
    recording = Recording()
    recording.add_span("op", 0, 10)
    recording.add_span("op", 0, 30, unfinished=True)
    recording.add_problem("modules", "torch is too old", "update it", lost="modules")

    answer = as_json(result_of(recording, "operators"))

    assert {key: answer[key] for key in ("schema", "command", "run", "table", "totals")} == {
        "schema": SCHEMA_VERSION,
        "command": "table",
        "run": "x.layerscope",
        "table": "operators",
        "totals": {},
    }
    assert answer["columns"][:3] == [
        {"name": "name", "type": "string", "unit": ""},
        {"name": "count", "type": "int64", "unit": "count"},
        {"name": "total_ns", "type": "int64", "unit": "ns"},
    ]
    assert answer["rows"] == [["op", 2, 40, 40, 1.0, 1.0, 10, 10, 10, 10, 10]]
    assert answer["problems"] == [
        {
            "layer": "modules",
            "code": "test",
            "what": "torch is too old",
            "remedy": "update it",
            "lost": "modules",
        }
    ]
    assert answer["notes"][0].startswith("1 call had not ended")


def test_csv_is_rows_only_with_empty_fields_for_nothing() -> None:
    recording = Recording()
    recording.add_span('a "quoted", name\nof two lines', 7, 30)

    heading, row = as_csv(result_of(recording, "spans"))

    assert heading == [column.name for column in tables.load("spans").COLUMNS]
    name = 'a "quoted", name\nof two lines'
    assert row == [name, "function", "python 100", "", "7", "30", "30", "1.0", "1.0", "", ""]


@pytest.mark.parametrize("table", tables.names())
def test_an_empty_table_is_a_heading_in_csv_and_no_rows_in_json(table: str) -> None:
    recording = Recording()
    recording.rows = {}
    result = result_of(recording, table)

    assert as_csv(result) == [[column.name for column in result.columns]]
    assert as_json(result)["rows"] == []
    assert as_json(result)["notes"] == [tables.load(table).EMPTY]


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(names, st.integers(0, 10**11)), min_size=1, max_size=8))
@pytest.mark.slow
def test_every_output_carries_the_same_numbers(calls: list[tuple[str, int]]) -> None:
    recording = Recording()
    for name, dur_ns in calls:
        recording.add_span(name, 0, dur_ns)
    result = result_of(recording, "operators")

    from_json = as_json(result)["rows"]
    from_csv = as_csv(result)[1:]
    printed = terminal.text(result).splitlines()[1:]

    assert [[str(value) for value in row] for row in from_json] == from_csv
    assert len(printed) == len(from_json)
    for line, row in zip(printed, from_json, strict=True):
        name, count, total_ns, self_ns = row[:4]
        assert line.startswith(terminal.printable(name))
        assert f"  {count:,}  " in line
        assert units.duration(total_ns) in line
        assert units.duration(self_ns) in line
