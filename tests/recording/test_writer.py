"""Parquet: complete by rename, of the documented types, and what was written is what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerscope.model.schema import TABLES
from layerscope.recording.reader import Reader, table_files
from layerscope.recording.run import Run
from layerscope.recording.writer import (
    TableWriter,
    arrow_schema,
    codes_to_names,
    to_arrow,
    write_rows,
)
from tests.recordings import run_info


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "train.layerscope", run_info())


def marks(*numbers: int) -> dict[str, Any]:
    """Columns of `counters` with these values."""
    same = {"track": 0, "name": "x", "unit": "ns"}
    columns = {name: [value] * len(numbers) for name, value in same.items()}
    return columns | {"at_ns": list(numbers), "value": list(numbers)}


def values(run: Run) -> list[int]:
    with Reader(run) as reader:
        found: list[int] = reader.query("SELECT value FROM counters ORDER BY value")[
            "value"
        ].to_pylist()
        return found


def test_types_are_those_of_the_schema(run: Run) -> None:
    for name, table in TABLES.items():
        write_rows(run.path, name, [])
        stored = pq.read_schema(run.path / name / "all.parquet")
        assert stored.equals(arrow_schema(table)), name
        assert [field.nullable for field in stored] == [column.nullable for column in table.columns]


def test_parts_add_up_and_the_finished_table_takes_their_place(run: Run) -> None:
    writer = TableWriter(run.path, "counters")
    writer.add(marks(1, 2))
    writer.add(marks(3))
    assert values(run) == [1, 2, 3]
    assert (writer.parts, writer.rows) == (2, 3)

    writer.finish(to_arrow(TABLES["counters"], marks(1, 2, 3, 4)))

    assert values(run) == [1, 2, 3, 4]
    assert [path.name for path in (run.path / "counters").iterdir()] == ["all.parquet"]


def test_a_kill_between_the_finished_table_and_its_parts_counts_nothing_twice(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = TableWriter(run.path, "counters")
    writer.add(marks(1, 2))

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        writer.finish(to_arrow(TABLES["counters"], marks(1, 2)))

    assert len(list((run.path / "counters").iterdir())) == 2
    assert values(run) == [1, 2]


def test_half_a_file_is_never_visible(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TableWriter(run.path, "counters")
    writer.add(marks(1))

    def half(_: pa.Table, path: Path, **__: Any) -> None:
        Path(path).write_bytes(b"PAR1 and no more")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(OSError, match="No space"):
        writer.add(marks(2))

    assert [path.name for path in table_files(run, "counters")] == ["part-00000.parquet"]
    assert values(run) == [1]


def test_a_column_that_must_not_be_missing_is_missed() -> None:
    with pytest.raises(KeyError, match=r"counters\.value"):
        to_arrow(TABLES["counters"], {"track": [1], "at_ns": [1], "name": ["a"], "unit": ["ns"]})


def test_integers_are_stored_as_differences_and_names_once(run: Run) -> None:
    """What keeps a span below ten bytes."""
    count = 50_000
    names = ["aten::add", "aten::mul"]
    write_rows(run.path, "counters", [])
    writer = TableWriter(run.path, "counters")
    at = np.arange(count, dtype=np.int64) * 1000 + 2**61
    code = (np.arange(count) % 2).astype(np.int32)
    writer.add(
        {"track": np.zeros(count, np.int32), "at_ns": at, "name": codes_to_names(code, pa.array(names)), "value": at,
         "unit": codes_to_names(code * 0, pa.array(["ns"]))}
    )  # fmt: skip
    (part,) = (run.path / "counters").glob("part-*")

    assert part.stat().st_size < 2 * count
    group = pq.ParquetFile(part).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["at_ns"].encodings
    assert {column.compression for column in columns.values()} == {"LZ4"}
    assert pq.read_table(part)["name"].to_pylist() == [names[i % 2] for i in range(count)]
