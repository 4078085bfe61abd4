"""Spans as columns in memory, and as rows of the table `spans`. Used by `conversion` and
`parts`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from layerscope.ingest.string_table import StringTable
from layerscope.model.layers import KINDS, LAYER_OF_KIND, PHASES, PYTHON_CALL, SPAN_LAYERS
from layerscope.model.schema import TABLES
from layerscope.recording.arrow_columns import arrow_array, coded_texts, texts_of
from layerscope.recording.writer import codes_to_names, to_arrow

(
    FUNCTION,
    BACKWARD,
    MODULE,
    CALL,
    SUBMIT,
    EXECUTE,
    CREATE,
    SHARE,
    KERNEL,
    MEMSET,
    LAUNCH,
    RUNTIME,
) = (
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
        "kernel",
        "memset",
        "launch",
        "runtime",
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
    next one. `usual`: from how many on it is emptied, if there are many.

    A column may have one value for all rows, and then is that value: an array without an axis in
    what comes, one that repeats it in what goes.
    """

    usual: int
    rows: int = 0
    _columns: Columns = field(default_factory=dict)

    def add(self, columns: Columns) -> None:
        """Take in some rows. All pieces have the same columns."""
        first, self.rows = self.rows, self.rows + len(columns["span"])
        if self.rows == first:
            return
        for name, values in columns.items():
            value = values[0] if is_repeated(values) else values
            known = self._columns.get(name)
            is_one = not value.ndim
            if is_one and (not first or (known is not None and not known.ndim and known == value)):
                self._columns[name] = np.array(value)
                continue
            column = self._columns[name] = self._with_room(known, first, values.dtype)
            column[first : self.rows] = value

    def _with_room(self, known: np.ndarray | None, first: int, kind: np.dtype[Any]) -> np.ndarray:
        """A column with room for all rows, of which the first ones are known."""
        if known is not None and known.ndim and len(known) >= self.rows:
            return known
        is_large = self.rows > self.usual // 8
        usual = self.usual * 3 // 2 if is_large else 0
        grown = np.empty(max(2 * self.rows, usual), kind)
        if first and known is not None:
            grown[:first] = known[:first] if known.ndim else known
        return grown

    @property
    def least_key(self) -> int:
        """The lowest key of a span among them; a very high one where there is none."""
        if not self.rows:
            return np.iinfo(np.int64).max
        keys = np.atleast_1d(self._columns["span"])
        return int(keys[: self.rows].min())

    def empty(self) -> Columns:
        """All rows so far; there is none here any more."""
        columns = {
            name: values[: self.rows] if values.ndim else np.broadcast_to(values, self.rows)
            for name, values in self._columns.items()
        }
        self.rows = 0
        return columns


def is_repeated(values: np.ndarray) -> bool:
    """Whether all rows of a column are one value in memory."""
    return values.strides == (0,) and len(values) > 0


def taken(columns: Columns, rows: np.ndarray) -> Columns:
    """The rows at these places."""
    return {name: _at(values, rows) for name, values in columns.items()}


def keep(columns: Columns, rows: np.ndarray) -> None:
    """Leave the rows at these places, in this order. No more than one column is in memory twice."""
    for name in list(columns):
        values = columns[name]
        columns[name] = _at(values, rows)


def _at(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The values at these places."""
    return np.broadcast_to(values[0], len(rows)) if is_repeated(values) else values.take(rows)


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
    for name in ("parent", "sequence", "module", "args", "step", "correlation"):
        arrow[name] = nullable(columns[name])
    layer = LAYERS.take(kind).astype(np.int32)
    arrow["layer"] = codes_to_names(layer, pa.array(SPAN_LAYERS))
    arrow["kind"] = codes_to_names(kind, pa.array(KINDS))
    arrow["phase"] = _coded(columns["phase"], list(PHASES))
    arrow["name"] = _coded(columns["name_code"], texts.names)
    arrow["line"] = _coded(columns["line_code"], texts.lines)
    return to_arrow(TABLES["spans"], arrow)


def _coded(codes: np.ndarray, known: dict[str, int] | list[str]) -> pa.DictionaryArray:
    """A dictionary array with only those texts that occur; code -1 is null."""
    if is_repeated(codes) and codes[0] < 0:
        kind = pa.dictionary(pa.int32(), pa.string())
        return pa.nulls(len(codes), kind)
    texts = known if isinstance(known, list) else list(known)
    # The first entry is for -1.
    counts = np.bincount(codes + 1, minlength=len(texts) + 1)
    used_codes = np.flatnonzero(counts[1:])
    used = [texts[code] for code in used_codes.tolist()]
    # The last entry is for -1.
    index_of_code = np.full(len(texts) + 1, -1, np.int32)
    index_of_code[used_codes] = np.arange(len(used))
    places = index_of_code.take(codes)
    return coded_texts(places, used)


def nullable(values: np.ndarray) -> pa.Array:
    """An Arrow array of integers; those below zero are null."""
    if is_repeated(values) and values[0] < 0:
        return pa.nulls(len(values), pa.from_numpy_dtype(values.dtype))
    return arrow_array(values, values >= 0)


def codes_of(data: pa.ChunkedArray, known: dict[str, int]) -> np.ndarray:
    """The codes of a column of texts that `as_table` made; -1 for null."""
    indices, texts = texts_of(data)
    own = [known[text] for text in texts]
    # The last entry is for null, whose index is -1.
    code_of_index = np.array([*own, -1], np.int32)
    codes: np.ndarray = code_of_index[indices]
    return codes


def kinds_of(spans: pa.Table) -> np.ndarray:
    """The codes of the kinds of spans, of which two layers have one of the same name."""
    kinds = {kind: code for code, kind in enumerate(KINDS[:PYTHON_CALL])}
    layers = {layer: code for code, layer in enumerate(SPAN_LAYERS)}
    kind = codes_of(spans["kind"], kinds)
    layer = codes_of(spans["layer"], layers)
    is_python = layer == LAYERS[PYTHON_CALL]
    return np.where(is_python, PYTHON_CALL, kind)


def without_inner_operators(kind: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Rows that matter for steps: not the operators that run inside another operator, and no
    primitives. `inside`: the row of the parent of each, -1 for none.
    """
    is_operator = kind == FUNCTION
    # The last entry is for -1.
    in_operator = np.append(is_operator, False).take(inside)
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
