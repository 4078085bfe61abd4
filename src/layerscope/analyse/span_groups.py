"""Spans that a summary need not tell apart, as one: those of the same thread, kind, name and module
that lie in the same sort of step.

Millions of spans make some hundred groups. Without the compiled pass (`model.compiled`) each span
is a group of its own, which gives the same sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from layerscope.model.compiled import Compiled, compiled

Arrays = dict[str, NDArray[Any]]
Bools = NDArray[np.bool_]

# What the spans of a group have in common.
COMMON = ("track", "kind", "name", "layer", "module")
# Room for the groups of most programs: half of so many.
_PLACES_BITS = 12
_MEASURED, _IN_STEP = 1, 2


class SpanGroups(NamedTuple):
    """Groups of spans, an entry for each: the `columns` of COMMON that were read, the sum of self
    times and the number of calls (both with the weights of a thinned run), whether they lie in
    measured steps and in steps at all.
    """

    columns: Arrays
    self_ns: NDArray[np.int64]
    calls: NDArray[np.int64]
    measured: Bools
    in_step: Bools


def grouped(spans: Arrays, measured: Bools, in_step: Bools) -> SpanGroups:
    """The groups of these spans, which have the columns `track`, `kind`, `name`, `layer`,
    `self_ns`, `weight`, and `module` if there are any.
    """
    library = compiled()
    if library is None:
        self_ns = spans["self_ns"] * spans["weight"]
        return SpanGroups(spans, self_ns, spans["weight"], measured, in_step)
    firsts, sums = _compiled(library, spans, measured, in_step)
    columns = {name: values.take(firsts) for name, values in spans.items() if name in COMMON}
    columns |= {name: values for name, values in spans.items() if name.endswith(".names")}
    return SpanGroups(columns, sums[:, 0], sums[:, 1], measured[firsts], in_step[firsts])


def _compiled(
    library: Compiled, spans: Arrays, measured: Bools, in_step: Bools
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each group, and its sums."""
    count = len(spans["track"])
    module = spans.get("module", np.broadcast_to(np.int32(-1), count))
    flags = measured * np.uint8(_MEASURED) | in_step * np.uint8(_IN_STEP)
    whats = [spans["track"], spans["kind"], spans["name"], module]
    common = [np.ascontiguousarray(column, np.int32) for column in whats]
    self_ns = np.ascontiguousarray(spans["self_ns"], np.int64)
    weight = np.ascontiguousarray(spans["weight"], np.int32)
    bits, found = _PLACES_BITS, -1
    while found < 0:  # there were more groups than places
        places = np.zeros(1 << bits, np.int32)
        firsts = np.empty(len(places) // 2, np.int64)
        sums = np.empty((len(firsts), 2), np.int64)
        rows = (*common, flags, self_ns, weight)
        found = library.call("groups", *rows, count, places, bits, firsts, sums)
        bits += 2
    return firsts[:found], sums[:found]
