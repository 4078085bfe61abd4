"""The range of the program that each span belongs to: of those that were open on its thread when it
began, the innermost. A range is what the program named itself (by its framework, NVTX or ITT).

A span with none of its own has that of what caused it: an operator that an engine executed that of
its submission, a backward function that of the operator it is the derivative of, and what runs
inside of either the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from layerscope.analyse.stacks.tree import by_level, nearest

if TYPE_CHECKING:
    from layerscope.recording.reader import Reader

_SPANS = """SELECT span, coalesce(parent, -1) AS parent, layer = 'ranges' OR kind = 'range' AS named
    FROM spans ORDER BY span"""
_CAUSES = """SELECT from_span, to_span FROM links
    WHERE kind IN ('forward_backward', 'submit_execute')"""
# A backward function of an operator that was submitted itself has two causes in a row.
_MOST_CAUSES = 4


def enclosing_ranges(reader: Reader) -> pa.Table:
    """Two columns, `span` and `within`: the key of the range, for all spans that have one."""
    spans = reader.query(_SPANS)
    keys = spans["span"].to_numpy()
    up = _row_of(keys, spans["parent"].to_numpy()).astype(np.int32)
    levels = by_level(up)
    found = nearest(up, spans["named"].to_numpy(zero_copy_only=False), levels)
    cause = _causes(reader, keys)
    caused = nearest(up, cause >= 0, levels)
    for _ in range(_MOST_CAUSES):
        of_cause = np.where(caused >= 0, found[cause[caused]], -1)
        found = np.where(found >= 0, found, of_cause)
    has_one = found >= 0
    return pa.table({"span": keys[has_one], "within": keys[found[has_one]]})


def _causes(reader: Reader, keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The row of what caused each span; -1: not known."""
    links = reader.query(_CAUSES)
    effect = _row_of(keys, links["to_span"].to_numpy())
    because = _row_of(keys, links["from_span"].to_numpy())
    is_known = (effect >= 0) & (because >= 0)
    cause = np.full(len(keys), -1)
    cause[effect[is_known]] = because[is_known]
    return cause


def _row_of(keys: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of the wanted keys stands among the sorted ones; -1: it is not among them."""
    row = np.searchsorted(keys, wanted)
    row[row == len(keys)] = -1
    is_other = keys[row] != wanted
    row[is_other] = -1
    return row
