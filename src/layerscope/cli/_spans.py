"""The table `spans` on its way to disk: parts while the program runs, step and phase at the end.

Used by `_conversion`. Memory stays within a few parts, whatever the length of the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from layerscope.cli._texts import Texts
from layerscope.model.layers import KINDS, LAYER_OF_KIND, PHASES, SPAN_LAYERS
from layerscope.model.schema import TABLES
from layerscope.store.writer import TableWriter, arrow_schema, codes_to_names, parquet_options, to_arrow

# A part is written when this many spans wait: 30 MB of memory, and row groups that compress well.
PART_SPANS = 500_000
FUNCTION, BACKWARD, MODULE = (KINDS.index(kind) for kind in ("function", "backward", "module"))
LAYERS = np.array(LAYER_OF_KIND, np.int8)

Columns = dict[str, np.ndarray]
# Steps and phases of the spans of a piece, -1 for none: (step, phase). May change the column `module`.
Assign = Callable[[Columns], tuple[np.ndarray, np.ndarray]]


class SpanTable:
    """Collects spans, writes them in parts, and gives them back piece by piece."""

    def __init__(self, tables: Path, texts: Texts) -> None:
        self._writer = TableWriter(tables, "spans")
        self._buffer: list[Columns] = []
        self._buffered = 0
        self._texts = texts

    def add(self, columns: Columns) -> None:
        """Take spans in: the columns of the schema, `kind_code` and `name_code` for kind and name."""
        self._buffer.append(columns)
        self._buffered += len(columns["span"])
        if self._buffered >= PART_SPANS:
            self.flush()

    def flush(self) -> None:
        """Write what waits as one part."""
        if self._buffer:
            self._writer.add(self._to_arrow(self._drained()))

    def pieces(self) -> Iterator[Columns]:
        """Every span so far: the parts on disk one by one, then what is still in memory."""
        for part in sorted(self._writer.folder.glob("part-*.parquet")):
            yield self._from_part(pq.read_table(part))
        if self._buffer:
            columns = self._drained()
            self._buffer, self._buffered = [columns], len(columns["span"])
            yield columns

    def finish(self, assign: Assign | None, lost_parents: list[int]) -> int:
        """Complete the table; returns its number of rows. `assign` None: there is nothing to add.

        A long run without steps keeps its parts as they are.
        """
        if assign is None and not lost_parents and self._writer.parts:
            self.flush()
            return self._writer.rows
        lost = np.array(lost_parents, np.int64)
        path = self._writer.folder / "all.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        table = TABLES["spans"]
        rows = 0
        options = {name: value for name, value in parquet_options(table).items() if name != "row_group_size"}
        with pq.ParquetWriter(temporary, arrow_schema(table), **options) as writer:
            for columns in self.pieces():
                writer.write_table(to_arrow(table, self._completed(columns, assign, lost)))
                rows += len(columns["span"])
        os.replace(temporary, path)
        for part in self._writer.folder.glob("part-*.parquet"):
            part.unlink()
        return rows

    def _completed(self, columns: Columns, assign: Assign | None, lost: np.ndarray) -> dict[str, Any]:
        if len(lost):
            columns["parent"][np.isin(columns["parent"], lost)] = -1
        order = np.lexsort((columns["depth"], columns["start_ns"], columns["track"]))
        columns = {name: values[order] for name, values in columns.items()}
        step, phase = assign(columns) if assign is not None else (None, None)
        # What the seq of a module says, how many are open around it, is for us: parent and depth tell it.
        columns["seq"][columns["kind_code"] == MODULE] = -1
        arrow = self._to_arrow(columns)
        if step is not None and phase is not None:
            arrow["step"] = pa.array(step, mask=step < 0)
            arrow["phase"] = pa.DictionaryArray.from_arrays(
                pa.array(phase, pa.int32(), mask=phase < 0), pa.array(PHASES)
            )
        return arrow

    def _drained(self) -> Columns:
        columns = {name: np.concatenate([part[name] for part in self._buffer]) for name in self._buffer[0]}
        self._buffer, self._buffered = [], 0
        return columns

    def _to_arrow(self, columns: Columns) -> dict[str, Any]:
        count = len(columns["span"])
        parent, seq = columns["parent"], columns["seq"]
        arrow: dict[str, Any] = {name: value for name, value in columns.items() if not name.endswith("_code")}
        arrow["parent"] = pa.array(parent, mask=parent < 0)
        arrow["seq"] = pa.array(seq, mask=seq < 0)
        arrow["module"] = pa.array(columns["module"], mask=columns["module"] < 0)
        arrow["args"] = pa.array(columns["args"], mask=columns["args"] < 0)
        layer = LAYERS[columns["kind_code"]].astype(np.int32)
        arrow["layer"] = codes_to_names(layer, pa.array(SPAN_LAYERS))
        arrow["kind"] = codes_to_names(columns["kind_code"], pa.array(KINDS))
        arrow["name"] = codes_to_names(columns["name_code"], pa.array(list(self._texts.names), pa.string()))
        line = columns["line_code"]
        arrow["line"] = pa.DictionaryArray.from_arrays(
            pa.array(line, mask=line < 0), pa.array(list(self._texts.lines), pa.string())
        )
        arrow["weight"] = np.ones(count, np.int32)
        return arrow

    def _from_part(self, data: pa.Table) -> Columns:
        """The columns of a part of ours, as they were in memory."""
        columns: Columns = {}
        for name in ("span", "track", "depth", "start_ns", "dur_ns", "self_ns", "unfinished"):
            columns[name] = data[name].to_numpy()
        for name in ("parent", "seq", "module", "args"):
            columns[name] = data[name].fill_null(-1).to_numpy().copy()
        kinds = {kind: i for i, kind in enumerate(KINDS)}
        codes = {"kind": kinds, "name": self._texts.names, "line": self._texts.lines}
        for name, known in codes.items():
            merged = data[name].unify_dictionaries().combine_chunks()
            chunk = merged.chunk(0) if isinstance(merged, pa.ChunkedArray) else merged
            own = np.array([known[text] for text in chunk.dictionary.to_pylist()], np.int32)
            # The last place is for null, whose code is -1.
            columns[f"{name}_code"] = np.append(own, np.int32(-1))[chunk.indices.fill_null(-1).to_numpy()]
        return columns


def without_inner_operators(columns: Columns, lost_parents: list[int] | None = None) -> np.ndarray:
    """Rows that matter for steps: not the operators that run inside another operator.

    Of one piece, operators whose parent lies in another piece stay. With `lost_parents`, of what stayed of all
    pieces: a parent that is not there was left out before, so it was an operator; unless it was lost.
    """
    span, parent, kind = columns["span"], columns["parent"], columns["kind_code"]
    if not len(span):
        return np.zeros(0, np.intp)
    by_key = np.argsort(span, kind="stable")
    found = by_key[np.minimum(np.searchsorted(span, parent, sorter=by_key), len(span) - 1)]
    is_there = span[found] == parent
    in_operator = is_there & (kind[found] == FUNCTION)
    if lost_parents is not None:
        in_operator |= ~is_there & (parent >= 0) & ~np.isin(parent, np.array(lost_parents, np.int64))
    return np.flatnonzero(~(in_operator & (kind == FUNCTION)))
