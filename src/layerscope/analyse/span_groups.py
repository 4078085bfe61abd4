"""Spans that a summary need not tell apart, as one: those of the same thread, kind, name, module
and phase that lie in the same sort of step.

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
COMMON = ("track", "kind", "name", "layer", "module", "phase")
# Room for the groups of most programs: half of so many.
_PLACES_BITS = 12
# One number says in which steps a span lies, its layer and its phase.
_MEASURED, _IN_STEP = 1, 2
_LAYER_BIT, _PHASE_BIT = 2, 16


class SpanGroups(NamedTuple):
    """Groups of spans, an entry for each: the `columns` of COMMON that were read, the sums of self
    times and of durations and the number of calls (with the weights of a thinned run), whether they
    lie in measured steps and in steps at all.
    """

    columns: Arrays
    self_ns: NDArray[np.int64]
    calls: NDArray[np.int64]
    measured: Bools
    in_step: Bools
    dur_ns: NDArray[np.int64]


def grouped(spans: Arrays, measured: Bools, in_step: Bools) -> SpanGroups:
    """The groups of these spans, which have the columns `track`, `kind`, `name`, `layer`,
    `self_ns`, `weight`, and `module`, `phase` and `dur_ns` if they were read: else self time is
    also taken for the duration.
    """
    library = compiled()
    if library is None:
        weight = spans["weight"]
        self_ns = spans["self_ns"] * weight
        dur_ns = spans["dur_ns"] * weight if "dur_ns" in spans else self_ns
        return SpanGroups(spans, self_ns, weight, measured, in_step, dur_ns)
    firsts, sums = _compiled(library, spans, measured, in_step)
    columns = {name: values.take(firsts) for name, values in spans.items() if name in COMMON}
    columns |= {name: values for name, values in spans.items() if name.endswith(".names")}
    self_ns, calls, dur_ns = sums.T
    return SpanGroups(columns, self_ns, calls, measured[firsts], in_step[firsts], dur_ns)


def _compiled(
    library: Compiled, spans: Arrays, measured: Bools, in_step: Bools
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each group, and its sums."""
    count = len(spans["track"])
    module = spans.get("module", np.broadcast_to(np.int32(-1), count))
    whats = [spans["track"], spans["kind"], spans["name"], module]
    common: list[NDArray[Any]] = [np.ascontiguousarray(column, np.int32) for column in whats]
    flags = _flags(spans, measured, in_step)
    self_ns = np.ascontiguousarray(spans["self_ns"], np.int64)
    dur_ns = np.ascontiguousarray(spans.get("dur_ns", self_ns), np.int64)
    weight = np.ascontiguousarray(spans["weight"], np.int32)
    bits, found = _PLACES_BITS, -1
    while found < 0:  # there were more groups than places
        places = np.zeros(1 << bits, np.int32)
        firsts = np.empty(len(places) // 2, np.int64)
        sums = np.empty((len(firsts), 3), np.int64)
        rows = [*common, flags, self_ns, dur_ns, weight]
        found = library.call("groups", *rows, count, places, bits, firsts, sums)
        bits += 2
    return firsts[:found], sums[:found]


def _flags(spans: Arrays, measured: Bools, in_step: Bools) -> NDArray[np.int32]:
    """What else the spans of a group have in common, in one number."""
    flags = measured * np.int32(_MEASURED)
    flags |= in_step * np.int32(_IN_STEP)
    # Null is -1.
    layer = spans["layer"] + np.int32(1)
    flags |= layer << np.int32(_LAYER_BIT)
    if "phase" in spans:
        phase = spans["phase"] + np.int32(1)
        flags |= phase << np.int32(_PHASE_BIT)
    return np.ascontiguousarray(flags, np.int32)


def sums_by(codes: NDArray[Any], weights: NDArray[Any], length: int) -> NDArray[np.float64]:
    """The weights of each code, added up."""
    sums = np.bincount(codes, weights=weights, minlength=length)
    return sums.astype(np.float64)
