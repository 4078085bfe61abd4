"""The time of work on GPUs by the operators that launched it, those around them included.

`gpu_ns` of an operator is the sum of the durations of the kernels, copies and memory sets that it
or an operator in it launched. So it is more than time on a clock where streams overlap, and a name
that calls itself counts twice, as in total_ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.columns import Columns, has_name
from layerscope.analyse.gpu.sweep import Int64s
from layerscope.analyse.stacks.sample_reader import places_of
from layerscope.analyse.stacks.tree import added_up, by_level
from layerscope.model.layers import OPERATORS

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

# As short as they can be: there may be millions.
_TYPES = {
    "span": np.int64,
    "parent": np.int64,
    "depth": np.int32,
    "dur_ns": np.int64,
    "layer": np.int8,
    "kind": np.int8,
    "name": np.int32,
}
_LINKS = ["from_span", "to_span", "kind"]


def gpu_times(reader: Reader) -> pa.Table | None:
    """`called`, `called_kind` and `gpu_ns` of each operator; None where none launched anything."""
    links = reader.arrays("links", _LINKS)
    launches = has_name(links, "kind", "operator_gpu")
    if not launches.any():
        return None
    spans = _spans(reader)
    key = spans.pop("span")
    asking = places_of(key, links["from_span"][launches])
    work = places_of(key, links["to_span"][launches])
    del links, launches
    is_known = (asking >= 0) & (work >= 0)
    own_ns = np.zeros((len(key), 1), np.int64)
    dur_ns = spans.pop("dur_ns").take(work[is_known])
    np.add.at(own_ns[:, 0], asking[is_known], dur_ns)
    up = places_of(key, spans.pop("parent")).astype(np.int32)
    del key, asking, work, is_known, dur_ns
    # Where the one around it was lost, nothing is.
    depth = np.where(up >= 0, spans.pop("depth"), 0)
    levels = by_level(up, depth)
    del depth
    gpu_ns = added_up(up, own_ns, levels)[:, 0]
    rows = np.flatnonzero(has_name(spans, "layer", OPERATORS) & (gpu_ns > 0))
    return _by_name(spans, gpu_ns.take(rows), rows)


def _spans(reader: Reader) -> dict[str, np.ndarray]:
    """All spans, read piece by piece."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in _TYPES}
    names = {}
    for piece in reader.pieces("spans", list(_TYPES)):
        for name, kind in _TYPES.items():
            parts[name].append(piece[name].astype(kind))
            texts = f"{name}.names"
            if texts in piece:
                names[texts] = piece[texts]
    columns = {name: np.concatenate(parts.pop(name)) for name in _TYPES}
    return {**columns, **names}


def _by_name(spans: Columns, gpu_ns: Int64s, rows: Int64s) -> pa.Table:
    """The sums by the name and the kind of these rows."""
    import pyarrow as pa

    names, kinds = spans["name.names"], spans["kind.names"]
    pair = spans["name"].take(rows) * np.int64(len(kinds)) + spans["kind"].take(rows)
    sums = np.zeros(len(names) * len(kinds), np.int64)
    np.add.at(sums, pair, gpu_ns)
    pairs = np.flatnonzero(sums)
    name, kind = np.divmod(pairs, len(kinds))
    columns = {
        "called": pa.array(names[name].tolist(), pa.string()),
        "called_kind": pa.array(kinds[kind].tolist(), pa.string()),
        "gpu_ns": pa.array(sums[pairs].tolist(), pa.int64()),
    }
    return pa.table(columns)
