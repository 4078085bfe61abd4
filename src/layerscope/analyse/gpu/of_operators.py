"""The time of work on GPUs by the operators that launched it, those around them included.

`gpu_ns` of an operator is the sum of the durations of the kernels, copies and memory sets that it
or an operator in it launched. So it is more than time on a clock where streams overlap, and a name
that calls itself counts twice, as in total_ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.gpu.sweep import Int64s

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

_LAUNCHED = """
    SELECT links.from_span AS span, sum(spans.dur_ns)::BIGINT AS gpu_ns
    FROM links JOIN spans ON spans.span = links.to_span
    WHERE links.kind = 'operator_gpu' GROUP BY ALL"""
_SPANS = """
    SELECT span, coalesce(parent, -1) AS parent, depth, layer = 'operators' AS is_operator,
           name::VARCHAR AS name, kind::VARCHAR AS kind
    FROM spans WHERE layer <> 'gpu' ORDER BY span"""


def gpu_times(reader: Reader) -> pa.Table | None:
    """`called`, `called_kind` and `gpu_ns` of each operator; None where none launched anything."""
    launched = reader.query(_LAUNCHED)
    if not launched.num_rows:
        return None
    spans = reader.query(_SPANS)
    key = spans["span"].to_numpy()
    gpu_ns = np.zeros(len(key), np.int64)
    place = np.searchsorted(key, launched["span"].to_numpy())
    gpu_ns[place] = launched["gpu_ns"].to_numpy()
    parent = spans["parent"].to_numpy()
    _add_to_parents(gpu_ns, key, parent, spans["depth"].to_numpy())
    is_theirs = spans["is_operator"].to_numpy(zero_copy_only=False) & (gpu_ns > 0)
    return _by_name(spans, gpu_ns, np.flatnonzero(is_theirs))


def _add_to_parents(gpu_ns: Int64s, key: Int64s, parent: Int64s, depth: Int64s) -> None:
    """Add to each span what those in it have, from the innermost outwards."""
    has_time = np.flatnonzero(gpu_ns)
    while len(has_time):
        level = int(depth[has_time].max())
        is_deepest = depth[has_time] == level
        inner = has_time[is_deepest]
        inner = inner[parent[inner] >= 0]
        above = np.searchsorted(key, parent[inner])
        np.add.at(gpu_ns, above, gpu_ns[inner])
        left = has_time[~is_deepest]
        has_time = np.union1d(left, above)


def _by_name(spans: pa.Table, gpu_ns: Int64s, rows: Int64s) -> pa.Table:
    import pyarrow as pa

    chosen = spans.select(["name", "kind"]).take(pa.array(rows))
    chosen = chosen.append_column("gpu_ns", pa.array(gpu_ns[rows]))
    sums = chosen.group_by(["name", "kind"]).aggregate([("gpu_ns", "sum")])
    return sums.rename_columns(["called", "called_kind", "gpu_ns"])
