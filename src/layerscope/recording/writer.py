"""Columns in, Parquet out: per table a folder of parts, each complete by rename.

`all.parquet` is the finished table: a reader that finds it ignores the parts, so a kill between
writing it and removing them cannot count anything twice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layerscope.model.schema import TABLES
from layerscope.model.table import Table
from layerscope.recording.arrow_columns import arrow_array

# Few numbers that come again and again: less is made of them as they are, in less time.
_REPEATING = ("track", "depth", "step", "module", "weight")
# Numbers that the row before says nothing of. Their bytes are stored by significance: the spans of
# a CNN take 5.4 MB so, and 6.4 MB with deltas, in about the same time.
_SCATTERED = ("parent", "dur_ns", "self_ns")
_ARROW: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "name": pa.dictionary(pa.int32(), pa.string()),
}


def arrow_schema(table: Table) -> pa.Schema:
    """The Arrow schema of `table`."""
    fields = []
    for column in table.columns:
        arrow_type = _ARROW[column.type]
        field = pa.field(column.name, arrow_type, nullable=column.nullable)
        fields.append(field)
    return pa.schema(fields)


def to_arrow(table: Table, columns: Mapping[str, Any]) -> pa.Table:
    """An Arrow table of `columns`: arrays or lists by column name; a nullable one may be left
    out.
    """
    length = len(next(iter(columns.values()))) if columns else 0
    arrays = []
    for column in table.columns:
        kind = _ARROW[column.type]
        values = columns.get(column.name)
        if values is None:
            if not column.nullable:
                raise KeyError(f"{table.name}.{column.name}")
            arrays.append(pa.nulls(length, kind))
        elif isinstance(values, (pa.Array, pa.ChunkedArray)):
            arrays.append(values if values.type == kind else values.cast(kind))
        elif isinstance(values, np.ndarray) and values.dtype != object:
            arrays.append(arrow_array(values.astype(kind.to_pandas_dtype(), copy=False)))
        else:
            arrays.append(pa.array(list(values), kind))
    return pa.table(arrays, schema=arrow_schema(table))


def write_parquet(table: Table, data: pa.Table, path: Path) -> None:
    """Write `data` to `path`, complete by rename. Settings: integers as deltas, names as
    dictionary, LZ4.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    pq.write_table(data, temporary, **parquet_options(table))
    os.replace(temporary, path)


def parquet_options(table: Table) -> dict[str, Any]:
    """Options of the Parquet writer for `table`."""
    integers = {
        c.name: "BYTE_STREAM_SPLIT" if c.name in _SCATTERED else "DELTA_BINARY_PACKED"
        for c in table.columns
        if c.type in ("int64", "int32") and c.name not in _REPEATING
    }
    return {
        # zstd makes 2 % less of it, in a third more time.
        "compression": "lz4",
        "use_dictionary": [c.name for c in table.columns if c.type in ("name", "string")],
        "column_encoding": integers or None,
        "row_group_size": 1 << 20,
        # Values that are encoded in one go: of a thousand, as Arrow has it, each has more to begin.
        "write_batch_size": 1 << 18,
        # For questions about a time, and for columns that are mostly null: those are not read where
        # they are.
        "write_statistics": ["start_ns", "track", "at_ns", "line", "correlation", "args"],
    }


class TableWriter:
    """Writes one table of a recording in parts."""

    def __init__(self, folder: Path, name: str) -> None:
        self.table = TABLES[name]
        self.folder = folder / name
        self.parts = 0
        self.rows = 0
        self.size_bytes = 0

    def add(self, columns: Mapping[str, Any]) -> None:
        """Append one part of rows."""
        data = to_arrow(self.table, columns)
        path = self.folder / f"part-{self.parts:05d}.parquet"
        write_parquet(self.table, data, path)
        self.size_bytes += path.stat().st_size
        self.parts += 1
        self.rows += data.num_rows

    def finish(self, data: pa.Table) -> None:
        """Replace the parts by `data` as the finished table."""
        write_parquet(self.table, data, self.folder / "all.parquet")
        self.rows = data.num_rows
        for part in self.folder.glob("part-*.parquet"):
            part.unlink()

    def join(self) -> None:
        """Put the parts together as the finished table, one after the other."""
        folder = self.folder
        temporary = folder / "all.tmp"
        folder.mkdir(parents=True, exist_ok=True)
        schema = arrow_schema(self.table)
        options = _of_writer(self.table)
        parts = sorted(folder.glob("part-*.parquet"))
        with pq.ParquetWriter(temporary, schema, **options) as writer:
            for part in parts:
                writer.write_table(pq.read_table(part, schema=schema))
        finished = folder / "all.parquet"
        os.replace(temporary, finished)
        for part in parts:
            part.unlink()


def _of_writer(table: Table) -> dict[str, Any]:
    """Options of a writer of several tables: what belongs to each writing is left out."""
    options = parquet_options(table)
    del options["row_group_size"]
    return options


def write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write a small table from a list of rows as finished; returns the number of rows."""
    columns = {}
    for column in TABLES[name].columns:
        columns[column.name] = [row.get(column.name) for row in rows]
    return write_columns(folder, name, columns)


def write_columns(folder: Path, name: str, columns: Mapping[str, Any]) -> int:
    """Write a small table from whole columns as finished; returns the number of rows."""
    table = TABLES[name]
    data = to_arrow(table, columns)
    write_parquet(table, data, folder / name / "all.parquet")
    return int(data.num_rows)


def codes_to_names(codes: np.ndarray, names: pa.Array) -> pa.DictionaryArray:
    """A dictionary array from int32 `codes` into `names`."""
    indices = arrow_array(codes.astype(np.int32, copy=False))
    return pa.DictionaryArray.from_arrays(indices, names)
