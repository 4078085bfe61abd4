"""Parquet and CSV hold one row for each span, with names in place of keys."""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from layerscope.model.errors import UsageError
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
from layerscope.show import exports
from layerscope.show.exports.span_rows import COLUMNS
from tests.recordings import Recording
from tests.show.exported import REALTIME_NS, recordings, write_pieces


def parquet(run: Run, steps: range | None = None) -> list[dict[str, Any]]:
    path = run.path.parent / "spans.parquet"
    with Reader(run) as reader:
        exports.export(reader, path, steps)
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def lines(run: Run, suffix: str = ".csv") -> list[dict[str, str]]:
    path = run.path.parent / f"spans{suffix}"
    with Reader(run) as reader:
        exports.export(reader, path)
    data = path.read_bytes()
    text = (gzip.decompress(data) if suffix.endswith(".gz") else data).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def as_text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@settings(max_examples=25, deadline=None)
@given(recordings())
@pytest.mark.slow
def test_every_span_is_a_row(made: tuple[Recording, list[int]]) -> None:
    recording, cuts = made
    rows = recording.rows
    with tempfile.TemporaryDirectory() as folder:
        run = write_pieces(recording, Path(folder) / "r.layerscope", cuts)
        found = {row["span"]: row for row in parquet(run)}
        texts = {int(row["span"]): row for row in lines(run)}
    assert len(found) == len(texts) == len(rows.get("spans", []))
    for span in rows.get("spans", []):
        track = rows["tracks"][span["track"]]
        process = rows["processes"][track["process"]]
        wanted = {name: span.get(name) for name in COLUMNS} | {
            "process": track["process"], "pid": process["pid"], "rank": process.get("rank"), "host": "here",
            "tid": track["tid"], "thread": track["name"], "start_realtime_ns": span["start_ns"] + REALTIME_NS,
            "module": None if span["module"] is None else rows["modules"][span["module"]]["path"],
            "args": None if span["args"] is None else rows["args"][span["args"]]["json"],
        }  # fmt: skip
        assert found[span["span"]] == wanted
        assert texts[span["span"]] == {name: as_text(value) for name, value in wanted.items()}


def test_some_steps_alone(tmp_path: Path) -> None:
    recording = Recording()
    for number in range(4):
        recording.add_span("op", number * 10, 5, step=number)
    run = recording.write(tmp_path / "r.layerscope")

    assert [row["step"] for row in parquet(run, range(1, 3))] == [1, 2]
    with pytest.raises(UsageError, match="--steps 7:9 holds no span"):
        parquet(run, range(7, 9))


def test_a_compressed_file(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("op", 10, 5)

    assert [
        row["name"] for row in lines(recording.write(tmp_path / "r.layerscope"), ".csv.gz")
    ] == ["op"]


def test_without_a_reading_of_the_wall_clock_that_column_is_empty(tmp_path: Path) -> None:
    recording = Recording()
    recording.add_span("op", 10, 5)
    run = recording.write(tmp_path / "r.layerscope")

    assert [row["start_realtime_ns"] for row in parquet(run)] == [None]
    assert [row["start_realtime_ns"] for row in lines(run)] == [""]


def test_a_recording_of_nothing_has_columns_and_no_rows(tmp_path: Path) -> None:
    run = Recording().write(tmp_path / "r.layerscope")

    assert lines(run) == parquet(run) == []
    assert pq.read_schema(tmp_path / "spans.parquet").names == list(COLUMNS)
