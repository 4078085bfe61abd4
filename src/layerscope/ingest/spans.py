"""Spans as columns in memory, and as rows of the table `spans`. Used by `conversion` and
`parts`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from layerscope.ingest.string_table import StringTable
from layerscope.model.layers import KINDS, LAYER_OF_KIND, PHASES, SPAN_LAYERS
from layerscope.model.schema import TABLES
from layerscope.recording.writer import codes_to_names, to_arrow

FUNCTION, BACKWARD, MODULE, CALL, SUBMIT, EXECUTE, CREATE, SHARE = (
    KINDS.index(kind)
    for kind in (
        "function",
        "backward",
        "module",
        "call",
        "submit",
        "execute",
        "create",
        "share",
    )
)
# Keys are given out one after the other: as long as there are not many holes, a place for each is
# quicker to ask.
SPARSE = 8
LAYERS = np.array(LAYER_OF_KIND, np.int8)

# One array for each column, of equal length. Where the table has texts, codes: kind_code,
# name_code, line_code.
Columns = dict[str, np.ndarray]


def joined(parts: list[Columns]) -> Columns:
    """The rows of all parts, of which there is at least one."""
    return (
        parts[0]
        if len(parts) == 1
        else {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    )


class ColumnBuffer(Struct):
    """Rows that come piece by piece: each is copied at once, so that its own memory serves the
    next one. `usual`: how many there are before it is emptied, if there are many.
    """

    usual: int
    rows: int = 0
    _room: int = 0
    _columns: Columns = field(default_factory=dict)

    def add(self, columns: Columns) -> None:
        """Take in some rows. All pieces have the same columns; one value may stand for all rows."""
        first, self.rows = self.rows, self.rows + len(columns["span"])
        if self.rows == first:
            return
        if self.rows > self._room:
            is_large = self.rows > self.usual // 8
            self._room = max(2 * self.rows, self.usual if is_large else 0)
            for name, values in columns.items():
                grown = np.empty(self._room, values.dtype)
                if first:
                    grown[:first] = self._columns[name][:first]
                self._columns[name] = grown
        for name, values in columns.items():
            self._columns[name][first : self.rows] = values

    @property
    def least_key(self) -> int:
        """The lowest key of a span among them; a very high one where there is none."""
        if not self.rows:
            return np.iinfo(np.int64).max
        keys = self._columns["span"][: self.rows]
        return int(keys.min())

    def empty(self) -> Columns:
        """All rows so far; there is none here any more."""
        columns = {name: values[: self.rows] for name, values in self._columns.items()}
        self.rows = 0
        return columns


def taken(columns: Columns, rows: np.ndarray) -> Columns:
    """The rows at these places."""
    return {name: values.take(rows) for name, values in columns.items()}


def keep(columns: Columns, rows: np.ndarray) -> None:
    """Leave the rows at these places, in this order. No more than one column is in memory twice."""
    for name in list(columns):
        values = columns[name]
        columns[name] = values.take(rows)


def in_order(columns: Columns) -> np.ndarray:
    """The rows by track, start and depth, as the table has them."""
    track, start_ns, depth = columns["track"], columns["start_ns"], columns["depth"]
    # By start they are nearly in order, by depth not at all; few start together.
    order: np.ndarray = np.lexsort((start_ns, track))
    start_ns, track = start_ns.take(order), track.take(order)
    is_tied = (start_ns[1:] == start_ns[:-1]) & (track[1:] == track[:-1])
    if is_tied.any():
        with_next, with_last = np.append(is_tied, False), np.append(False, is_tied)
        tied = np.flatnonzero(with_next | with_last)
        rows = order[tied]
        order[tied] = rows[np.lexsort((depth[rows], start_ns[tied], track[tied]))]
    return order


def as_table(columns: Columns, texts: StringTable) -> pa.Table:
    """Rows of the table `spans`, with `step` and `phase`, -1 for none."""
    # That of a module is how many modules are open around it, which parent and depth say as well.
    kind = columns["kind_code"]
    columns["sequence"] = np.where(kind == MODULE, -1, columns["sequence"])
    arrow: dict[str, Any] = {}
    for name in ("span", "track", "depth", "start_ns", "dur_ns", "self_ns", "unfinished", "weight"):
        arrow[name] = columns[name]
    for name in ("parent", "sequence", "module", "args", "step"):
        arrow[name] = nullable(columns[name])
    layer = LAYERS[kind].astype(np.int32)
    arrow["layer"] = codes_to_names(layer, pa.array(SPAN_LAYERS))
    arrow["kind"] = codes_to_names(kind, pa.array(KINDS))
    arrow["phase"] = _coded(columns["phase"], list(PHASES))
    arrow["name"] = _coded(columns["name_code"], texts.names)
    arrow["line"] = _coded(columns["line_code"], texts.lines)
    return to_arrow(TABLES["spans"], arrow)


def _coded(codes: np.ndarray, known: dict[str, int] | list[str]) -> pa.DictionaryArray:
    """A dictionary array with only those texts that occur; code -1 is null."""
    texts = known if isinstance(known, list) else list(known)
    # The first entry is for -1.
    counts = np.bincount(codes.astype(np.intp) + 1, minlength=len(texts) + 1)
    used_codes = np.flatnonzero(counts[1:])
    used = [texts[code] for code in used_codes.tolist()]
    # The last entry is for -1.
    index_of_code = np.zeros(len(texts) + 1, np.int32)
    index_of_code[used_codes] = np.arange(len(used))
    indices = _with_nulls(index_of_code.take(codes), codes)
    dictionary = pa.array(used, pa.string())
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def nullable(values: np.ndarray) -> pa.Array:
    """An Arrow array of integers; those below zero are null."""
    return _with_nulls(values, values)


def _with_nulls(values: np.ndarray, known: np.ndarray) -> pa.Array:
    """An Arrow array in the memory of `values`; they are null where `known` is below zero."""
    is_known = known >= 0
    bitmap = None
    if not is_known.all():
        bits = np.packbits(is_known, bitorder="little")
        bitmap = pa.py_buffer(bits)
    kind = pa.from_numpy_dtype(values.dtype)
    content = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [bitmap, content])


def codes_of(data: pa.ChunkedArray, known: dict[str, int]) -> np.ndarray:
    """The codes of a column of texts that `as_table` made; -1 for null."""
    merged = data.unify_dictionaries().combine_chunks()
    is_chunked = isinstance(merged, pa.ChunkedArray)
    chunk = merged.chunk(0) if is_chunked else merged
    texts = chunk.dictionary.to_pylist()
    own = [known[text] for text in texts]
    # The last entry is for null, whose index is -1.
    code_of_index = np.array([*own, -1], np.int32)
    indices = chunk.indices.fill_null(-1)
    codes: np.ndarray = code_of_index[indices.to_numpy(zero_copy_only=False)]
    return codes


def without_inner_operators(kind: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Rows that matter for steps: not the operators that run inside another operator, and no
    primitives. `inside`: the row of the parent of each, -1 for none.
    """
    is_operator = kind == FUNCTION
    # The last entry is for -1.
    in_operator = np.append(is_operator, False)[inside]
    is_inner = in_operator & is_operator
    return np.flatnonzero(~is_inner & (kind < EXECUTE))


def rows_of(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The row of each wanted key among the keys, which are unique; -1 where it is not."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int32)
    before_first = int(keys.min()) - 1
    last = int(keys.max())
    span = last - before_first
    if span > SPARSE * len(keys):
        return _searched(keys, wanted)
    # The first entry and the last one are for keys out of range.
    row_of = np.full(span + 2, -1, np.int32)
    row_of[keys - before_first] = np.arange(len(keys), dtype=np.int32)
    found: np.ndarray = row_of.take(wanted - before_first, mode="clip")
    return found


def _searched(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """What `rows_of` gives, where a table of all keys would have too many holes."""
    by_key = np.argsort(keys, kind="stable")
    position = np.searchsorted(keys, wanted, sorter=by_key)
    row = by_key[np.minimum(position, len(keys) - 1)]
    return np.where(keys[row] == wanted, row, -1)
