"""What a call of an operator runs on GPUs, in order: kernels, copies and memory sets, by the
starts of their executions.

The call is the outermost one of the operator that was asked for, with all that ran in it on its
thread; when none was, the innermost operator that launched the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from layerscope.analyse.gpu.sweep import Int64s

if TYPE_CHECKING:
    import pyarrow as pa

    from layerscope.recording.reader import Reader

_NONE = -1
_LAUNCHED = """
    SELECT to_span AS work, min(from_span) AS operator
    FROM links WHERE kind = 'operator_gpu' GROUP BY to_span"""
_SPANS = """
    SELECT span, coalesce(parent, -1) AS parent,
           layer = 'operators' AND name::VARCHAR = ? AS is_asked
    FROM spans WHERE layer <> 'gpu' ORDER BY span"""


def works_of_calls(reader: Reader, under: str | None) -> pa.Table:
    """`work` and the `call` that ran it, both spans."""
    launched = reader.query(_LAUNCHED)
    if under is None:
        return launched.rename_columns(["work", "call"])
    spans = reader.query(_SPANS, [under])
    key = spans["span"].to_numpy()
    parent = _places(key, spans["parent"].to_numpy())
    is_asked = spans["is_asked"].to_numpy(zero_copy_only=False)
    place = _places(key, launched["operator"].to_numpy())
    outermost = _outermost(place, parent, is_asked)
    return _found(launched["work"].to_numpy(), key, outermost)


def _places(key: Int64s, wanted: Int64s) -> Int64s:
    """Where in `key` each of these is, _NONE: nowhere."""
    if not len(key):
        return np.full(len(wanted), _NONE)
    place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    found: Int64s = np.where(key[place] == wanted, place, _NONE)
    return found


def _outermost(place: Int64s, parent: Int64s, is_asked: np.ndarray) -> Int64s:
    """Of each span the outermost one around it, or itself, that was asked for; else _NONE."""
    found = np.full(len(place), _NONE)
    at = place.copy()
    while True:
        rows = np.flatnonzero(at != _NONE)
        if not len(rows):
            return found
        here = at[rows]
        hits = is_asked[here]
        found[rows[hits]] = here[hits]
        at[rows] = parent[here]


def _found(work: Int64s, key: Int64s, outermost: Int64s) -> pa.Table:
    import pyarrow as pa

    rows = np.flatnonzero(outermost != _NONE)
    calls = key[outermost[rows]]
    return pa.table({"work": work[rows], "call": calls})
