"""Questions to a recording, to one that lacks tables, and to one that is damaged."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest

from layerscope.model.errors import ReadError
from layerscope.model.schema import TABLES
from layerscope.recording.reader import Reader, check_tables, table_files
from layerscope.recording.run import Run
from layerscope.recording.writer import TableWriter
from tests.recordings import Recording, run_info


@pytest.fixture
def empty(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "empty.layerscope", run_info())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    recording = Recording()
    outer = recording.add_span("aten::linear", 10, 100)
    recording.add_span("aten::addmm", 20, 50, parent=outer, sequence=4)
    return recording.write(tmp_path / "it's a run.layerscope")


def test_tables_that_nothing_recorded_are_empty_and_have_their_columns(empty: Run) -> None:
    with Reader(empty) as reader:
        for name, table in TABLES.items():
            answer = reader.query(f'SELECT * FROM "{name}"')
            assert (answer.num_rows, answer.column_names) == (
                0,
                [column.name for column in table.columns],
            )
            assert not reader.has(name)


def test_a_reader_that_is_closed_does_not_wait_for_a_question(run: Run) -> None:
    """The server of a report is ended while a page waits for an answer."""
    ended = threading.Event()
    reader = Reader(run)
    connection = reader.connection("")

    def ask() -> None:
        with contextlib.suppress(duckdb.Error):
            connection.sql(
                "SELECT sum(a.range + b.range) FROM range(1000000) a, range(1000000) b"
            ).fetchall()
        ended.set()

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(0.3)
    assert not ended.is_set()
    reader.close()
    assert ended.wait(60)
    asking.join()


def test_an_empty_view_has_the_types_of_a_full_one(empty: Run, run: Run) -> None:
    sql = "SELECT column_name, column_type FROM (DESCRIBE spans)"
    with Reader(empty) as reader, Reader(run) as other:
        assert reader.query(sql).equals(other.query(sql))


def test_a_question_with_parameters_is_answered_from_a_folder_with_a_quote_in_its_name(
    run: Run,
) -> None:
    with Reader(run) as reader:
        rows = reader.query("SELECT name, self_ns FROM spans WHERE dur_ns > ?", [60]).to_pylist()
        assert reader.has("spans")

    assert rows == [{"name": "aten::linear", "self_ns": 50}]


@pytest.mark.parametrize("folder", ["step=100", "name=x", "a*c", "a?c", "a[b]c"])
def test_the_name_of_a_folder_is_neither_a_column_nor_a_pattern(
    tmp_path: Path, folder: str
) -> None:
    for name, operator in (("abc", "aten::other"), (folder, "aten::mm")):
        recording = Recording()
        recording.add_span(operator, 10, 100, step=3)
        run = recording.write(tmp_path / name / "it.layerscope")
    with Reader(run) as reader:
        assert reader.query("SELECT name, step FROM spans").to_pylist() == [
            {"name": "aten::mm", "step": 3}
        ]


def test_what_does_not_fit_into_memory_leaves_nothing_behind(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(there))
    with Reader(run) as reader:
        reader.connection().execute("SET memory_limit = '60MB'")
        reader.connection().execute(
            "CREATE TABLE much AS SELECT range, hash(range)::VARCHAR FROM range(3_000_000)"
        )
        assert list(there.glob("*/*"))
        assert not list(here.iterdir())
    assert not list(there.iterdir())


def test_columns_come_as_arrays_without_the_database(run: Run) -> None:
    with Reader(run) as reader:
        found = reader.arrays(
            "spans", ["name", "start_ns", "parent", "sequence", "unfinished", "phase"]
        )

    assert found["name.names"][found["name"]].tolist() == ["aten::linear", "aten::addmm"]
    assert found["start_ns"].tolist() == [10, 20]
    assert found["parent"].tolist() == [-1, 0]
    assert found["sequence"].tolist() == [-1, 4]
    assert found["unfinished"].tolist() == [False, False]
    assert found["phase"].tolist() == [-1, -1]


def test_arrays_of_a_missing_table_are_empty(empty: Run) -> None:
    with Reader(empty) as reader:
        found = reader.arrays("spans", ["name", "start_ns", "unfinished"])

    assert {name: len(values) for name, values in found.items()} == {
        "name": 0, "name.names": 0, "start_ns": 0, "unfinished": 0
    }  # fmt: skip


def test_parts_with_different_names_are_one_column(empty: Run) -> None:
    writer = TableWriter(empty.path, "counters")
    for names in (["a", "b"], ["b", "c"]):
        writer.add(
            {"track": [0, 0], "at_ns": [1, 2], "name": names, "value": [1, 2], "unit": ["ns", "ns"]}
        )
    with Reader(empty) as reader:
        found = reader.arrays("counters", ["name"])
        grouped = reader.query(
            "SELECT name, count(*) AS n FROM counters GROUP BY name ORDER BY name"
        ).to_pylist()

    assert np.array(found["name.names"])[found["name"]].tolist() == ["a", "b", "b", "c"]
    assert [row["n"] for row in grouped] == [1, 2, 1]


def test_pieces_are_what_arrays_are_with_columns_that_are_null_or_the_same_everywhere(
    empty: Run,
) -> None:
    writer = TableWriter(empty.path, "spans")
    rows = {
        "span": [1, 2],
        "depth": [0, 0],
        "start_ns": [5, 6],
        "dur_ns": [1, 1],
        "self_ns": [1, 1],
        "weight": [1, 1],
    }
    texts = {"layer": ["operators"] * 2, "kind": ["function"] * 2, "name": ["a", "b"]}
    writer.add(rows | texts | {"track": [7, 7], "unfinished": [False] * 2})
    writer.add(
        rows
        | texts
        | {
            "track": [7, 8],
            "unfinished": [True, False],
            "args": [None, 0],
            "line": ["f.py:3", None],
        }
    )
    columns = [column.name for column in TABLES["spans"].columns]
    with Reader(empty) as reader:
        whole = reader.arrays("spans", columns)
        pieces = list(reader.pieces("spans", columns))

    assert len(pieces) == 2
    for name in columns:
        found = np.concatenate([piece[name] for piece in pieces])
        assert (found.tolist(), found.dtype) == (whole[name].tolist(), whole[name].dtype)
    assert pieces[0]["line"].tolist() == [-1, -1]
    assert pieces[1]["line.names"][pieces[1]["line"][0]] == "f.py:3"


@pytest.mark.parametrize("left", [0, 3, 100])
def test_a_table_that_was_cut_is_said_to_be_damaged(run: Run, left: int) -> None:
    (file,) = table_files(run, "spans")
    file.write_bytes(file.read_bytes()[:left])

    with pytest.raises(ReadError, match=r"spans.all\.parquet is damaged"):
        check_tables(run)


def test_a_whole_recording_is_not_said_to_be_damaged(run: Run, empty: Run) -> None:
    check_tables(run)
    check_tables(empty)


def test_a_question_to_a_damaged_table_fails_in_words(run: Run) -> None:
    """The footer is whole, what it points to is not."""
    (file,) = table_files(run, "spans")
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)

    with Reader(run) as reader, pytest.raises(ReadError, match="damaged"):
        reader.query("SELECT * FROM spans")


def test_too_little_memory_is_not_called_damage(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Reader(run) as reader:
        reader.connection().execute("SET memory_limit = '1MB'; SET max_temp_directory_size = '1MB'")
        with pytest.raises(
            ReadError, match=r"needs more memory, or room in .* than there is"
        ) as told:
            reader.query("SELECT hash(range)::VARCHAR AS word FROM range(5_000_000) ORDER BY word")

    assert "damaged" not in str(told.value)


def test_a_closed_reader_opens_again(run: Run) -> None:
    reader = Reader(run)
    assert reader.query("SELECT 1 AS one")["one"].to_pylist() == [1]
    reader.close()
    reader.close()
    assert reader.query("SELECT count(*) AS n FROM spans")["n"].to_pylist() == [2]
    reader.close()


_BAR = """
import sys
from pathlib import Path
import duckdb
from layerscope.recording.reader import Reader
from layerscope.recording.run import Run
asked = "SELECT current_setting('enable_progress_bar') AS bar"
print(duckdb.connect(":memory:").sql(asked).fetchall()[0][0])
print(Reader(Run.open(Path(sys.argv[1]))).query(asked)["bar"][0])
"""


def test_a_long_question_draws_no_bar_into_the_output_of_an_interactive_python(run: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BAR, str(run.path)], capture_output=True, text=True, check=True
    )

    of_duckdb, of_reader = done.stdout.split()
    assert of_duckdb == "True", "DuckDB takes this Python for one that is used interactively"
    assert of_reader == "False"
